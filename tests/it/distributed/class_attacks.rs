//! Nodes that cheat their classes, in paused time: the rate law holds, and others keep their shares.

use super::class_fleet::Fleet;
use super::nodes::millis;
use crate::fixture::*;

/// A class that is removed and made anew between its claims has the tag that it had. A new class of a tenant begins with the
/// largest lead of the tenant's classes, whatever its name is.
#[tokio::test(start_paused = true)]
async fn a_new_class_for_each_claim_gets_no_more_than_its_share() {
    for is_tenant in [false, true] {
        let fleet = Fleet::of_two();
        let _pages = fleet.node(&[("pages", 60)]);
        let node = fleet.node(&[]);
        let (limiter, backup) = (node.limiter.clone(), node.classes["backup"].clone());
        if is_tenant {
            fleet.claim_in_new_classes(move |job| backup.class(format!("job-{job}"), Share::weight(1)).unwrap());
        } else {
            backup.remove();
            fleet.claim_in_new_classes(move |_| limiter.class("backup", Share::weight(1)).unwrap());
        }
        sleep(millis(2_000)).await;
        let [pages, backup] = fleet.granted_in(millis(10_000), ["pages", "backup"]).await;
        println!("{pages} to {backup}");
        assert!(backup <= 1_100.0 && pages + backup >= 4_950.0, "of a tenant: {is_tenant}: {pages} to {backup}");
        fleet.assert_lawful(500, 50);
    }
}

/// Names can be made to have one number. Such classes have tags of their own, like all others.
#[tokio::test(start_paused = true)]
async fn classes_with_names_of_one_number_get_no_more_than_their_shares() {
    let fleet = Fleet::new(Quota::per_second(500).burst(50), &[("pages", 8), ("VrB6UyEohQH", 1), ("FphdPwL9YrN", 1)]);
    let _pages = fleet.node(&[("pages", 60)]);
    let mut node = fleet.node(&[]);
    let colliding = ["VrB6UyEohQH", "FphdPwL9YrN"];
    colliding.into_iter().for_each(|class| fleet.consume(&mut node, class, 4, 20));
    sleep(millis(2_000)).await;
    let [one, other] = fleet.granted_in(millis(10_000), colliding).await;
    println!("{one} and {other}");
    assert!([one, other].into_iter().all(|granted| (450.0..=550.0).contains(&granted)), "{one} and {other}");
    fleet.assert_lawful(500, 50);
}

/// Claims that are given up before they are granted leave their tokens to the other classes of their node: few of them.
#[tokio::test(start_paused = true)]
async fn claims_that_are_given_up_give_no_other_class_more_than_its_share() {
    for (patience, pause) in [(3, 1), (100, 100)] {
        let fleet = Fleet::of_two();
        let _pages = fleet.node(&[("pages", 60)]);
        let node = fleet.node(&[("backup", 60)]);
        for start in 0..20 {
            let class = node.classes["pages"].clone();
            tokio::spawn(async move {
                sleep(millis(start * (patience + pause) / 20)).await;
                for _ in 0..12_000 / patience {
                    if timeout(millis(patience), class.wait(1)).await.is_err() {
                        sleep(millis(pause)).await;
                    }
                }
            });
        }
        sleep(millis(2_000)).await;
        let [pages, backup] = fleet.granted_in(millis(10_000), ["pages", "backup"]).await;
        println!("given up after {patience} ms, anew after {pause} ms: {pages} to {backup}");
        assert!(backup <= 1_100.0, "{pages} to {backup}");
        fleet.assert_lawful(500, 50);
    }
}
