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
//! interrupt) up to the usual time: twice the median of T2 − T1. What the softirq did for packets
//! before it, or beyond twice that median, is `softirq`; other softirqs and interrupts are charged to
//! themselves. Leaving a power state for longer than usual is `idle_exit`. If the softirq ran in
//! `ksoftirqd`, which is a thread, the threads that had the CPU before it are `background`.
//!
//! **T2 to T6, the worker.** The worker is on a CPU, or waits for one, or sleeps. At each
//! moment its CPU either does *work* (some worker of the server serves a request, within
//! the time that this may take) or it is *held up*. Time held up goes into a **delay history** with
//! its cause and culprit: another thread (`background`), an interrupt, a softirq, a service that takes
//! longer than it may (`slow_service`), the part of such a service and of receiving that a slower CPU
//! explains (`slow_cpu`, see `speed`), idle time while somebody waits (`idle_exit`, `wakeup`,
//! `throttled`), a lock, a stall, a blind window.
//!
//! A worker that sleeps in the middle of a request adds pieces of its own (`blocked_*`). Where a thread of its own
//! server wakes it, each moment of the sleep is charged to the end of the chain of wake-ups
//! (`src/chain.rs`): to a disk, another server, or a thread that has a CPU. They include the
//! delivery of the wake-up that ends the sleep: a thread that runs until the rescheduling interrupt arrives
//! does not delay the worker. A worker may be held back: its CPU was idle for a long time while it waited,
//! or it is real-time and an ordinary thread ran for a long time, or its group's own accounting says so.
//! Then all that time is `throttled`, whatever else ran on the CPU. A worker that sleeps as if waiting for
//! requests, although it has one, is about to be woken, or its wake-up was not seen: it is held up by
//! whatever its CPU does. So does a thread of a pool that sleeps in `futex` before it has read the request:
//! it is idle, and not blocked. If it has read the request, and sleeps where sockets are waited for, it waits
//! for another server (`upstream`), unless a thread of its own process woke it. If it has begun to answer, it
//! waits for the client (`client`): in a call that writes, or one that waits for sockets, or in any other if the
//! response leaves meanwhile. A worker that turns to other requests while a response of its own has yet to leave
//! is done with that one when it first sleeps, or reads or writes for another: from then to T6 is `client`, and
//! none of the worker's history is charged to it.
//!
//! While the whole server, or the worker's process, stands still ([`pauses`]), whatever holds up a worker is
//! `pause`.
//!
//! For a request, the history between its T2 and its T6 is what held it up directly. The rest of T2 to
//! T6 is work: its own (`service`, and from T5 on `stack_tx`), and that for requests before it.
//!
//! **How long a service may take.** t is the cost of a request on its core. If the receive softirq runs
//! on that core, it is a part of t. So of each t the softirq may take ρ, and the service itself may take
//! t − ρ. The server's busy periods show both parts; without them, ρ = t − s, where s is the median time of a
//! service. What the softirq leaves of ρ may be used by the service, and by the worker after T6 (the rest
//! of the sending, going back to sleep). Time beyond that goes into the history. A sleep on a timer in the middle of a request counts as service up to
//! the time that a service may take: this is how a server with virtual workers works.
//!
//! # Inheritance
//!
//! Let B be the time in [T2, T6] in which the CPU worked for others, and W the request's
//! wait in the ideal queue (the measured arrivals, FIFO, t each). Up to W, waiting behind
//! others is `queue`. The rest, H = B − W, exists only because something held those others up
//! before: they should have left already. It is charged to the causes of exactly that delay:
//! **the last H nanoseconds of the delay history before T2**, within the busy period.
//!
//! *Why the last H.* Take one worker, D the departures and D* the ideal ones. Between two departures the
//! lag D − D* grows by what held the CPU up, and shrinks where the ideal queue was idle while the real one
//! caught up. H is the lag of the worker when the request arrived. The history since the beginning of the
//! busy period is longer than H by the delay that was caught up since; the oldest delay is caught up first.
//! So the delay that remains is the end of the history. This makes the inheritance recursive (a delay is
//! passed on from request to request for as long as the worker lags, and no longer) and exact in sum. It
//! takes one subtraction of two positions for each request: the delay of a busy period is never walked
//! twice.
//!
//! **Where several workers take from one queue** ([`SharedQueues`]), a request that one of them serves waits for what
//! holds up the others as well. So the queue has a history of its own: the capacity that all its workers lost. What a
//! request waits for until a worker is free for it is charged from that history, and only what comes then is charged
//! directly, from the history of its worker. `common` has the rule, which is the one above for c = 1, and its argument.
//! There, `imbalance` comes after inheritance: it is what a request waits while nothing was lost and a worker was idle.
//!
//! Four things come before inheritance in H:
//! - `order`: the excess over first come, first served by the same worker. Take the k-th response
//!   of a worker. In the order of arrival, it would have been that of the k-th request. From then on that
//!   request is late, and whatever it still waits for is `order`: the worker's work for others, and anything
//!   that holds it up meanwhile, since the request would have left before. What its own service brings about
//!   (too much work, page faults, sleeps, a slower CPU) is not `order`: it would have been the same. Nor are
//!   times in which nothing of the server could run: a quota, a pause, a stall.
//! - `own_threads`: while its worker waits for the CPU, other workers of the server work there. That is
//!   charged directly, beyond what the ideal queue waits. Other threads of the server that have the CPU are
//!   `own_threads`, too.
//! - `imbalance`: the excess of separate queues over one queue for all workers. The same requests, each
//!   with the time for which it kept its worker, are sent through one queue in the order of arrival. If
//!   a request really waited longer, the difference is charged: first from the work before it, then
//!   from slow services before it, since it could have gone to another worker. Waiting for what
//!   disturbed the worker is not charged: see `background`.
//! - receive softirqs for later packets (with the interrupts that raise them), within ρ, are
//!   not inherited: for the requests behind them they were work done early. For this request they are
//!   `softirq`, as far as it would have met them anyway. While it was held up it met more of them. So a
//!   share of their time is charged to what held it up, in proportion: the share that the time held up
//!   has in the rest of [T2, T6].
//!
//! What is left of H when the history ends is `unexplained`.
//!
//! # Excess
//!
//! The ideal sojourn is I = W + t − e, where e is the part of t that is spent after the response has left: the
//! next request waits for it. The excess by cause sums to max(0, S − I) for each request: from the
//! parts, I is subtracted from those that are *work* in the ideal as well, in this order: `service`,
//! `stack_tx`, `queue`, `stack_rx`, receive softirqs within ρ (t pays for the stack, and W for the packets
//! of the requests ahead). Whatever of I is then left (the server was faster in its own work than t) is
//! subtracted from all others in proportion. If a request was faster than its ideal, the difference max(0,
//! I − S) is given separately ([`Entry::gain_ns`]).
//!
//! # Slices
//!
//! If everything but T1 and T6 was recorded in slices of time ([`slices`](crate::slices)), the time between
//! them is like a blind window: it is a delay whose cause is `unobserved`, and may be inherited like any
//! other. So if a request in a slice waits because of something before the slice, its account shows that.
//! All requests are followed, and shares of causes are computed from the sample ([`Entry::asked`]).
//!
//! # Cost
//!
//! One pass over the timelines and the stamps, in order of time. Memory holds only the open requests and
//! the current busy periods.
//!
//! The delays of a CPU are stored once, in its history. A request has two positions in it, and its
//! account needs the sums by label between them. Their cost is the logarithm of the number of events in
//! between, times the number of labels. So a request costs about the same whether it finds no request
//! before it or sixteen thousand. Only the slowest requests are described piece by piece, from a trace
//! of their worker. A request of a queue that c workers share takes time in proportion to c, since all of them
//! are brought up to the present when it comes and when a worker is free for it.
//!
//! # Files
//!
//! [`Attribution`] handles the events of requests in order of time (`events`) and keeps the requests that
//! are in the server (`requests`). Between the events, `server` follows the CPUs (`cpu`) and workers
//! (`worker`) and writes their delay histories (`history`) and, while a slow request is in the server,
//! their traces (`trace`). `sharing` finds which workers share a queue, and `common` has the history of such a queue.
//! `pauses` finds when the whole server stood still, and `disturbances` joins the pieces of a delay to what happened.
//! `queues` has the queues that the server is compared with. At T6, `account::draw_up` computes the account; it does
//! not change the state of the server.

mod account;
mod attribution;
mod baseline;
mod common;
mod cpu;
mod delayed_acks;
mod disturbances;
mod entry;
mod events;
mod history;
mod label;
mod lengths;
mod pauses;
mod pieces;
mod queues;
mod receive;
mod requests;
mod send_evidence;
mod server;
mod service_starts;
mod sharing;
mod trace;
mod worker;

pub use attribution::{Attribution, LOOK_BACK};
pub use baseline::Baseline;
pub use disturbances::EventLengths;
pub use entry::{Entry, Ledger, LedgerOptions};
pub use label::{CulpritId, Label, Labels};
pub(crate) use label::{GroupKey, of_storage, of_top, softirq_name};
pub use pieces::Piece;
pub use sharing::SharedQueues;
