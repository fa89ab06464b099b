//! Random numbers that are the same on every machine and at every vector width.

pub mod lanes;
pub mod law;
pub(crate) mod math;
