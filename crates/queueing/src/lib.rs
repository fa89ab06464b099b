//! Queueing theory of taillab: arrivals, service, disciplines, exact results, the ideal queue.
//!
//! Pure: no input or output, no operating system, and no clock but to say how long a
//! simulation took.
//!
//! [`simulation::Simulation`] specifies a queue with random arrivals and
//! [`run::Outcome`] is what comes of it; [`trace`] plays recorded arrivals, [`replay`] follows
//! single requests, [`exact`] knows what theory knows.

pub mod arrivals;
pub mod discipline;
pub mod exact;
pub mod fanout;
pub mod fork_join;
mod grid;
pub mod histogram;
pub mod ideal;
pub mod isa;
mod kernels;
mod lane_job;
pub mod notation;
pub mod paper;
mod random;
pub mod replay;
pub mod run;
pub mod sample;
pub mod service;
pub mod simulation;
pub mod trace;
pub mod unavailable;
