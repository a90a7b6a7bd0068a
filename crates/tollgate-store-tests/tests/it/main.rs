//! Which stores pass and which do not, and what the rules are.

mod rules;
mod wrong_stores;
