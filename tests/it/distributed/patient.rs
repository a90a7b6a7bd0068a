//! A scarce quota, for which callers wait as long as it takes: its whole rate, in the order of age over all nodes, with few
//! requests.

use super::nodes::limiter;
use crate::fixture::*;
use tokio::task::AbortHandle;

/// The instant of each grant, and how long its claim waited.
type Grants = Arc<Mutex<Vec<(Instant, Duration)>>>;

fn store() -> MemoryStore {
    store_at(Duration::from_micros(500))
}

/// A caller that waits for one token after the other.
async fn call(node: Limiter, grants: Grants) {
    loop {
        let asked = Instant::now();
        node.wait(1).await.unwrap();
        grants.lock().unwrap().push((Instant::now(), asked.elapsed()));
    }
}

#[tokio::test(start_paused = true)]
async fn patient_callers_have_the_whole_rate_in_the_order_of_age_with_few_requests() {
    for (nodes, callers, secs, most) in [(20, 3, 1, 10.0), (20, 3, 60, 10.0), (1, 1, 3_600, 30.0)] {
        let (store, quota) = (store(), Quota::new(1, Duration::from_secs(secs)).burst(1));
        let (grants, mut tasks) = (Grants::default(), JoinSet::new());
        for _ in 0..nodes {
            let node = limiter(&store, quota);
            for _ in 0..callers {
                tasks.spawn(call(node.clone(), grants.clone()));
            }
            sleep(Duration::from_millis(7)).await;
        }
        // Each caller has had its second token, then three more.
        let turn = Duration::from_secs(nodes * callers * secs);
        sleep(2 * turn).await;
        let asks = store.asks();
        grants.lock().unwrap().clear();
        sleep(3 * turn).await;
        let granted = std::mem::take(&mut *grants.lock().unwrap());
        let waits = granted.iter().map(|(_, wait)| wait.as_secs_f64());
        let (count, longest) = (granted.len() as f64, waits.clone().fold(0.0, f64::max));
        let (rate, spread) = (count / (3 * nodes * callers) as f64, longest * count / waits.sum::<f64>());
        let requests = (store.asks() - asks) as f64 / count;
        println!("{nodes} x {callers}, {secs} s: {rate:.3} of the rate, {spread:.3}, {requests:.1} requests a grant");
        assert!((0.98..=1.02).contains(&rate) && spread <= 1.1 && requests <= most, "{rate}, {spread}, {requests}");
        // The way of an answer, and a timer.
        let least = granted.windows(2).map(|pair| pair[1].0 - pair[0].0).min().unwrap();
        assert!(least >= Duration::from_millis(1_000 * secs - 2), "{least:?}");
    }
}

/// Ten nodes on 6 tokens a minute; each ends after the other, cleanly, and another one begins. No token is lost. If the node
/// ends that was next, its token is there until the one after it comes, in ten seconds at most.
#[tokio::test(start_paused = true)]
async fn a_rolling_deploy_costs_a_scarce_quota_nothing() {
    for pause in [1, 2, 3, 4, 6, 8, 11, 15, 20, 33] {
        let (store, quota) = (store(), Quota::per_minute(6));
        let (grants, mut tasks) = (Grants::default(), JoinSet::new());
        let mut start = || -> AbortHandle { tasks.spawn(call(limiter(&store, quota), grants.clone())) };
        let mut nodes: Vec<AbortHandle> = (0..10).map(|_| start()).collect();
        sleep(Duration::from_secs(300)).await;
        grants.lock().unwrap().clear();
        for node in &mut nodes {
            std::mem::replace(node, start()).abort();
            sleep(Duration::from_secs(pause)).await;
        }
        sleep(Duration::from_secs(60)).await;
        let instants: Vec<Instant> = grants.lock().unwrap().iter().map(|(at, _)| *at).collect();
        let gap = instants.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
        println!("a node each {pause} s: {} grants, {gap:?} between two at most", instants.len());
        assert!(gap <= Duration::from_millis(20_100), "{gap:?}");
        assert!(instants.len() as u64 >= (10 * pause + 60) / 10, "{instants:?}");
    }
}
