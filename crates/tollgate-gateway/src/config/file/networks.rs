//! The tables `networks`.

use std::time::Duration;

use tollgate::Quota;
use toml::Spanned;

use super::super::problem::{Problem, Source};
use super::rules::RuleTable;
use crate::request::name::Name;
use crate::request::network::Network;
use crate::request::networks::{Block, Networks};
use crate::request::rule::RuleSet;

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NetworkTable {
    cidr: Spanned<String>,
    quota: Option<Spanned<Quota>>,
    address_quota: Option<Spanned<Quota>>,
    pub(super) distributed: Option<Spanned<bool>>,
    dry_run: Option<Spanned<bool>>,
    in_flight: Option<Spanned<u64>>,
    refuse: Option<Spanned<bool>>,
}

impl NetworkTable {
    /// Adds the block to `networks`, and its limits to `rules`. `most` is the highest cost of all routes.
    pub(super) fn check(
        &self,
        source: &Source<'_>,
        most: u64,
        max_wait: Duration,
        networks: &mut Networks,
        rules: &mut RuleSet,
    ) -> Result<(), Problem> {
        let network = parse(source, &self.cidr)?;
        let name = Name::new(&format!("network {}", self.cidr.as_ref()));
        let limits = self.limits();
        let refuse = self.refuse.as_ref().filter(|refuse| *refuse.as_ref());
        let block = match refuse {
            Some(refuse) if !limits.is_empty() => {
                let what = "a block that is refused needs no limits: leave out `refuse`, or the limits";
                return Err(source.problem(Some(refuse.span()), what));
            }
            Some(_) => {
                limits.check_unused(source)?;
                Block::Refused(name)
            }
            None if limits.is_empty() => {
                limits.check_unused(source)?;
                Block::Free
            }
            None => {
                limits.check_values(source)?;
                rules.insert(name, limits.check(source, name, most, max_wait)?);
                Block::Limited(name)
            }
        };
        if networks.add(network, block) {
            return Ok(());
        }
        let what = format!("`{}` is there twice: write one block with all its limits", self.cidr.as_ref());
        Err(source.problem(Some(self.cidr.span()), what))
    }

    fn limits(&self) -> RuleTable<'_> {
        let Self { quota, address_quota, in_flight, distributed, dry_run, .. } = self;
        RuleTable {
            quota: quota.as_ref(),
            in_flight: in_flight.as_ref(),
            each: address_quota.as_ref(),
            distributed: distributed.as_ref(),
            dry_run: dry_run.as_ref(),
        }
    }
}

/// Parses a block of addresses.
pub(super) fn parse(source: &Source<'_>, text: &Spanned<String>) -> Result<Network, Problem> {
    text.as_ref().parse().map_err(|()| {
        let what = format!("`{}` is not a block of addresses: write one like \"10.0.0.0/8\"", text.as_ref());
        source.problem(Some(text.span()), what)
    })
}
