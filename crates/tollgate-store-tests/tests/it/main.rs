//! Which stores pass, and which do not.

mod wrong_stores;
