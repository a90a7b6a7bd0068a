//! The checks of a configuration, and the limiter that is built from it.

use super::{Builder, Supplier};
use crate::clock::Time;
use crate::core::Core;
use crate::core::rovers::Rovers;
use crate::core::source::Source;
use crate::core::state::State;
use crate::core::supply::Supply;
#[cfg(feature = "state")]
use crate::error::StateError;
use crate::error::{ConfigError, QuotaError};
use crate::handle::Limiter;
use crate::name::quota_names;
use crate::quota::{check_cap, check_max_cost};
use std::sync::Arc;
use tokio::runtime::Handle;

impl Builder {
    /// Checks the configuration and builds the limiter. Its time begins now.
    ///
    /// # Errors
    ///
    /// Returns a [`ConfigError`] that names the wrong field and says how to correct it.
    pub fn build(self) -> Result<Limiter, ConfigError> {
        self.set_twice.check()?;
        if self.quotas.is_empty() && self.max_in_flight.is_none() {
            return Err(ConfigError::NoQuota);
        }
        for (index, quota) in self.quotas.iter().enumerate() {
            let possible = if self.classes { quota.check_not_sliding("classes") } else { Ok(()) };
            quota.check().and(possible).map_err(|reason| self.named(index, reason))?;
        }
        self.check_names()?;
        self.max_in_flight.map_or(Ok(()), check_cap)?;
        check_max_cost(self.max_cost)?;
        let supplied = self.supplied_quota()?;
        let supply = self.supply(supplied.is_some())?;
        let mut state = State::new(supply, self.max_in_flight, self.rovers_at);
        state.name_quotas(quota_names(self.names.iter()));
        state.queue.limit_to(self.max_waiting.unwrap_or(u64::MAX));
        if self.classes {
            state.enable_classes();
        }
        if let Some(tokens) = self.stride {
            state.stride.fix(tokens);
            state.note_sliding();
        }
        if let Some(tokens) = self.max_cost {
            state.set_max_cost(tokens);
        }
        let rovers = Rovers::new(self.rovers_at);
        self.start_dry_run(&mut state, &rovers, supplied.is_some())?;
        let time = self.clock.map_or_else(Time::tokio, Time::other);
        let supplier = match supplied {
            Some(_) if time.is_manual() => return Err(ConfigError::DistributedOutsideRuntime),
            Some((index, source, supplier)) => {
                state.use_source(index, source, self.rovers_at);
                Some(supplier)
            }
            None => None,
        };
        let core = Arc::new_cyclic(|weak| Core::new(rovers, state, time, self.fine, self.observers, weak.clone()));
        if let Some(supplier) = supplier {
            let host = Handle::try_current().map_err(|_| ConfigError::DistributedOutsideRuntime)?;
            supplier.task(&core).spawn(&host);
        }
        Ok(Limiter::from_core(core))
    }

    fn start_dry_run(&self, state: &mut State, rovers: &Rovers, distributed: bool) -> Result<(), ConfigError> {
        if !self.dry_run.any() {
            return Ok(());
        }
        if self.quotas.is_empty() {
            return Err(ConfigError::DryRunUnsupported { setting: "max_in_flight without a quota" });
        }
        if distributed {
            return Err(ConfigError::DryRunUnsupported { setting: "distributed" });
        }
        if self.dry_run.all {
            (0..self.quotas.len()).try_for_each(|index| state.set_dry_run(rovers, index.into(), true).map(drop))?;
        }
        self.dry_run.each().try_for_each(|which| state.set_dry_run(rovers, which, true).map(drop))
    }

    /// The supply to begin with.
    #[cfg(not(feature = "state"))]
    fn supply(&self, _is_supplied: bool) -> Result<Supply, ConfigError> {
        Ok(Supply::new(&self.quotas, self.max_in_flight, self.rovers_at))
    }

    /// The supply to begin with, or to continue from.
    #[cfg(feature = "state")]
    fn supply(&self, is_supplied: bool) -> Result<Supply, ConfigError> {
        let Some((state, wall_clock)) = &self.restore else {
            return Ok(Supply::new(&self.quotas, self.max_in_flight, self.rovers_at));
        };
        if is_supplied {
            return Err(StateError::Distributed.into());
        }
        Ok(state.supply(&self.quotas, self.max_in_flight, self.rovers_at, *wall_clock)?)
    }

    /// The index of the quota with external tokens, if there is one, its source, and its supplier.
    fn supplied_quota(&self) -> Result<Option<SuppliedQuota>, ConfigError> {
        match &self.suppliers[..] {
            [] => Ok(None),
            [(Some(index), supplier)] => {
                let source = supplier.source(&self.quotas[*index], self.classes);
                let source = source.map_err(|reason| self.named(*index, reason))?;
                Ok(Some((*index, source, Arc::clone(supplier))))
            }
            _ => Err(ConfigError::DistributedQuotaCount),
        }
    }

    /// The error of the quota with the index `index`.
    fn named(&self, index: usize, reason: QuotaError) -> ConfigError {
        reason.of(index, self.names[index].as_deref())
    }

    fn check_names(&self) -> Result<(), ConfigError> {
        for (index, name) in self.names.iter().enumerate() {
            if let Some(name) = name.as_ref().filter(|_| self.names[..index].contains(name)) {
                return Err(ConfigError::DuplicateName { name: name.to_string() });
            }
        }
        Ok(())
    }
}

/// The index of a quota with external tokens, their source, and the supplier that made it.
type SuppliedQuota = (usize, Box<dyn Source>, Arc<dyn Supplier>);
