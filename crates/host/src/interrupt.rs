//! Ctrl-C, SIGTERM and SIGHUP as a flag that the run checks.

use std::ffi::c_int;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::process;
use crate::roots::Roots;

/// The signals could not be taken over.
#[derive(Debug, thiserror::Error)]
#[error("cannot handle Ctrl-C: {0}; taillab would leave its result unwritten when interrupted")]
pub struct InterruptError(#[from] io::Error);

/// Whether the user wants the run to end. The first SIGINT, SIGTERM or SIGHUP (the terminal has gone) sets
/// the flag and nothing else; the second kills the process as usual.
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
        let raised = Arc::new(AtomicBool::new(false));
        let mut signals = vec![SIGINT, SIGTERM];
        if !process::ignores(&Roots::default(), std::process::id(), Signal::HUP) {
            signals.push(SIGHUP);
        }
        let mut registration = Registration {
            raised: Arc::clone(&raised),
            signals: signals.clone(),
            ids: Vec::new(),
        };
        for signal in signals {
            // Actions run in the order of their registration: at the first signal the
            // flag is still down, so the default action stays off until the second.
            let kill =
                signal_hook::flag::register_conditional_default(signal, Arc::clone(&raised))?;
            registration.ids.push(kill);
            let raise = signal_hook::flag::register(signal, Arc::clone(&raised))?;
            registration.ids.push(raise);
        }
        Ok(Self(Arc::new(registration)))
    }

    /// Whether a signal has come.
    pub fn is_raised(&self) -> bool {
        self.0.raised.load(Ordering::Relaxed)
    }

    /// The signals that it handles, for a thread that waits for them and does not poll the flag.
    pub fn signals(&self) -> &[c_int] {
        &self.0.signals
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

impl Drop for Registration {
    fn drop(&mut self) {
        for id in self.ids.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}
