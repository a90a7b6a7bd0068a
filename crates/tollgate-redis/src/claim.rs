//! The script of a store, and its short form for single claims: claims at once of callers that the store does not
//! remember, as keyed limiters send them. The server spends most of its time for such a claim on texts, so arguments and
//! answers are few, and what does not depend on the record is computed here.

use redis::{Cmd, ParsingError, Value};
use tollgate::distributed::{LeaseGrant, LeaseRequest};

pub(super) const SCRIPT: &str = concat!(include_str!("claim.lua"), include_str!("store.lua"));

/// `claim.lua` writes numbers below this without rounding.
const EXACT: u64 = 100_000_000_000_000;
/// A bucket that would not begin full is kept for longer, as in `store.lua`; in milliseconds.
const IDLE: u64 = 3_600_000;

/// Adds the arguments of a request to the command.
pub(super) fn add_arguments(command: &mut Cmd, ask: &LeaseRequest) {
    let quota = ask.terms.to_string();
    if let Some(single) = Single::of(ask, &quota) {
        let Single { amount, period, burst, left, expiry, extra } = single;
        command.arg(quota);
        for number in [ask.want, left, expiry, amount, period, burst, extra] {
            command.arg(number);
        }
        return;
    }
    command.arg(format!("{:032x}", ask.node)).arg(ask.number).arg(u8::from(ask.leave)).arg(quota);
    for number in [ask.ttl, ask.want, ask.ahead, ask.banked, ask.allowance, ask.minimum, ask.held, ask.back] {
        command.arg(number);
    }
    command.arg(u8::from(ask.at_once));
}

/// Reads the answer to a request; `None` if it is no answer of the script.
pub(super) fn read_answer(ask: &LeaseRequest, answer: Value) -> Result<Option<LeaseGrant>, ParsingError> {
    let of_single = |now: u64, part: u64, left: u64| LeaseGrant::from_numbers(&[0, 0, now, 0, 0, part, 0, 0, 1, left]);
    Ok(match answer {
        Value::Int(1) => Single::of(ask, &ask.terms.to_string()).and_then(|single| of_single(ask.want, 0, single.left)),
        Value::BulkString(record) => {
            let numbers = std::str::from_utf8(&record).ok().and_then(|record| {
                let mut numbers = record.split(' ').map(str::parse);
                Some((numbers.next()?.ok()?, numbers.nth(2)?.ok()?))
            });
            numbers.and_then(|(left, part)| of_single(ask.want, part, left))
        }
        answer => {
            let numbers: Vec<u64> = redis::from_redis_value(answer)?;
            match numbers[..] {
                [left, part] => of_single(0, part, left),
                _ => LeaseGrant::from_numbers(&numbers),
            }
        }
    })
}

/// The numbers of the short form.
struct Single {
    amount: u64,
    period: u64,
    burst: u64,
    /// The tokens of a new bucket after the claim, and its expiry in milliseconds.
    left: u64,
    expiry: u64,
    /// What each expiry has on top of the time until the bucket is full.
    extra: u64,
}

impl Single {
    /// `None` if the request is no single claim, or the short form does not cover its quota.
    fn of(ask: &LeaseRequest, quota: &str) -> Option<Self> {
        let want = ask.want;
        let mut single = LeaseRequest::new(ask.node, 1, ask.terms);
        (single.want, single.at_once, single.leave) = (want, true, true);
        if *ask != single {
            return None;
        }
        let mut numbers = quota.split(' ').map(str::parse::<u64>);
        let mut number = || numbers.next()?.ok();
        let (amount, period, burst, initial) = (number()?, number()?, number()?, number()?);
        let is_stepped = number()? == 1;
        if is_stepped || period >= EXACT || burst >= EXACT {
            return None;
        }
        let left = initial.checked_sub(want)?;
        let extra = 1 + if initial < burst { IDLE } else { 0 };
        let fills = (burst - left).div_ceil(amount) * period;
        Some(Self { amount, period, burst, left, expiry: fills.div_ceil(1_000) + extra, extra })
    }
}
