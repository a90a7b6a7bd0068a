//! A request of a node as arguments of the script, and its reply. Their numbers are doubles of eight bytes: a script takes
//! longer to read and to write texts, and longer for twenty arguments than for two.

use redis::Cmd;
use tollgate::distributed::{ClassClaims, LeaseGrant, LeaseRequest};

/// The script of a store.
pub(super) const SCRIPT: &str = include_str!("store.lua");

/// Adds the arguments of a request to the command: the quota, the numbers, and the node. A claim of tokens at once by a caller
/// that the store does not remember says no node, and of the numbers how many tokens.
pub(super) fn add_arguments(command: &mut Cmd, ask: &LeaseRequest) {
    command.arg(ask.terms.to_string());
    let LeaseRequest { number, leave, at_once, ttl, want, first, age, useful, rtt, .. } = *ask;
    let mut single = LeaseRequest::new(ask.node, 1, ask.terms);
    (single.want, single.leave, single.at_once) = (want, true, true);
    if *ask == single {
        command.arg(exact(want));
        return;
    }
    let LeaseRequest { back, unused, last, rest, ahead, banked, minimum, held, .. } = *ask;
    let numbers = [number, leave.into(), at_once.into(), ttl, want, first, age, useful, rtt];
    let tokens = [back, unused, last, rest, ahead, banked, minimum, held];
    let classes = ask.classes.iter().flat_map(ClassClaims::numbers);
    let all = numbers.into_iter().chain(tokens).chain(classes);
    let bytes: Vec<u8> = all.flat_map(|number| (exact(number) as f64).to_le_bytes()).collect();
    command.arg(bytes).arg(format!("{:032x}", ask.node));
}

/// Doubles are exact up to here, and no valid node requests more.
fn exact(number: u64) -> u64 {
    number.min(1 << 53)
}

/// The answer in a reply; `None` if it is no answer. Of a claim at once it has only the numbers that are not 0.
pub(super) fn answer(reply: &[u8], classes: usize) -> Option<LeaseGrant> {
    let doubles = reply.chunks(8).map(|bytes| Some(f64::from_le_bytes(bytes.try_into().ok()?) as u64));
    let numbers: Vec<u64> = doubles.collect::<Option<_>>()?;
    match numbers[..] {
        [now, phase, part, remaining, clock] => {
            LeaseGrant::from_numbers(&[0, 0, now, 0, 0, phase, 0, part, 0, 0, remaining, 0, clock], 0)
        }
        _ => LeaseGrant::from_numbers(&numbers, classes),
    }
}
