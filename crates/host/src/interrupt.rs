//! Ctrl-C, SIGTERM and SIGHUP as a flag that the run checks.

use std::ffi::c_int;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::process::Signal;
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::{emulate_default_handler, register};
use taillab_model::Nanos;

use crate::clock;
use crate::process;
use crate::roots::Roots;

/// A signal that comes this soon after the first one is the same request: timeout(1) signals its child, and
/// then the child's whole process group.
const SAME_REQUEST: Nanos = Nanos::from_millis(500);

/// The signals could not be taken over.
#[derive(Debug, thiserror::Error)]
#[error("cannot handle Ctrl-C: {0}; taillab would leave its result unwritten when interrupted")]
pub struct InterruptError(#[from] io::Error);

/// Whether the user wants the run to end. The first SIGINT, SIGTERM or SIGHUP (the terminal has gone) sets
/// the flag and nothing else; the second kills the process as usual, unless it comes within half a second.
///
/// Clones share the flag. When the last one is dropped the flag is disconnected, and these signals do
/// nothing any more.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<Registration>);

#[derive(Debug)]
struct Registration {
    raised: Arc<AtomicBool>,
    signals: Vec<c_int>,
    ids: Vec<SigId>,
}

impl Interrupt {
    /// Handles the signals for the whole process. A SIGHUP that is ignored at our start (nohup(1))
    /// stays ignored; the others are handled even so, since shells ignore SIGINT for what they start in
    /// the background.
    ///
    /// # Errors
    /// [`InterruptError`].
    pub fn register() -> Result<Self, InterruptError> {
        let mut signals = vec![SIGINT, SIGTERM];
        if !process::ignores(&Roots::default(), std::process::id(), Signal::HUP) {
            signals.push(SIGHUP);
        }
        Self::of(signals)
    }

    fn of(signals: Vec<c_int>) -> Result<Self, InterruptError> {
        let raised = Arc::new(AtomicBool::new(false));
        let mut registration = Registration {
            raised: Arc::clone(&raised),
            signals: signals.clone(),
            ids: Vec::new(),
        };
        // 0 until the first signal
        let first_ns = Arc::new(AtomicU64::new(0));
        for signal in signals {
            let (raised, first_ns) = (Arc::clone(&raised), Arc::clone(&first_ns));
            let came = move || {
                let now_ns = clock::now().nanos_since_boot();
                let exchanged =
                    first_ns.compare_exchange(0, now_ns, Ordering::Relaxed, Ordering::Relaxed);
                match exchanged {
                    Ok(_) => raised.store(true, Ordering::Relaxed),
                    Err(first_ns) if now_ns.saturating_sub(first_ns) >= SAME_REQUEST.get() => {
                        // it ends the process, so there is nobody to hear of an error
                        let _ = emulate_default_handler(signal);
                    }
                    Err(_) => {}
                }
            };
            // SAFETY: the action only reads a clock, uses atomics and ends the process, which are all
            // allowed in a signal handler.
            registration.ids.push(unsafe { register(signal, came) }?);
        }
        Ok(Self(Arc::new(registration)))
    }

    /// Whether a signal has come.
    pub fn is_raised(&self) -> bool {
        self.0.raised.load(Ordering::Relaxed)
    }

    /// The signals as something to wait for, so that no thread has to poll the flag.
    ///
    /// # Errors
    /// There is no pipe to be had.
    pub fn pipe(&self) -> io::Result<InterruptPipe> {
        let (ours, mut theirs) = UnixStream::pair()?;
        for &signal in &self.0.signals {
            signal_hook::low_level::pipe::register(signal, theirs.try_clone()?)?;
        }
        // one that came before this could not write
        if self.is_raised() {
            theirs.write_all(&[0])?;
        }
        Ok(InterruptPipe(ours))
    }

    /// The flag itself, for a loop that knows nothing of signals.
    pub fn flag(&self) -> &AtomicBool {
        &self.0.raised
    }

    /// The flag itself, for another thread.
    pub fn shared_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0.raised)
    }
}

/// Becomes readable with the first signal.
#[derive(Debug)]
pub struct InterruptPipe(UnixStream);

impl InterruptPipe {
    /// Waits for the first signal.
    pub fn wait(mut self) {
        let mut read = || self.0.read(&mut [0]);
        while read().is_err_and(|error| error.kind() == io::ErrorKind::Interrupted) {}
    }
}

impl AsFd for InterruptPipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        for id in self.ids.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use signal_hook::consts::SIGUSR2;
    use signal_hook::low_level::raise;

    use super::*;

    #[test]
    fn a_signal_that_came_before_the_pipe_is_in_it() {
        let interrupt = Interrupt::of(vec![SIGUSR2]).unwrap();
        let at_once = Timespec::default();
        let is_readable = |pipe: &InterruptPipe| {
            let mut ready = [PollFd::new(pipe, PollFlags::IN)];
            poll(&mut ready, Some(&at_once)).unwrap() == 1
        };
        let quiet = interrupt.pipe().unwrap();
        assert!(!is_readable(&quiet));
        raise(SIGUSR2).unwrap();
        assert!(is_readable(&quiet));
        assert!(is_readable(&interrupt.pipe().unwrap()));
    }
}
