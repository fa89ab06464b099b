//! Who was on each CPU of the server, and what each of its threads did: the events of a
//! recording turned into lines of time.
//!
//! One pass over the events ([`TimelineBuilder`]) gives two kinds of lines:
//!
//! - a [`CpuLine`] for each CPU: without gaps or overlaps, who was current and what ran on
//!   top ([`Segment`]). The kernel's interrupts nest (an interrupt in a softirq in a system
//!   call); here each nanosecond belongs to the innermost only;
//! - a [`WorkerLine`] for each thread of the server: on a core, preempted, woken, asleep and
//!   why ([`WorkerSpan`]).
//!
//! How events become lines:
//!
//! - `Switched` says who is current from then on. A system call of a thread proves the same
//!   (as in the matcher): it closes a blind window, in which a switch was missed.
//! - `Interrupt`, `Softirq` and `IdleLeft` come at the *end* of what they describe, with its
//!   length. What is inside came earlier and stays; what is left of the length is theirs.
//! - `LockTaken` also comes at its end. The thread may have slept meanwhile or spun: both
//!   become the lock's.
//! - `MajorFault` ends what `PageFault` began: all of it is the fault's, also where the thread
//!   did not sleep (the disk was fast, or the whole CPU stood still while it was asked).
//!   `StorageWaited` says the same of a read or a write.
//! - A **blind window** reaches from the last event that proves who was current to the event
//!   that contradicts it: interrupts seen inside it stay, everything else in it is
//!   [`Top::Blind`], unless whoever was current is a thread that is never seen to leave (see
//!   `unwatched`).
//! - A **stall** is a stretch of a CPU in which a thread was current and nothing at all was
//!   recorded, with evidence that the whole CPU stood still: see [`stalls`].
//!
//! Times of a line are those of the events; nothing is estimated here but the beginning of a
//! stall. A line takes about four bytes for a change.

mod builder;
mod busy;
mod codes;
mod column;
mod cpu;
mod line;
mod resent;
mod server_time;
mod sleep;
pub mod stalls;
mod state;
mod stretches;
#[cfg(test)]
mod tests;
mod unheard;
mod unwatched;
mod waits;

pub use builder::TimelineBuilder;
pub(crate) use busy::NET_RX;
pub use busy::{BusyTime, busy_service_time, busy_stretches};
pub use line::{
    CpuLine, OnCore, Seen, Segment, Segments, Spans, ThrottleWindow, Timeline, WorkerLine,
    WorkerSpan,
};
pub(crate) use line::{SegmentCursor, SpanCursor};
pub(crate) use server_time::ServerTime;
pub use sleep::{Sleep, call_name};
pub use stalls::{Stall, StallEvidence};
pub use state::{Top, WorkerState};
pub use stretches::Stretches;
pub(crate) use waits::{Policies, on_its_way_until, throttled_ns};
