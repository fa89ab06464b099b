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
//! the time that this may take) or it is *held up*. Time held up goes into a **delay history** with
//! the cause and the culprit: another thread (`background`), an interrupt, a softirq, a
//! service that takes longer than it may (`slow_service`; what of it a slower CPU explains, which
//! `speed` finds, is `slow_cpu`), idle though somebody waits
//! (`idle_exit`, `wakeup`, `throttled`), a lock, a stall, a blind window. A worker that sleeps in
//! the middle of a request adds its own pieces (`blocked_*`), and so does the way of the wake-up that
//! ends its sleep: whoever has the CPU until the interrupt comes that tells it to make room only fills
//! that time. From one that may not run
//! (its CPU idled for long while it waited; it is real-time, and an ordinary thread had the CPU for
//! long; or its group's own account says so) nothing takes the CPU: all that time is `throttled`. One
//! that sleeps where it waits for requests, though it has one, is about to be woken, or its wake-up was not seen: it is
//! held up by what its CPU does. For the request itself, the
//! history between its T2 and its T6 is what held it up directly; the rest of T2 to T6 is work:
//! its own (`service`, and from T5 on `stack_tx`), and that for requests before it.
//!
//! **How long a service may take.** t is the cost of a request on its core, and where the
//! receive softirq runs on that core, it is a part of t. So of each t the softirq may
//! take ρ = t − s, s the median time of a service, and the service itself t − ρ. What the
//! softirq leaves of ρ, a service may take as well, and so may the worker after T6 (the rest
//! of the sending, the way back to sleep). What takes more goes into the history. A sleep on a
//! timer in the middle of a request is service as far as its time reaches: that is how a
//! server with virtual workers works.
//!
//! # Inheritance
//!
//! Let B be the time in [T2, T6] in which the CPU worked for others, and W the request's
//! wait in the ideal queue (the measured arrivals, FIFO, t each). Up to W, waiting behind
//! others is `queue`. What is beyond, H = B − W, exists only because something held those
//! others up before: they should have been gone. It is charged to the causes of exactly
//! that: **the last H nanoseconds on the delay history before T2**, within the busy period.
//!
//! *Why the last H.* Take one worker, D the departures and D* the ideal ones. Between two
//! departures the lag D − D* grows by what held the CPU up, and shrinks where the ideal
//! queue was idle while the real one caught up. H is the lag of the worker when the
//! request came in. The history since the busy period's begin is longer than H by what was
//! caught up already; paid back first is what was lost first. So what is still owed is the
//! end of the history. It makes the inheritance recursive (a delay is passed on from request
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
//! What is left of H when the history holds no more is `unexplained`.
//!
//! # Excess
//!
//! The ideal sojourn is I = W + t. The excess by cause sums to max(0, S − I) for each
//! request: from the parts, I is taken off those that are *work* in the ideal as well, in this
//! order: `service`, `stack_tx`, `queue`, `stack_rx`, receive softirqs within ρ (t pays for the
//! stack, and W for the packets of the requests ahead). Whatever of I is then left (the
//! server was faster in its own work than t) is taken off all others in proportion. What
//! a request was faster than its ideal, max(0, I − S), is kept apart ([`Entry::gain_ns`]).
//!
//! # A sample of requests
//!
//! Where T2 to T5 were recorded of a share of the requests, the others are followed as well, so
//! that what they hold up is seen: T2 is the usual time after T1, and the service begins when the
//! worker has answered the request before and is on a core. Shares of causes are made of the
//! requests with all stamps alone ([`Entry::asked`]).
//!
//! # Cost
//!
//! One pass over the lines of time and the stamps, in order of time; memory for the open
//! requests and the current busy periods only.
//!
//! What held a CPU up is kept once, in its history. A request keeps two positions in it, and
//! its account takes the sums by label between them: the logarithm of how much happened in its
//! time, times the number of labels. So a request costs about the same whether it finds none
//! before it or sixteen thousand. Only the slowest are told piece by piece, from one trace of
//! their worker.
//!
//! # Files
//!
//! [`Attribution`] takes the events of requests in order of time (`events`) and knows those that
//! are in the server (`requests`). `server` follows the CPUs (`cpu`) and workers (`worker`)
//! between the events and writes their delay histories (`history`) and, while a slow request is
//! there, their traces (`trace`). `queues` are those that the server is compared with. At T6 the
//! pure function `account::draw_up` gives the account.

mod account;
mod attribution;
mod baseline;
mod begins;
mod cpu;
mod entry;
mod events;
mod history;
mod label;
mod lengths;
mod pieces;
mod queues;
mod receive;
mod requests;
mod server;
mod speed;
mod trace;
mod worker;

pub use attribution::{Attribution, LOOK_BACK};
pub use baseline::Baseline;
pub use entry::{Entry, Ledger, LedgerOptions};
pub(crate) use label::{GroupKey, of_storage, of_top};
pub use label::{Label, Labels, Who};
pub use pieces::Piece;
