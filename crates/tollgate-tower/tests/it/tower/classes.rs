//! Requests that wait in the classes of a limiter.

use super::*;

use tokio::time::Instant;
use tollgate::{Class, Share};

async fn echo(n: u64) -> Result<u64, Infallible> {
    Ok(n)
}

/// A token each millisecond from an empty bucket, and two classes of it.
fn two_classes(weights: [u64; 2]) -> [Class; 2] {
    let quota = Quota::new(1, MILLI).burst(1).initial(0);
    let limiter = Limiter::builder().quota(quota).classes().build().unwrap();
    [("a", weights[0]), ("b", weights[1])].map(|(name, weight)| limiter.class(name, Share::weight(weight)).unwrap())
}

/// The instants, in milliseconds, at which `count` calls made now are answered.
async fn instants<S>(service: S, count: u64) -> Vec<u128>
where
    S: tower::Service<u64, Response = u64, Error: std::fmt::Debug> + Clone,
{
    let start = Instant::now();
    let calls = (0..count).map(|n| {
        let call = service.clone().oneshot(n);
        async move {
            assert_eq!(call.await.unwrap(), n);
            (Instant::now() - start).as_millis()
        }
    });
    futures::future::join_all(calls).await
}

#[tokio::test(start_paused = true)]
async fn each_request_chooses_its_class_and_its_cost() {
    let classes = two_classes([1, 1]);
    let choose = {
        let classes = classes.clone();
        move |n: &u64| (classes[*n as usize % 2].clone(), 1 + n / 2)
    };
    let service = LimitLayer::by(choose).release_at_head().layer(service_fn(echo));
    // Installments of one token: 0 costs 1 in a, 1 costs 1 in b, 2 costs 2 in a, 3 costs 2 in b.
    assert_eq!(instants(service, 4).await, [1, 2, 5, 6]);
    let service = LimitLayer::new(&classes[0]).cost(|n| *n).release_at_head().layer(service_fn(echo));
    assert_eq!(instants(service, 3).await, [0, 1, 3]);
}

#[tokio::test(start_paused = true)]
async fn refusals_of_a_class_are_answered() {
    let [a, _] = two_classes([1, 1]);
    let service = LimitLayer::new(&a).release_at_head().refuse().layer(service_fn(echo));
    let LimitError::Refused(refused) = assert_ready!(spawn(service.clone().oneshot(7)).poll()).unwrap_err();
    assert_eq!(refused.retry_after(), Some(MILLI));
    a.remove();
    let error = assert_ready!(spawn(service.oneshot(7)).poll()).unwrap_err();
    assert!(matches!(error, LimitError::Refused(Refused::AtOnce(TryAcquireError::Closed))));

    let [a, _] = two_classes([1, 1]);
    a.set_share(Share::weight(1).max_waiting(1)).unwrap();
    let service = LimitLayer::new(&a).release_at_head().within(MILLI).layer(service_fn(echo));
    let mut first = spawn(service.clone().oneshot(7));
    assert!(first.poll().is_pending());
    let error = service.oneshot(7).await.unwrap_err();
    assert_eq!(error, LimitError::Refused(Refused::InLine(ConsumeError::QueueFull { waiting: 1 })));
    drop(first);
    assert_eq!(a.snapshot().waiting_tasks, 0);
}
