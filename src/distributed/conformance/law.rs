//! The rate law, and the debt of promised tokens.

use super::client::{Answer, ask, at_once, slow, terms, try_ask, want};
use super::ledger::Ledger;
use super::{Outcome, Subject, Trial};
use crate::distributed::{QuotaTerms, StoreError};
use crate::quota::Quota;
use std::time::Duration;
use tokio::time::{Instant, sleep};

pub(super) async fn law(trial: &Trial<'_, impl Subject>) -> Outcome {
    the_burst_is_granted_once(trial).await?;
    the_rate_is_kept(trial).await?;
    a_full_bucket_mints_nothing(trial).await
}

/// No token is minted meanwhile, so all numbers are exact.
async fn the_burst_is_granted_once(trial: &Trial<'_, impl Subject>) -> Outcome {
    let store = trial.client("burst").await?;
    let terms = slow(60);
    let (mut granted, mut owed) = (0, 0);
    for node in 1..=12 {
        let tokens = 3 + node as u64 % 5;
        let grant = ask(&*store, want(node, 1, terms, tokens)).await?.grant;
        let now = tokens.min(60 - granted);
        ensure!(
            (grant.now, grant.promised, grant.queued_before) == (now, tokens - now, owed),
            "of a burst of 60, {granted} are granted and {owed} promised; a request for {tokens} gets {grant:?}"
        );
        (granted, owed) = (granted + now, owed + tokens - now);
        ensure!(grant.remaining == 60 - granted, "{} tokens remain in the store, which says {grant:?}", 60 - granted);
    }
    Ok(true)
}

/// The bucket owes tokens all the time, so it never loses any: what it has minted is known from both sides.
async fn the_rate_is_kept(trial: &Trial<'_, impl Subject>) -> Outcome {
    let (store, other) = (trial.client("rate").await?, trial.client("rate").await?);
    let terms = terms(Quota::per_second(2_000).burst(50));
    let mut ledger = Ledger::default();
    let first = ask(&*store, want(1, 1, terms, 80)).await?;
    note(&mut ledger, &first, &terms, 80, 0)?;
    let (mut total, mut last, mut asked, mut was_paid_off) = (80, first, 0, false);
    while last.received - first.received < Duration::from_millis(500) {
        asked += 1;
        let owed = last.grant.queued_before + last.grant.promised;
        // What is minted in 50 ms, and a bit to make the numbers odd.
        let tokens = if owed > 150 { 1 } else { 100 + asked % 7 };
        let store = if asked % 2 == 0 { &store } else { &other };
        last = ask(&**store, want(2 + u128::from(asked % 3), 1 + asked / 3, terms, tokens)).await?;
        note(&mut ledger, &last, &terms, tokens, owed)?;
        total += tokens;
        was_paid_off |= last.grant.now > 0;
        sleep(Duration::from_millis(5)).await;
    }
    if let Some((window, tokens, most)) = ledger.excess(&terms) {
        return Err(format!("{tokens} tokens are granted in {window:?}, where there are at most {most}"));
    }
    let owed = last.grant.queued_before + last.grant.promised;
    let minted = (total - owed).saturating_sub(50);
    let in_time = |time: Duration| terms.minted_in(time.as_nanos() as u64);
    let (short, long) = (last.sent - first.received, last.received - first.sent);
    // A bucket that could pay off its whole debt between two requests may have been full, and mints nothing then.
    let least = if was_paid_off { 0 } else { in_time(short - short / 1_000) };
    let most = in_time(long + long / 1_000);
    ensure!(
        (least.saturating_sub(1)..=most + 1).contains(&minted),
        "{minted} tokens are minted in {short:?} to {long:?}, where it must be {least} to {most}"
    );
    Ok(true)
}

/// Records the answer to a request for `tokens` of a store that owed `owed` tokens at most.
fn note(ledger: &mut Ledger, answer: &Answer, terms: &QuotaTerms, tokens: u64, owed: u64) -> Result<(), String> {
    let grant = answer.grant;
    ensure!(grant.now + grant.promised == tokens, "a request for {tokens} gets {grant:?}");
    ensure!(grant.queued_before <= owed, "a store that owes {owed} tokens at most says {grant:?}");
    ledger.note(answer, terms);
    Ok(())
}

