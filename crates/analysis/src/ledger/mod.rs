//! The ledger: each nanosecond of each request has one cause.
//!
//! # What is charged
//!
//! For a request with the sojourn S = T6 − T1 the ledger says how many nanoseconds each
//! cause took ([`Entry::parts`]). The causes are exclusive and their sum is S, to the
//! nanosecond, whatever was or was not recorded.
//!
//! **T1 to T2, the stack.** On the CPU that received it, the request's own part of the
//! receive softirq is `stack_rx`, and so is the way there (interrupt, interprocessor
//! interrupt) for as long as is usual: twice the median of T2 − T1. What the softirq did for
//! packets before it, or for longer than twice that median, is `softirq`; other softirqs and interrupts are their own. Coming out of
//! a power state for longer than usual is `idle_exit`; if the softirq ran in `ksoftirqd`, which
//! is a thread, those that were on the CPU before it are `background`.
//!
//! **T2 to T6, the worker.** The worker is on a CPU, or waits for one, or sleeps. At each
//! moment its CPU either does *work* (some worker of the server serves a request, within
//! the time that this may take) or it is *held up*. Time held up goes onto a **delay tape** with
//! the cause and the culprit: another thread (`background`), an interrupt, a softirq, a
//! service that takes longer than it may (`slow_service`), idle though somebody waits
//! (`idle_exit`, `wakeup`, `throttled`), a lock, a stall, a blind window. A worker that sleeps in
//! the middle of a request adds pieces of its own (`blocked_*`). From one that may not run
//! (its CPU idled for long while it waited) nothing takes the CPU: all that time is
//! `throttled`. One that sleeps where it waits
//! for requests, though it has one, is about to be woken, or nobody saw that it was: it is
//! held up by what its CPU does. For the request itself, the
//! tape between its T2 and its T6 is what held it up directly; the rest of T2 to T6 is work:
//! its own (`service`, and from T5 on `stack_tx`), and that for requests before it.
//!
//! **How long a service may take.** t is the cost of a request on its core, and where the
//! receive softirq runs on that core, it is a part of t. So of each t the softirq may
//! take ρ = t − s, s the median time of a service, and the service itself t − ρ. What the
//! softirq leaves of ρ, a service may take as well, and so may the worker after T6 (the rest
//! of the sending, the way back to sleep). What takes more goes onto the tape. A sleep on a
//! timer in the middle of a request is service as far as its time reaches: that is how a
//! server with virtual workers works.
//!
//! # Inheritance
//!
//! Let B be the time in [T2, T6] in which the CPU worked for others, and W the request's
//! wait in the ideal queue (the measured arrivals, FIFO, t each). Up to W, waiting behind
//! others is `queue`. What is beyond, H = B − W, exists only because something held those
//! others up before: they should have been gone. It is charged to the causes of exactly
//! that: **the last H nanoseconds on the delay tape before T2**, within the busy period.
//!
//! *Why the last H.* Take one worker, D the departures and D* the ideal ones. Between two
//! departures the lag D − D* grows by what held the CPU up, and shrinks where the ideal
//! queue was idle while the real one caught up. H is the lag of the worker when the
//! request came in. The tape since the busy period's begin is longer than H by what was
//! caught up already; paid back first is what was lost first. So what is still owed is the
//! end of the tape. It makes the inheritance recursive (a delay is passed on from request
//! to request for as long as the worker lags, and no longer), exact in sum, and one
//! subtraction of two positions for each request: the delay of a whole busy period is
//! never walked twice.
//!
//! Three things come before inheritance in H:
//! - `order`: the excess over first come, first served with the same workers. The k-th
//!   response of a CPU leaves when it leaves; in the order of arrival it would have been that
//!   of the k-th request. From then on that request is late, and all that it still waits for
//!   (work for others, and whatever holds up the CPU meanwhile, since it would not have met
//!   that) is `order`. The culprit is the worker that overtook it. Its own service and its own
//!   sleeps stay what they are: in order they would have been the same.
//! - `imbalance`: the excess of a queue for each worker over one queue for all. The same
//!   requests, each as long as it kept its worker, are sent through one queue in the order of
//!   arrival; what a request waited longer than there is charged, from the work before it and
//!   then from slow services before it: it could have gone elsewhere. Waiting for what
//!   disturbed the worker is not: see `background`.
//! - receive softirqs for later packets (with the interrupts that raise them), within ρ, are
//!   not inherited: for the requests behind them they were work done early. For this one
//!   they are `softirq` as far as it would have met them anyway. While it was held up it
//!   met more of them: of their time, the share that the time held up has of the rest of
//!   [T2, T6] is charged to what held it up, in proportion.
//!
//! What is left of H when the tape holds no more is `unexplained`.
//!
//! # Excess
//!
//! The ideal sojourn is I = W + t. The excess by cause sums to max(0, S − I) for each
//! request: from the parts, I is taken off those that are *work* in the ideal as well, in this
//! order: `service`, `stack_tx`, `queue`, `stack_rx`, receive softirqs within ρ (t pays for the
//! stack, and W for the packets of the requests ahead). Whatever of I is then left (the
//! server was faster in its own work than t) is taken off all others in proportion. What
//! a request was faster than its ideal, max(0, I − S), stands apart ([`Entry::gain_ns`]).
//!
//! # Cost
//!
//! One pass over the lines of time and the stamps, in order of time; memory for the open
//! requests and the current busy periods only.

