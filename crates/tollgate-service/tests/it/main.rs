//! All tests of the service.

mod asked;
mod page;
mod ports;
mod problems;
mod proxies;
mod reference;
mod reloading;
mod settings;
mod waiting;
