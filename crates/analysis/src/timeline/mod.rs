//! The timeline: who was on each CPU of the server, and what each of its threads did, from the events
//! of a recording.
//!
//! One pass over the events ([`TimelineBuilder`]) gives a line for each CPU and for each thread:
//!
//! - a [`CpuLine`] for each CPU: without gaps or overlaps, who was current and what ran on
//!   top ([`Segment`]). The kernel's interrupts nest (an interrupt in a softirq in a system
//!   call); here each nanosecond belongs to the innermost only;
//! - a [`WorkerLine`] for each thread of the server: on a core, preempted, woken, asleep and
//!   why ([`WorkerSpan`]).
//!
//! What the events mean for the lines:
//!
//! - `Switched` says who is current from then on. A system call of a thread proves the same
//!   (as in the matcher): it closes a blind window, in which a switch was missed.
//! - `Interrupt`, `Softirq` and `IdleLeft` come at the *end* of what they describe, with its
//!   length. Events inside it came earlier and keep their time; the rest of the length is its own.
//! - `LockTaken` also comes at the end. The thread may have slept or spun meanwhile; both count as
//!   waiting for the lock.
//! - `MajorFault` ends what `PageFault` began. All the time between belongs to the fault, even if the
//!   thread did not sleep (the disk was fast, or the whole CPU stood still meanwhile). The same holds
//!   for `StorageWaited` and a read or a write.
//! - `UpstreamAnswered` ends a question of the thread to another server, during which the thread may have done anything.
//! - A **blind window** reaches from the last event that proves who was current to the event
//!   that contradicts it. Interrupts seen inside it stay, and everything else in it is
//!   [`Top::Blind`], unless the current thread is never seen to leave a CPU (see `unwatched`).
//! - A **stall** is a stretch of a CPU in which a thread was current and nothing at all was
//!   recorded, with evidence that the whole CPU stood still: see [`stalls`].
//!
//! The times of a line are those of the events; only the beginning of a stall is estimated. A line
//! takes about four bytes for each change.

mod builder;
mod busy;
mod codes;
mod column;
mod cpu;
mod line;
mod missed_interrupts;
mod questions;
mod resent;
mod server_time;
mod sleep;
pub mod stalls;
mod state;
mod stretches;
#[cfg(test)]
pub(crate) mod tests;
mod unwatched;
mod waits;
mod workers;

pub use builder::TimelineBuilder;
pub(crate) use busy::NET_RX;
pub use busy::busy_stretches;
pub(crate) use codes::pack_top;
pub use line::{
    CpuLine, RecordedKinds, Segment, Segments, ThrottleWindow, Timeline, WorkerLine, WorkerSpan,
};
pub(crate) use line::{FAR, SegmentCursor, SpanCursor};
pub(crate) use questions::Question;
pub(crate) use server_time::ServerTime;
pub use sleep::{Sleep, call_name};
pub use stalls::Stall;
pub use state::{Top, WorkerState};
pub use stretches::Stretches;
pub(crate) use waits::{Policies, on_its_way_until, throttled_ns};
pub(crate) use workers::MOST_THREADS;