async fn a_full_bucket_mints_nothing(trial: &Trial<'_, impl Subject>) -> Outcome {
    let store = trial.client("full").await?;
    let terms = terms(Quota::per_second(10_000).burst(20));
    ask(&*store, want(1, 1, terms, 5)).await?;
    sleep(Duration::from_millis(50)).await;
    let grant = ask(&*store, at_once(2, terms, 21)).await?.grant;
    ensure!(grant.now == 0, "a full bucket of 20 grants {} at once", grant.now);
    ensure!(grant.remaining == 20, "a bucket of 20 that had time to fill up has {}", grant.remaining);
    Ok(true)
}

pub(super) async fn debt(trial: &Trial<'_, impl Subject>) -> Outcome {
    let store = trial.client("exact").await?;
    let terms = slow(10);
    let expect = [(1, 25, (10, 15, 0)), (2, 1, (0, 1, 15)), (3, 40, (0, 40, 16))];
    for (node, tokens, answer) in expect {
        let grant = ask(&*store, want(node, 1, terms, tokens)).await?.grant;
        ensure!(
            (grant.now, grant.promised, grant.queued_before) == answer,
            "a request for {tokens} gets {grant:?}; (now, promised, queued before) must be {answer:?}"
        );
        let grant = ask(&*store, at_once(100 + node, terms, 1)).await?.grant;
        ensure!((grant.now, grant.promised) == (0, 0), "a store that owes tokens grants some at once: {grant:?}");
    }
    it_is_paid_off_at_the_rate(trial).await?;
    nodes_that_wait_for_it_are_counted(trial).await?;
    its_limit_is_exact(trial).await
}

async fn it_is_paid_off_at_the_rate(trial: &Trial<'_, impl Subject>) -> Outcome {
    let store = trial.client("paid off").await?;
    let terms = terms(Quota::per_second(100).burst(10));
    let first = ask(&*store, want(1, 1, terms, 60)).await?;
    let began = Instant::now();
    for node in 2.. {
        sleep(Duration::from_millis(60)).await;
        let answer = ask(&*store, want(node, 1, terms, 0)).await?;
        let in_time = |time: Duration| terms.minted_in(time.as_nanos() as u64);
        let (short, long) = (answer.sent - first.received, answer.received - first.sent);
        let least = 50_u64.saturating_sub(in_time(long + long / 1_000) + 1);
        let most = 50_u64.saturating_sub(in_time(short - short / 1_000));
        let owed = answer.grant.queued_before;
        ensure!(
            (least..=most).contains(&owed),
            "{short:?} to {long:?} after it promised 50 tokens, a store of 100/s owes {owed}, not {least} to {most}"
        );
        if began.elapsed() > Duration::from_millis(300) {
            break;
        }
    }
    Ok(true)
}

/// A node with waiters asks again before its promised tokens have come, and not before that.
async fn nodes_that_wait_for_it_are_counted(trial: &Trial<'_, impl Subject>) -> Outcome {
    let store = trial.client("waiting").await?;
    let terms = slow(10);
    for (node, count) in (1..=3).zip(1..) {
        let grant = ask(&*store, want(node, 1, terms, 20)).await?.grant;
        ensure!(grant.busy == count, "{count} nodes wait for tokens, and the store counts {}", grant.busy);
        sleep(Duration::from_millis(600)).await;
    }
    Ok(true)
}

/// Numbers up to 2^53 are exact; a larger debt than 2^52 is refused.
async fn its_limit_is_exact(trial: &Trial<'_, impl Subject>) -> Outcome {
    let store = trial.client("limit").await?;
    let terms = slow(10);
    let mut owed = 0;
    for node in 1..=16 {
        let grant = ask(&*store, want(node, 1, terms, 1 << 48)).await?.grant;
        ensure!(grant.queued_before == owed, "a store that owes {owed} tokens says {grant:?}");
        owed += grant.promised;
    }
    for tokens in [11, 1 << 48, u64::MAX] {
        let answer = try_ask(&*store, want(17, 1, terms, tokens)).await;
        ensure!(
            matches!(answer, Err(StoreError::Refused(_))),
            "a store that owes {owed} tokens is asked for {tokens}, must refuse, and answers {answer:?}"
        );
    }
    let grant = ask(&*store, want(17, 1, terms, 10)).await?.grant;
    ensure!((grant.promised, grant.queued_before) == (10, owed), "a store that owes {owed} tokens says {grant:?}");
    Ok(true)
}
