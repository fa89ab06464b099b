//! Queueing theory of taillab: arrivals, service, disciplines, exact results, the ideal queue.
//!
//! Pure: no input or output, no clock, no operating system.

pub mod arrivals;
pub mod ideal;
