//! Requests that wait in the classes of a limiter.

use super::*;

use tokio::time::Instant;
use tollgate::Share;

async fn echo(n: u64) -> Result<u64, Infallible> {
    Ok(n)
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
    // A token each millisecond from an empty bucket.
    let limiter = Limiter::builder().quota(Quota::new(1, MILLI).burst(1).initial(0)).classes().build().unwrap();
    let classes = ["a", "b"].map(|name| limiter.class(name, Share::weight(1)).unwrap());
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
