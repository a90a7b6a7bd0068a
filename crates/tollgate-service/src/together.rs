//! The decision on a request whose descriptors are charged all or none, or that takes time because of a store.

use crate::answer::{Answer, Invalid, passing};
use crate::bucket::{MOST_JOINED, Reason, Refusal, charge_all};
use crate::decide::cost;
use crate::meter::add;
use crate::proto::{Code, Descriptor, DescriptorStatus, RateLimitRequest};
use crate::rule::Rule;
use crate::rules::Domain;
use crate::service::Service;
use crate::tally::Tally;
use crate::terms::Outage;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

impl Service {
    /// Decides where that takes time: for a domain that is `all_or_nothing`, all rules are charged, or none is; with a
    /// store, one rule is charged after the other.
    pub(crate) async fn decide_together(&self, request: &RateLimitRequest) -> Result<Answer, Invalid> {
        let rules = self.rules.load_full();
        let no_domain = Domain::default();
        // A reload may have removed the domain just now.
        let domain = rules.domains.get(&request.domain).unwrap_or(&no_domain);
        let found = self.find_all(domain, request)?;
        let mut tally = Tally::default();
        let mut statuses = Vec::with_capacity(found.len());
        let (mut claims, mut shadows): (Vec<Claim<'_>>, Vec<Claim<'_>>) = Default::default();
        // Descriptors with one bucket have one claim.
        let mut claim_of = Vec::new();
        for (index, (found, descriptor)) in found.iter().zip(&request.descriptors).enumerate() {
            let cost = cost(request, descriptor);
            let is_limited = |rule: &Rule| !rule.terms.is_unlimited() && !rule.terms.refuses_all();
            match found.as_deref().filter(|rule| is_limited(rule)) {
                Some(rule) if domain.all_or_nothing && rule.terms.shadow => {
                    shadows.push(Claim { rule, key: rule.key(&descriptor.entries), cost, index });
                    statuses.push(passing(0));
                }
                Some(rule) if domain.all_or_nothing => {
                    let key = rule.key(&descriptor.entries);
                    // Values that share a limit have one bucket: the request waits in the class of the first.
                    let is_known = |claim: &Claim<'_>| {
                        Arc::ptr_eq(claim.rule, rule) && (rule.terms.classes.is_some() || claim.key == key)
                    };
                    let known = claims.iter().position(is_known);
                    match known {
                        Some(number) => claims[number].cost = claims[number].cost.saturating_add(cost),
                        None => claims.push(Claim { rule, key, cost, index }),
                    }
                    claim_of.push((index, known.unwrap_or(claims.len() - 1)));
                    statuses.push(passing(0));
                }
                Some(rule) if self.maker.store.is_some() => {
                    let key = rule.key(&descriptor.entries);
                    let (wait, began) = (self.patience(rule).unwrap_or_default(), self.maker.now());
                    let charged = rule.bucket(&self.maker).charge(&key, cost, wait).await;
                    if charged.is_ok() && !wait.is_zero() {
                        let waited = self.maker.now().saturating_sub(began);
                        rule.meter(&descriptor.entries, &self.meters).wait(waited);
                    }
                    let charged = charged.map_err(|refusal| self.named_outage(rule, refusal));
                    statuses.push(self.charged(rule, descriptor, cost, charged, &mut tally));
                }
                // These take no token that another rule's refusal would have to give back.
                _ => statuses.push(self.charge(found.as_deref(), descriptor, cost, &mut tally)),
            }
        }
        if claims.len() > MOST_JOINED {
            return Err(Invalid::TooManyTogether(claims.len()));
        }
        let was_charged = tally.refused == 0;
        let refused = if was_charged { self.charge_together(&claims, request).await } else { None };
        let is_granted = was_charged && refused.is_none();
        for (number, claim) in claims.iter().enumerate() {
            let refusal = refused.filter(|(refuser, _)| *refuser == number).map(|(_, refusal)| refusal);
            let descriptor = &request.descriptors[claim.index];
            statuses[claim.index] = self.status_together(claim, descriptor, refusal, is_granted, &mut tally);
        }
        // These refuse nothing, so they are charged when it is known that the request passes.
        for claim in shadows {
            let descriptor = &request.descriptors[claim.index];
            statuses[claim.index] = if is_granted {
                self.charge(Some(claim.rule), descriptor, claim.cost, &mut tally)
            } else {
                self.status_together(&claim, descriptor, None, false, &mut tally)
            };
        }
        for (index, number) in claim_of {
            statuses[index] = statuses[claims[number].index].clone();
        }
        Ok(self.answer(statuses, tally.refusal()))
    }

    /// Charges all claims, or none; returns the number of the claim that was refused.
    async fn charge_together(&self, claims: &[Claim<'_>], request: &RateLimitRequest) -> Option<(usize, Refusal)> {
        // The shortest patience holds: a client of that rule has given up then.
        let wait = claims.iter().filter_map(|claim| self.patience(claim.rule)).min().unwrap_or_default();
        let began = self.maker.now();
        let charged = match claims {
            [one] => {
                let bucket = one.rule.bucket(&self.maker);
                let charged = match bucket.try_charge(&one.key, one.cost) {
                    Err(_) if !wait.is_zero() => bucket.charge(&one.key, one.cost, wait).await,
                    charged => charged,
                };
                charged.map(drop).map_err(|refusal| (0, refusal))
            }
            several => {
                let mut limiters = Vec::with_capacity(several.len());
                for (number, claim) in several.iter().enumerate() {
                    match claim.rule.bucket(&self.maker).limiter(&claim.key) {
                        Ok(limiter) => limiters.push((limiter, claim.cost)),
                        Err(refusal) => return Some((number, refusal)),
                    }
                }
                charge_all(&limiters, wait).await
            }
        };
        let waited = self.maker.now().saturating_sub(began);
        for claim in claims {
            let meter = claim.rule.meter(&request.descriptors[claim.index].entries, &self.meters);
            if charged.is_ok() && claim.rule.terms.wait.is_some() {
                meter.wait(waited);
            }
        }
        charged.err()
    }

    /// Returns how long a request waits for a rule; `None` also if it passes whether the rule refuses it or not.
    fn patience(&self, rule: &Rule) -> Option<Duration> {
        rule.terms.wait.filter(|_| !rule.terms.shadow && !self.manner.shadow)
    }

    /// A request that waits for a store that is away comes too late, and the reason is the store.
    fn named_outage(&self, rule: &Rule, refusal: Refusal) -> Refusal {
        let is_late = matches!(refusal.reason, Reason::TooLate | Reason::OverLimit);
        let waited_for_store = rule.terms.outage == Outage::Wait && is_late;
        match &self.maker.store {
            Some(store) if waited_for_store && store.is_away() => Refusal { reason: Reason::StoreAway, ..refusal },
            _ => refusal,
        }
    }

    fn status_together(
        &self,
        claim: &Claim<'_>,
        descriptor: &Descriptor,
        refusal: Option<Refusal>,
        is_granted: bool,
        tally: &mut Tally,
    ) -> DescriptorStatus {
        let meter = claim.rule.meter(&descriptor.entries, &self.meters);
        let bucket = claim.rule.bucket(&self.maker);
        add(&meter.total_hits, claim.cost);
        match refusal {
            Some(refusal) => {
                add(&meter.over_limit, claim.cost);
                tally.refuse(claim.rule, &refusal, &meter);
                self.status(claim.rule, &claim.key, Code::OverLimit, refusal.left, Some(&refusal))
            }
            None => {
                let left = bucket.left(&claim.key);
                if is_granted {
                    self.count_granted(claim.rule, &meter, claim.cost, left);
                }
                tally.pass(claim.rule);
                self.status(claim.rule, &claim.key, Code::Ok, left, None)
            }
        }
    }
}

/// A claim on one bucket, for one or several descriptors.
struct Claim<'a> {
    rule: &'a Arc<Rule>,
    key: Cow<'a, [u8]>,
    cost: u64,
    /// The first of its descriptors.
    index: usize,
}
