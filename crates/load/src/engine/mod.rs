//! The loops that send. The open loop sends every request at its scheduled time; ping-pong sends the
//! next one when the last has been answered. They share the record.

mod cpu;
mod kernel_times;
mod live;
mod open_loop;
mod pace;
mod ping_pong;
mod progress;
mod record;
mod session;
#[cfg(test)]
mod tests;
mod waiting;
mod waits;

use taillab_model::Nanos;

pub use cpu::CpuUse;
pub use live::{LiveCounts, LiveHistogram};
pub use open_loop::{OpenLoop, open_loop};
pub(crate) use open_loop::{check_is_measured, open_loop_from};
pub use pace::Pace;
pub use ping_pong::{PingPong, ping_pong};
pub use progress::Progress;
pub use record::{Entry, Record};
pub use session::{LoadRun, StopReason};
pub(crate) use session::{SEND_AGAIN, STOP_CHECK};
pub use waiting::Waiting;
pub use waits::Wait;

/// What the caller does while the generator waits.
pub trait Hooks {
    /// Called repeatedly in idle moments while the next send is at least
    /// [`HOOK_GUARD`] away; `until_next` says how far. Must return within about a
    /// microsecond: it runs on the spinning thread, and any longer time makes
    /// sends late.
    fn idle(&mut self, until_next: Nanos);

    /// Called about twenty times a second, also where the generator is behind its schedule and has no idle
    /// moments: whether the run should end now, for example because the server's process is gone.
    fn should_stop(&mut self) -> bool {
        false
    }
}

/// [`Hooks::idle`] is not called when the next send is nearer than this.
pub const HOOK_GUARD: Nanos = Nanos::from_micros(2);

/// Hooks that do nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHooks;

impl Hooks for NoHooks {
    #[inline]
    fn idle(&mut self, _until_next: Nanos) {}
}