mod account;
mod advance;
mod balance;
mod calibrate;
mod cpu;
mod excess;
mod label;
mod lengths;
mod order;
mod parts;
mod received;
mod states;
mod sweep;
mod tape;
mod trace;
mod turns;
mod worker;

use std::num::NonZeroU32;

use taillab_model::explanation::Cause;
use taillab_model::{Monotonic, Nanos, RecordingContext, RequestKey, Stamps, Tid};

pub use calibrate::Usual;
pub(crate) use label::{GroupKey, of_storage};
pub use label::{Label, Labels, Who};
pub use parts::LOOK_BACK;
pub use trace::Piece;

use crate::matched::Matched;
use crate::timeline::Timeline;

/// What the ledger needs beside the recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerOptions {
    /// t: what a request costs its core.
    pub service_time: Nanos,
    /// Workers of the ideal queue.
    pub workers: NonZeroU32,
    /// Requests due earlier are warm-up: followed, and not given out.
    pub measure_from: Monotonic,
    /// Requests with at least this sojourn are taken apart in order of time
    /// ([`Entry::pieces`]).
    pub trace_from: Nanos,
}

/// One request's account.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    /// Its place among the matched requests of the whole recording.
    pub place: usize,
    /// When it was where.
    pub stamps: Stamps,
    /// Whose it was.
    pub key: RequestKey,
    /// The thread that served it; 0 where that is not known.
    pub worker: Tid,
    /// T6 − T1.
    pub sojourn_ns: u64,
    /// The same in the ideal queue.
    pub ideal_ns: u64,
    /// The same in the ideal queue of its own worker alone.
    pub own_queue_ideal_ns: u64,
    /// How far it was faster than its ideal: max(0, ideal − sojourn).
    pub gain_ns: u64,
    /// What it was spent on: the lengths, none of them zero, sum to `sojourn_ns`.
    pub parts: &'a [(Label, u64)],
    /// The excess by cause: the lengths, none of them zero, sum to max(0, sojourn − ideal).
    pub excess: &'a [(Label, u64)],
    /// A later arrival that was served before it, and by whom.
    pub overtaken_by: Option<(usize, Tid)>,
    /// Its parts in order of time, where it was asked for; their lengths sum to `sojourn_ns`.
    pub pieces: &'a [Piece],
}

impl Entry<'_> {
    /// The cause with the largest part of the excess; `None` without one.
    pub fn main_cause(&self, labels: &Labels) -> Option<Cause> {
        let mut sums = [0; Cause::ALL.len()];
        for &(label, ns) in self.excess {
            sums[labels.cause(label) as usize] += ns;
        }
        let largest = Cause::ALL
            .into_iter()
            .max_by_key(|cause| sums[*cause as usize])?;
        (sums[largest as usize] > 0).then_some(largest)
    }
}

/// What was counted beside the accounts.
#[derive(Clone, Debug)]
pub struct Ledger {
    /// The names of the labels.
    pub labels: Labels,
    /// How often each label held up work while a request was there.
    pub episodes: Vec<u64>,
    /// For how long, in all.
    pub held_up_ns: Vec<u64>,
    /// Time on a core in service, for each worker with requests.
    pub served_ns: Vec<(Tid, u64)>,
}

/// Follows all requests through the timeline and gives each one's account to `sink`, in
/// order of T6.
pub fn run(
    matched: &Matched,
    timeline: &Timeline,
    context: &RecordingContext,
    options: &LedgerOptions,
    sink: impl FnMut(&Entry<'_>, &Labels),
) -> Ledger {
    let usual = Usual::of(matched, timeline, options.service_time);
    let mut follower = Follower::new(context, options, usual);
    follower.follow(matched, timeline, END, sink);
    follower.finish()
}

/// The end of time: nothing comes after the last part of a recording.
pub const END: Monotonic = Monotonic::from_nanos_since_boot(u64::MAX);

/// The ledger of a recording that comes in parts.
///
/// What it charges is what [`run`] charges for the recording as a whole with the same
/// [`Usual`], as long as the parts' lines of time agree where they overlap.
pub struct Follower(sweep::Sweep);

impl Follower {
    /// Before the first part.
    pub fn new(context: &RecordingContext, options: &LedgerOptions, usual: Usual) -> Self {
        Self(sweep::Sweep::new(context, options, usual))
    }

    /// From now on requests with at least this sojourn are taken apart in order of time.
    pub const fn trace_from(&mut self, sojourn: Nanos) {
        self.0.options.trace_from = sojourn;
    }

    /// Follows the requests of the next part, which came in before `upto`, until then.
    ///
    /// Requests that are in the server at `upto` are given to `sink` in a later part. Its
    /// timeline reaches back to [`LOOK_BACK`] before `upto` at least, and to the T1 of the
    /// oldest request that is in the server then.
    pub fn follow(
        &mut self,
        matched: &Matched,
        timeline: &Timeline,
        upto: Monotonic,
        mut sink: impl FnMut(&Entry<'_>, &Labels),
    ) {
        self.0.follow(matched, timeline, upto, &mut sink);
    }

    /// The counts over all parts.
    pub fn finish(self) -> Ledger {
        self.0.finish()
    }
}
