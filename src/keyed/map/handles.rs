//! Handles: the live entry of a key as a limiter in the hands of the user.

use super::{Entered, Map};
use crate::Limiter;
use crate::error::ConfigError;
use crate::keyed::ToKey;
use std::hash::{BuildHasher, Hash};

impl<K, S> Map<K, S>
where
    K: Hash + Eq + Clone,
    S: BuildHasher,
{
    /// The live entry of the key, which is created if there is none, as a limiter.
    pub(in crate::keyed) fn limiter(&self, key: &(impl ToKey<K> + ?Sized)) -> Result<Limiter, ConfigError> {
        if self.parent.is_some() {
            return Err(ConfigError::KeyUnderParent);
        }
        let entered = self.enter(key, self.hash(key), false, |shard, request, context| {
            let live = shard.live(request, context)?;
            shard.expect_handles(context);
            Ok((live, shard.is_closed()))
        });
        match entered {
            Entered::Done((live, is_closed)) => {
                if is_closed {
                    live.close_anyway();
                }
                Ok(Limiter::from_core(live))
            }
            Entered::Live(_) => Err(self.no_place()),
            Entered::Refused(error) => Err(error),
        }
    }
}
