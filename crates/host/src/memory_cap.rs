//! A cap on the memory of a part of a command that reads what others wrote: a small file may ask for a lot.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::roots::{Roots, read_optional, status};

/// The share of the memory that is available now.
const SHARE: f64 = 0.75;
/// What every machine can give, by swapping if need be.
const LEAST: u64 = 1 << 30;

/// What is said where the memory does not suffice: an allocation that fails aborts the process.
const REFUSED: &[u8] = b"taillab: error: the analysis needs more memory than this machine has to spare: analyse a part of \
the recording, or on another machine\n";

/// While it lives, this process may take only so much more memory. Programs that are started meanwhile inherit it.
#[derive(Debug)]
pub struct MemoryCap {
    before: Rlimit,
    handler: libc::sigaction,
}

impl MemoryCap {
    /// Three quarters of what is available now.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn begin(roots: &Roots) -> io::Result<Self> {
        let available = available(roots).unwrap_or(0);
        let room = (available as f64 * SHARE) as u64;
        Self::with_room(roots, room.max(LEAST))
    }

    fn with_room(roots: &Roots, room: u64) -> io::Result<Self> {
        let before = getrlimit(Resource::Data);
        let used = status(roots, "self", "VmData").and_then(|text| kib(&text));
        let wanted = used.unwrap_or(0).saturating_add(room);
        let lowest = |limit: Option<u64>| limit.map_or(wanted, |limit| limit.min(wanted));
        let handler = on_abort(said_and_gone as *const () as libc::sighandler_t)?;
        setrlimit(
            Resource::Data,
            Rlimit {
                current: Some(lowest(before.current).min(lowest(before.maximum))),
                maximum: before.maximum,
            },
        )?;
        Ok(Self { before, handler })
    }
}

impl Drop for MemoryCap {
    fn drop(&mut self) {
        // back to what it was, which the kernel allows
        let _ = setrlimit(Resource::Data, self.before);
        // SAFETY: `handler` is what the kernel had for this signal before; the other pointer may be null.
        unsafe { libc::sigaction(libc::SIGABRT, &raw const self.handler, std::ptr::null_mut()) };
    }
}

/// Sets the handler of SIGABRT; returns the one before.
fn on_abort(handler: libc::sighandler_t) -> io::Result<libc::sigaction> {
    // SAFETY: all fields of a sigaction may be zero: no flags, no further signals blocked.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    let mut before = action;
    // SAFETY: both pointers are of live values, and the handler makes bare system calls only.
    match unsafe { libc::sigaction(libc::SIGABRT, &raw const action, &raw mut before) } {
        0 => Ok(before),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Async-signal-safe: two system calls.
extern "C" fn said_and_gone(_signal: libc::c_int) {
    // SAFETY: the pointer and the length are those of a constant.
    let _ = unsafe { libc::write(libc::STDERR_FILENO, REFUSED.as_ptr().cast(), REFUSED.len()) };
    // SAFETY: takes a number only, and does not return.
    unsafe { libc::_exit(1) }
}

/// Bytes that programs can have without swapping (`MemAvailable` of proc_meminfo(5)).
fn available(roots: &Roots) -> Option<u64> {
    let text = read_optional(&roots.proc.join("meminfo"))?;
    let mut lines = text.lines();
    let found = lines.find_map(|line| line.strip_prefix("MemAvailable:"));
    kib(found?)
}

/// `1234 kB` in bytes.
fn kib(text: &str) -> Option<u64> {
    let number = text.trim().strip_suffix("kB")?.trim();
    number.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invoker::Invoker;
    use crate::roots::testing::tree;
    use crate::run_unprivileged;

    #[test]
    fn what_is_available_is_read_in_bytes() {
        let (_folder, roots) = tree(&[(
            "proc/meminfo",
            "MemTotal:       2048 kB\nMemAvailable:    1024 kB\n",
        )]);
        assert_eq!(available(&roots), Some(1 << 20));
    }

    /// In a child, since other tests run in this process.
    fn allocate(room: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let roots = Roots::default();
        let user = match Invoker::find(&roots) {
            user if user.is_root() => Invoker::nobody(),
            user => user,
        };
        run_unprivileged(&user, || {
            let limit = |before: &Rlimit| before.current.unwrap_or(u64::MAX);
            let before = limit(&getrlimit(Resource::Data));
            let cap = MemoryCap::with_room(&roots, room).unwrap();
            let held = vec![1_u8; bytes];
            assert!(held.iter().map(|byte| u64::from(*byte)).sum::<u64>() > 0);
            drop(cap);
            let after = limit(&getrlimit(Resource::Data));
            vec![u8::from(after == before)]
        })
    }

    #[test]
    fn more_than_the_cap_ends_the_process_and_less_does_not() {
        let enough = allocate(256 << 20, 16 << 20).unwrap();
        assert_eq!(enough, [1], "the limit is what it was before");
        let error = allocate(64 << 20, 1 << 30).unwrap_err().to_string();
        assert!(error.contains("memory"), "{error}");
    }
}
