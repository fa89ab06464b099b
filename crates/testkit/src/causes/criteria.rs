//! The thresholds of the judge, fixed before anything is measured. `docs/bench-causes.md` explains
//! them.

use taillab_model::explanation::Cause;

/// How far the charge may be from the delay that the client saw, on either side, as a share of it.
pub(super) const CHARGE_TOLERANCE: f64 = 0.10;
/// How far the number of events, and their length together, may be from what the injection's log says.
pub(super) const EVENTS_TOLERANCE: f64 = 0.10;
/// How far the second ideal may be from the delay that the client saw. It leaves out what other disturbances cost in the
/// longer queue.
pub(super) const OWN_WORK_TOLERANCE: f64 = 0.20;
/// How far what slow requests cost, by their shadow, may be from the delay that the client saw. It is the same cost as the
/// charge's, summed up over requests, and may be as far off. What it leaves out takes less than a hundredth of this: a
/// slow request delays about as many others by each length up to its own, so those that wait for less than 1/50 of it,
/// which are not counted, have 1/2,500 of all delay. What packets and interrupts cost in the longer queue, a few per cent,
/// is not theirs.
pub(super) const SHADOW_TOLERANCE: f64 = CHARGE_TOLERANCE;
/// How far a forecast may be from what is then measured, on either side, as a share of it.
pub(super) const FORECAST_TOLERANCE: f64 = 0.20;
/// Pairs are added until they decide, so an interval is looked at up to five times. It is this much wider than one of
/// 95 %, so that all looks together are wrong as rarely (Pocock 1977).
pub(super) const LOOKS: f64 = 1.2;
/// Intervals of forecasts are of 95 %. Fewer than this share of those that contain what is then measured fails.
pub(super) const INTERVALS_HOLD: f64 = 0.90;
/// More than this share must contain it for certain.
pub(super) const INTERVALS_HOLD_AT_LEAST: f64 = 0.50;
/// The largest share of an undisturbed server's excess that may be charged to one of [`IMPOSSIBLE`].
pub(super) const IMPOSSIBLE_TOLERANCE: f64 = 0.05;
/// The largest correlation of the charges with a truth that is shifted in time.
pub(super) const MOST_BY_CHANCE: f64 = 0.25;

/// A block is contaminated where the hypervisor took more than this share of its CPU time, or the
/// generator was late for more than this share of its length.
pub(super) const MOST_CONTAMINATED: f64 = 0.05;
/// With a larger share of contaminated pairs the verdict is inconclusive.
pub(super) const MOST_CONTAMINATED_PAIRS: f64 = 0.5;

/// Causes that cannot delay one worker on one datagram socket unless they are injected.
pub(super) const IMPOSSIBLE: [Cause; 7] = [
    Cause::Order,
    Cause::Imbalance,
    Cause::BlockedLock,
    Cause::BlockedFault,
    Cause::BlockedIo,
    Cause::Throttled,
    Cause::Retransmit,
];

/// The percentiles at which forecasts are tested.
pub(super) const QUANTILES: [f64; 3] = [0.5, 0.99, 0.999];
