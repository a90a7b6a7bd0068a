//! A request of a node as arguments of the script.

use redis::Cmd;
use tollgate::distributed::{ClassClaims, LeaseRequest};

/// The script of a store.
pub(super) const SCRIPT: &str = include_str!("store.lua");

/// Adds the arguments of a request to the command.
pub(super) fn add_arguments(command: &mut Cmd, ask: &LeaseRequest) {
    command.arg(format!("{:032x}", ask.node)).arg(ask.number).arg(u8::from(ask.leave)).arg(u8::from(ask.at_once));
    command.arg(ask.terms.to_string());
    let LeaseRequest { ttl, want, first, age, useful, rtt, back, .. } = *ask;
    let LeaseRequest { unused, last, rest, ahead, banked, allowance, minimum, held, .. } = *ask;
    for number in
        [ttl, want, first, age, useful, rtt, back, unused, last, rest, ahead, banked, allowance, minimum, held]
    {
        command.arg(number);
    }
    for number in ask.classes.iter().flat_map(ClassClaims::numbers) {
        command.arg(number);
    }
}
