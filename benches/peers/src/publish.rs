//! Tables.
use crate::Failure;
use crate::results::Results;
use std::path::Path;
pub fn publish(_: &Results, _: &Path) -> Result<(), Failure> {
    Ok(())
}
