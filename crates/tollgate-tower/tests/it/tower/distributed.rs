//! Services on several machines that share one quota per user.

use std::convert::Infallible;
use tollgate::distributed::MemoryStore;
use tollgate::{DistributedKeyedLimiter, Quota};
use tollgate_tower::LimitLayer;
use tower::{Layer, Service, ServiceExt, service_fn};

/// A layer in front of a service: two machines, one user.
#[tokio::test(start_paused = true)]
async fn requests_of_a_user_are_limited_together_on_all_machines() {
    let store = MemoryStore::new();
    let serve = || {
        let users = DistributedKeyedLimiter::builder(store.clone()).quota(Quota::per_hour(10)).build().unwrap();
        let layer = LimitLayer::keyed(&users, |user: &u64| (*user, 2)).refuse().release_at_head();
        layer.layer(service_fn(|user: u64| async move { Ok::<u64, Infallible>(user) }))
    };
    let mut machines = [serve(), serve()];
    let mut served = [0; 2];
    for number in 0..20 {
        for user in [0, 1] {
            let machine = machines[number % 2].ready().await.unwrap();
            served[user as usize] += u64::from(machine.call(user).await.is_ok());
        }
    }
    assert_eq!(served, [5, 5]);
    // Each machine learned once per user that no token is left, or took the last one.
    assert_eq!(store.asks(), 10 + 2);
}
