//! Random numbers that are the same on every machine and at every vector width.

pub(crate) mod lanes;
pub(crate) mod law;
pub(crate) mod math;
