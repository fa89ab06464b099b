//! t, the service time: what a request costs the server while it never waits for work.
//!
//! The recording itself shows t in the server's [busy periods](busy_periods), at any load and in any hour,
//! with the probe attached as in the measurement. Where hardly any request ever had to wait, only the
//! [busy time](busy_time) per request is known. It includes falling asleep and waking up, so it is an
//! upper bound.

pub mod busy_periods;
pub mod busy_time;
mod departures;
mod groups;
