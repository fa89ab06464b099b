//! `taillab trace` on real servers that run on their own, under the load of `taillab load`.

mod endings;
mod forks;
mod namespaces;
pub mod rig;
mod sampled;
mod screen;
mod servers;
mod unanswered;
mod upstreams;
