//! All tests of the service.

mod asked;
mod ports;
mod problems;
mod reference;
mod reloading;
mod settings;
