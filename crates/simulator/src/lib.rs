//! The simulation laboratory of taillab: `taillab sim` and `taillab reproduce`.
//!
//! Pure: no input or output, no operating system, and no clock except to measure how long a simulation
//! took.
//!
//! [`simulation::Simulation`] specifies a queue with random arrivals, and [`run::Outcome`] is its result.
//! [`trace`] simulates a queue with recorded arrivals, and [`paper`] has the figures of the papers.
//!
//! A queueing discipline is a kernel in `kernels`, checked against the event loop and, where one exists, against an
//! exact result of `queueing`.
//!
//! `unsafe` is needed for vector instructions, chosen at run time, and a prefetch.

pub mod closed_loop;
pub mod error;
pub mod fork_join;
pub mod histogram;
mod kernels;
mod lane_job;
pub mod paper;
pub mod run;
pub mod sample;
pub mod simulation;
mod station;
pub mod trace;
