//! Runs work on files that others wrote in a separate process without privileges, while this process
//! keeps them.

use std::io::{self, PipeWriter, Read, Write};
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::process::{Pid, PidfdFlags, WaitOptions, getpid, pidfd_open, waitpid};

use crate::invoker::Invoker;
use crate::server::die_with;

/// How a child ends that may not become the user: instead of a result it has sent the reason.
const REFUSED: i32 = 1;

/// Forks a child that becomes `user` for good, does `work` and sends back its result. The child ends with
/// this process.
///
/// The child has a copy of this process's memory but only the calling thread: `work` must not wait for
/// another thread, and the changes it makes in memory are lost.
///
/// # Errors
/// The fork failed, the child could not become the user, or the child failed.
pub fn run_unprivileged(user: &Invoker, work: impl FnOnce() -> Vec<u8>) -> io::Result<Vec<u8>> {
    let (mut reader, writer) = io::pipe()?;
    let us = pidfd_open(getpid(), PidfdFlags::empty())?;
    // SAFETY: the child goes on alone in a copy of the memory; the C library makes its own locks usable
    // there, and the child leaves by _exit, so nothing of this process is dropped or flushed twice.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            drop(reader);
            let done = catch_unwind(AssertUnwindSafe(|| in_child(user, &us, &writer, work)));
            let code = match done {
                Ok(Ok(())) => 0,
                Ok(Err(error)) => {
                    // without a reader there is nobody to tell
                    let _ = write!(&writer, "{error}");
                    REFUSED
                }
                Err(_) => 101,
            };
            // SAFETY: takes a number only, and does not return.
            unsafe { libc::_exit(code) }
        }
        child => {
            drop(writer);
            let mut result = Vec::new();
            let read = reader.read_to_end(&mut result);
            let ended = Pid::from_raw(child)
                .map(|child| waitpid(Some(child), WaitOptions::empty()))
                .transpose()?;
            read?;
            match ended.flatten().and_then(|(_, status)| status.exit_status()) {
                Some(0) => Ok(result),
                // it has said so itself, and had nothing left to send the reason
                Some(REFUSED) if result.is_empty() => Err(io::Error::other(
                    "it needs more memory than this machine has to spare",
                )),
                Some(REFUSED) => Err(io::Error::other(
                    String::from_utf8_lossy(&result).into_owned(),
                )),
                _ => Err(io::Error::other(
                    "the process without privileges has failed",
                )),
            }
        }
    }
}

fn in_child(
    user: &Invoker,
    parent: &OwnedFd,
    mut writer: &PipeWriter,
    work: impl FnOnce() -> Vec<u8>,
) -> io::Result<()> {
    user.become_for_good(false)?;
    die_with(parent)?;
    writer.write_all(&work())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::{Roots, status};

    #[test]
    fn the_child_has_no_privilege_and_this_process_keeps_its_own() {
        let roots = Roots::default();
        let rights = || {
            let all = ["Uid", "CapEff", "CapPrm", "NoNewPrivs"];
            // of the thread: others of this process are other tests
            let own = format!("self/task/{}", rustix::thread::gettid().as_raw_nonzero());
            all.map(|name| status(&roots, &own, name).unwrap())
        };
        let before = rights();
        let user = match Invoker::find(&roots) {
            user if user.is_root() => Invoker::nobody(),
            user => user,
        };
        let told = run_unprivileged(&user, || rights().join("\n").into_bytes()).unwrap();
        let told = String::from_utf8(told).unwrap();
        let [uid, effective, permitted, no_new]: [&str; 4] =
            told.lines().collect::<Vec<_>>().try_into().unwrap();
        let own = user.uid().to_string();
        assert!(uid.split_whitespace().all(|uid| uid == own), "{uid}");
        assert_eq!(u64::from_str_radix(effective, 16), Ok(0));
        assert_eq!(u64::from_str_radix(permitted, 16), Ok(0));
        assert_eq!(no_new, "1");
        assert_eq!(rights(), before);
    }

    #[test]
    fn a_child_that_fails_is_an_error() {
        let user = Invoker::find(&Roots::default());
        let failed = run_unprivileged(&user, || panic!("on purpose"));
        assert!(failed.unwrap_err().to_string().contains("has failed"));
    }
}
