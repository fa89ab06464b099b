//! When a kind is found, a forecast has come true, and a measurement is contaminated.
//! `docs/bench-causes.md` explains the figures.

use taillab_model::explanation::Cause;

/// The least share of the injected delay that must be charged to the right cause and culprit.
pub(super) const LEAST_RIGHT: f64 = 0.90;
/// The most that may be charged to a culprit that only the injection brought, as a multiple of
/// what the requests would be spared without it.
pub(super) const MOST_CHARGED: f64 = 1.10;
/// The largest share of the excess of an undisturbed run that may be charged to one of
/// [`IMPOSSIBLE`].
pub(super) const MOST_WRONG: f64 = 0.05;
/// The largest share of the excess above p99 that may stay unexplained.
pub(super) const MOST_UNEXPLAINED: f64 = 0.10;
/// A source that delayed the requests by less than this share of what the largest source did is
/// not judged (arming a timer, say).
pub(super) const LEAST_SHARE: f64 = 0.02;

/// What one worker on one datagram socket cannot suffer from, unless somebody injects it.
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
/// The largest relative error of a forecast that has come true.
pub(super) const NEAR: f64 = 0.20;

/// The largest share of what is judged that the machine may have caused: half of the tenth that may
/// be charged wrongly.
pub(super) const MOST_CONTAMINATED: f64 = 0.05;
/// The most that the machine may cost in one measurement of a pair, as a share of what the
/// injection costs: percentiles then move by less than [`NEAR`].
pub(super) const MOST_CONTAMINATED_PAIR: f64 = 0.1;
