//! The decision on a request: find the rule of each descriptor, charge it, and say what came out.

use crate::answer::{Answer, Invalid, MOST_DESCRIPTORS, fields, passing, span};
use crate::bucket::{Reason, Refusal};
use crate::meter::{Meter, add};
use crate::proto::{Code, CurrentLimit, Descriptor, DescriptorStatus, RateLimitRequest, RateLimitResponse};
use crate::rule::Rule;
use crate::rules::{Domain, Rules};
use crate::service::Service;
use crate::tally::Tally;
use crate::terms::{Limit, Outage, Refill};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

/// The rule that a descriptor has found; `None` if there is none, or another rule replaces it.
pub(crate) type Found<'r> = Option<Cow<'r, Arc<Rule>>>;

/// More than any limit has. Counters of 64 bits have room for a billion such requests.
const MOST_COST: u64 = 1 << 32;

/// Returns how many tokens a descriptor takes.
pub(crate) fn cost(request: &RateLimitRequest, descriptor: &Descriptor) -> u64 {
    let hits = descriptor.hits_addend.map(|hits| hits.value.min(MOST_COST));
    hits.unwrap_or_else(|| request.hits_addend.max(1).into())
}

impl Service {
    /// Decides on a request. It waits if the rules say so.
    ///
    /// # Errors
    ///
    /// Returns an [`Invalid`] if the request is none.
    ///
    /// # Cancel safety
    ///
    /// A request that still waits can be dropped at any time: it leaves all queues and takes no token. With a store, its
    /// descriptors are charged one after the other, and those before stay charged.
    pub async fn decide(&self, request: &RateLimitRequest) -> Result<Answer, Invalid> {
        let answer = match self.decide_now(request) {
            Ok(Some(answer)) => Ok(answer),
            // Boxed, so that the future of a request that is decided at once stays small.
            Ok(None) => Box::pin(self.decide_together(request)).await,
            Err(invalid) => Err(invalid),
        };
        match &answer {
            Ok(Answer { reason, .. }) => {
                add(&self.totals.requests, 1);
                if let Some(reason) = reason {
                    add(&self.totals.refused[*reason as usize], 1);
                }
            }
            Err(_) => add(&self.totals.errors, 1),
        }
        answer
    }

    /// Decides at once if each descriptor is charged by itself in memory. Otherwise returns `None`.
    fn decide_now(&self, request: &RateLimitRequest) -> Result<Option<Answer>, Invalid> {
        match request.descriptors.len() {
            _ if request.domain.is_empty() => return Err(Invalid::NoDomain),
            0 => return Err(Invalid::NoDescriptors),
            count if count > MOST_DESCRIPTORS => return Err(Invalid::TooManyDescriptors(count)),
            _ => {}
        }
        let rules = self.rules.load();
        let Some(domain) = rules.domains.get(&request.domain) else {
            add(&self.totals.unknown_domains, 1);
            let statuses = request.descriptors.iter().map(|_| passing(0)).collect();
            return Ok(Some(self.answer(statuses, None)));
        };
        if domain.all_or_nothing || self.maker.store.is_some() {
            return Ok(None);
        }
        let mut tally = Tally::default();
        let mut statuses = Vec::with_capacity(request.descriptors.len());
        if let [descriptor] = &*request.descriptors {
            let found = self.find(domain, request, descriptor)?;
            statuses.push(self.charge(found.as_deref(), descriptor, cost(request, descriptor), &mut tally));
        } else {
            for (found, descriptor) in self.find_all(domain, request)?.iter().zip(&request.descriptors) {
                statuses.push(self.charge(found.as_deref(), descriptor, cost(request, descriptor), &mut tally));
            }
        }
        Ok(Some(self.answer(statuses, tally.refusal())))
    }

    /// Returns true if the store is away and the rule lets requests pass then.
    fn passes_outage(&self, rule: &Rule, refusal: &Refusal) -> bool {
        let is_away = refusal.reason == Reason::StoreAway;
        if is_away {
            self.totals.note_outage(self.maker.now());
        }
        is_away && rule.terms.outage == Outage::Allow
    }

