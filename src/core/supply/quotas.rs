//! The schedules of a limiter's quotas.

use crate::core::schedule::Schedule;
use std::ops::{Deref, DerefMut};
use std::slice;

/// Nearly always one quota, which is stored inline: reading it does not wait for another memory access. None for a
/// limiter that has only an in-flight cap.
#[derive(Clone, Debug)]
pub(super) enum Quotas {
    One(Schedule),
    Many(Box<[Schedule]>),
}

impl FromIterator<Schedule> for Quotas {
    fn from_iter<I: IntoIterator<Item = Schedule>>(quotas: I) -> Self {
        let mut quotas = quotas.into_iter();
        match (quotas.next(), quotas.next()) {
            (Some(only), None) => Self::One(only),
            (first, second) => Self::Many(first.into_iter().chain(second).chain(quotas).collect()),
        }
    }
}

impl Deref for Quotas {
    type Target = [Schedule];

    #[inline]
    fn deref(&self) -> &[Schedule] {
        match self {
            Self::One(only) => slice::from_ref(only),
            Self::Many(many) => many,
        }
    }
}

impl DerefMut for Quotas {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Schedule] {
        match self {
            Self::One(only) => slice::from_mut(only),
            Self::Many(many) => many,
        }
    }
}
