//! The probe on the running kernel: real servers, real packets.
//!
//! Needs root and a kernel with BTF; some modules need more and say so. Where something is
//! missing the tests fail, unless `TAILLAB_SKIP_LIVE=1` allows them to be skipped.
//! One module alone: `make live ARGS="--only streams::"`.

mod agreement;
mod clients;
mod disturbances;
mod drain;
mod framing;
mod network;
mod others;
mod send_limits;
mod servers;
mod slices;
mod stamps;
mod storage;
mod streams;
mod testbed;
mod upstreams;
mod ways;