    pub(crate) fn find_all<'r>(
        &self,
        domain: &'r Domain,
        request: &RateLimitRequest,
    ) -> Result<Vec<Found<'r>>, Invalid> {
        let find = |descriptor| self.find(domain, request, descriptor);
        let mut found = request.descriptors.iter().map(find).collect::<Result<Vec<_>, _>>()?;
        let replaced: Vec<String> = found.iter().flatten().flat_map(|rule| rule.terms.replaces.clone()).collect();
        if !replaced.is_empty() {
            // An unlimited rule has nothing to replace.
            let is_replaced = |rule: &Rule| !rule.terms.is_unlimited() && replaced.contains(&rule.terms.name);
            found.iter_mut().for_each(|found| drop(found.take_if(|rule| is_replaced(rule))));
        }
        Ok(found)
    }

    fn find<'r>(
        &self,
        domain: &'r Domain,
        request: &RateLimitRequest,
        descriptor: &Descriptor,
    ) -> Result<Found<'r>, Invalid> {
        if let Some(limit) = &descriptor.limit {
            let rule =
                self.overrides.rule(&request.domain, &descriptor.entries, limit, self.manner.quota, &self.meters);
            return Ok(Some(Cow::Owned(rule.map_err(Invalid::Override)?)));
        }
        Ok(Rules::find(domain, &descriptor.entries).map(Cow::Borrowed))
    }

    /// Charges one descriptor, whatever the others say.
    pub(crate) fn charge(
        &self,
        found: Option<&Arc<Rule>>,
        descriptor: &Descriptor,
        cost: u64,
        tally: &mut Tally,
    ) -> DescriptorStatus {
        let Some(rule) = found else { return passing(0) };
        if rule.terms.is_unlimited() {
            add(&rule.meter(&descriptor.entries, &self.meters).total_hits, cost);
            return passing(u32::MAX);
        }
        let charged = if rule.terms.refuses_all() && cost > 0 {
            Err(Refusal::because(Reason::OverLimit))
        } else if rule.terms.refuses_all() {
            Ok(0)
        } else {
            rule.bucket(&self.maker).try_charge(&rule.key(&descriptor.entries), cost)
        };
        self.charged(rule, descriptor, cost, charged, tally)
    }

    /// Counts what came of a descriptor, and says it.
    pub(crate) fn charged(
        &self,
        rule: &Arc<Rule>,
        descriptor: &Descriptor,
        cost: u64,
        charged: Result<u64, Refusal>,
        tally: &mut Tally,
    ) -> DescriptorStatus {
        let meter = rule.meter(&descriptor.entries, &self.meters);
        let key = rule.key(&descriptor.entries);
        add(&meter.total_hits, cost);
        let charged = charged.or_else(|refusal| if self.passes_outage(rule, &refusal) { Ok(0) } else { Err(refusal) });
        match charged {
            Ok(left) => {
                self.count_granted(rule, &meter, cost, left);
                tally.pass(rule);
                self.status(rule, &key, Code::Ok, left, None)
            }
            Err(refusal) => {
                self.charge_rest(rule, &key, cost, &refusal, &meter);
                if rule.terms.shadow {
                    add(&meter.shadow_mode, cost.saturating_sub(refusal.left).max(1));
                    tally.pass(rule);
                    return self.status(rule, &key, Code::Ok, 0, Some(&refusal));
                }
                tally.refuse(rule, &refusal, &meter);
                self.status(rule, &key, Code::OverLimit, 0, Some(&refusal))
            }
        }
    }

    pub(crate) fn count_granted(&self, rule: &Rule, meter: &Meter, cost: u64, left: u64) {
        let (limit, near) = self.near(rule);
        let used = limit.saturating_sub(left);
        add(&meter.within_limit, cost);
        add(&meter.near_limit, used.saturating_sub(near.max(used.saturating_sub(cost))));
    }

    /// A refused request takes what is left of a window, as in the reference, whose counters go on counting.
    fn charge_rest(&self, rule: &Rule, key: &[u8], cost: u64, refusal: &Refusal, meter: &Meter) {
        let (limit, near) = self.near(rule);
        add(&meter.over_limit, cost.saturating_sub(refusal.left));
        add(&meter.near_limit, refusal.left.min(limit.saturating_sub(near)));
        if refusal.left > 0 && rule.terms.limits.iter().all(|limit| limit.refill.is_in_windows()) {
            // Another request may have taken it meanwhile.
            let _ = rule.bucket(&self.maker).try_charge(key, refusal.left);
        }
    }

    /// Returns the limit of a rule, and the part of it from which tokens count as near the limit.
    fn near(&self, rule: &Rule) -> (u64, u64) {
        let limit = rule.terms.limits.first().map_or(0, |limit| limit.capacity().into());
        (limit, (limit as f64 * self.manner.near) as u64)
    }

    pub(crate) fn status(
        &self,
        rule: &Arc<Rule>,
        key: &[u8],
        code: Code,
        left: u64,
        refusal: Option<&Refusal>,
    ) -> DescriptorStatus {
        if let (Code::OverLimit, Some(refusal), Some(refusals)) = (code, refusal, self.refusals.get()) {
            refusals.note(rule, key, refusal.reason, self.maker.now());
        }
        let limits = &rule.terms.limits;
        let number = match refusal {
            _ if limits.len() == 1 || rule.terms.refuses_all() => 0,
            Some(refusal) => refusal.limit.min(limits.len() - 1),
            None => rule.bucket(&self.maker).tightest(key),
        };
        let limit = limits[number];
        let reset = match limit.refill {
            Refill::Calendar(_) if !rule.terms.refuses_all() => rule.bucket(&self.maker).quotas(key)[number].more_in,
            _ => None,
        };
        DescriptorStatus {
            code: code as i32,
            current_limit: Some(CurrentLimit {
                requests_per_unit: limit.requests,
                unit: limit.unit as i32,
                name: rule.terms.name.clone(),
            }),
            limit_remaining: u32::try_from(left).unwrap_or(u32::MAX),
            duration_until_reset: Some(span(reset.unwrap_or_else(|| self.until_reset(limit, left, refusal)))),
        }
    }

    /// Returns the time until a window ends, in whole seconds as the reference does, until a request that is refused
    /// would pass, or until all tokens are there.
    fn until_reset(&self, limit: Limit, left: u64, refusal: Option<&Refusal>) -> Duration {
        let unit = limit.unit.seconds();
        match (limit.refill, refusal.and_then(|refusal| refusal.retry_after)) {
            (Refill::Windows | Refill::Calendar(_), _) => Duration::from_secs(unit - self.maker.now().as_secs() % unit),
            (_, Some(wait)) => wait,
            (Refill::Sliding, None) => Duration::from_secs(unit),
            (Refill::Bucket(burst), None) => {
                let missing = u64::from(burst).saturating_sub(left);
                Duration::from_secs_f64(missing as f64 * unit as f64 / f64::from(limit.requests.max(1)))
            }
        }
    }

    pub(crate) fn answer(
        &self,
        statuses: Vec<DescriptorStatus>,
        refusal: Option<(Reason, Option<Duration>)>,
    ) -> Answer {
        let fields = self.manner.fields.as_ref().and_then(|names| fields(names, &statuses));
        let refusal = refusal.filter(|_| {
            add(&self.totals.shadowed, self.manner.shadow.into());
            !self.manner.shadow
        });
        let code = if refusal.is_some() { Code::OverLimit } else { Code::Ok };
        let response = RateLimitResponse {
            overall_code: code as i32,
            statuses,
            response_headers_to_add: fields.unwrap_or_default(),
        };
        Answer { response, retry_after: refusal.and_then(|(_, wait)| wait), reason: refusal.map(|(reason, _)| reason) }
    }
}
