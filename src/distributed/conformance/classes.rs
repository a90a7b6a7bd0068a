//! What the classes of nodes report. Stores that do not share quotas among classes are not tested.

use super::{Outcome, Random, Subject, Trial};
use crate::distributed::{ClassDemand, ClassReport, SharedDemand, Store};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// A minute: as long as a report can count.
const LONG: u64 = 60_000_000;

/// How many reports are compared, and how many nodes send them.
const REPORTS: u64 = 200;
const NODES: u64 = 5;

pub(super) async fn classes(trial: &Trial<'_, impl Subject>) -> Outcome {
    if !trial.client("classes").await?.shares_classes() {
        return Ok(false);
    }
    reports_are_added_up(trial).await?;
    reports_end(trial).await?;
    a_bounded_number_of_classes_is_known(trial).await?;
    concurrent_reports_are_all_counted(trial).await
}

async fn report(store: &dyn Store, report: &ClassReport) -> Result<Vec<ClassDemand>, String> {
    let answer = store.report(report.clone()).await;
    let mut classes = answer.map_err(|error| format!("{report:?} gets the error `{error}`"))?;
    classes.sort_unstable_by_key(|row| row.class);
    Ok(classes)
}

fn row(class: u64, heavy: u64, millis: u64) -> ClassDemand {
    ClassDemand::from_numbers([class, class / 2, 1 + class % 7, heavy, millis % 2, millis])
}

/// Random reports get the answers of [`SharedDemand`].
async fn reports_are_added_up(trial: &Trial<'_, impl Subject>) -> Result<(), String> {
    let clients = [trial.client("sums").await?, trial.client("sums").await?];
    let (mut random, mut model) = (Random(7), SharedDemand::new());
    for number in 0..REPORTS {
        let mut rows: Vec<ClassDemand> = Vec::new();
        for _ in 0..random.below(5) {
            let class = random.below(6).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            if rows.iter().all(|row| row.class != class) {
                let millis = if random.one_in(9) { u64::MAX } else { random.below(1_000) };
                rows.push(row(class, random.below(3), millis));
            }
        }
        let node = 1 + u128::from(random.below(NODES));
        let asked = ClassReport::new(node, LONG, rows);
        let real = report(&*clients[number as usize % 2], &asked).await?;
        // The model's clock stands still: no report ends.
        let expected = model.report(&asked, 1_700_000_000_000_000);
        ensure!(real == expected, "report {number}, {asked:?}, gets {real:?}; it must be {expected:?}");
    }
    Ok(())
}

async fn reports_end(trial: &Trial<'_, impl Subject>) -> Result<(), String> {
    let store = trial.client("ends").await?;
    report(&*store, &ClassReport::new(1, 100_000, vec![row(1, 1, 0)])).await?;
    report(&*store, &ClassReport::new(2, LONG, vec![row(1, 1, 0)])).await?;
    sleep(Duration::from_millis(600)).await;
    let found = report(&*store, &ClassReport::new(3, LONG, Vec::new())).await?;
    ensure!(
        found == [row(1, 1, 0)],
        "of two reports, one for 0.1 s and one for a minute, {found:?} are left after 0.6 s"
    );
    let found = report(&*store, &ClassReport::new(2, LONG, Vec::new())).await?;
    ensure!(found.is_empty(), "{found:?} are left after all nodes have reported that nothing waits");
    Ok(())
}

async fn a_bounded_number_of_classes_is_known(trial: &Trial<'_, impl Subject>) -> Result<(), String> {
    let store = trial.client("many").await?;
    let most = SharedDemand::MOST_CLASSES;
    let many: Vec<ClassDemand> = (0..200).map(|class| row(class, 1, 0)).collect();
    let found = report(&*store, &ClassReport::new(1, LONG, many.clone())).await?;
    ensure!(found.len() == most, "of 200 classes {} are known, and not {most}", found.len());
    ensure!(found.iter().all(|row| many.contains(row)), "{found:?} are known, which were not reported");
    let found = report(&*store, &ClassReport::new(1, LONG, many[..1].to_vec())).await?;
    ensure!(found == many[..1], "of 200 classes one is left, and {found:?} are known");
    Ok(())
}

async fn concurrent_reports_are_all_counted(trial: &Trial<'_, impl Subject>) -> Outcome {
    let mut tasks = JoinSet::new();
    for node in 1..=40 {
        let client: Arc<dyn Store> = trial.client("together").await?;
        tasks.spawn(
            async move { report(&*client, &ClassReport::new(node, LONG, vec![row(1, 1, 0), row(2, 0, 3)])).await },
        );
    }
    while let Some(answer) = tasks.join_next().await {
        answer.map_err(|error| format!("a report ends in a panic: {error}"))??;
    }
    let found = report(&*trial.client("together").await?, &ClassReport::new(99, LONG, Vec::new())).await?;
    ensure!(
        found == [row(1, 40, 0), ClassDemand { light: 40, ..row(2, 0, 120) }],
        "40 nodes have reported one heavy and one light class each at the same time, and {found:?} are counted"
    );
    Ok(true)
}
