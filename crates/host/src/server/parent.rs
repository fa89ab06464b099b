//! The thread that is the server's parent.

use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::UnshareFlags;

use crate::process;
use crate::roots::Roots;

/// A thread that has started the server and sleeps until it is dropped.
///
/// Its child is the first process of a pid namespace. A thread that has unshared its pid namespace
/// can start no other thread, so this one has no other work.
#[derive(Debug)]
pub(crate) struct Parent {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    has_pid_namespace: bool,
}

impl Parent {
    /// Whether the kernel keeps SIGTERM from the child `pid`: the first process of a pid namespace gets
    /// only signals that it handles (pid_namespaces(7)), or that it blocks to wait for them (signalfd(2)).
    pub(crate) fn is_deaf(&self, pid: u32) -> bool {
        let roots = Roots::default();
        let hears = process::catches(&roots, pid, Signal::TERM)
            || process::blocks(&roots, pid, Signal::TERM);
        self.has_pid_namespace && !hears
    }

    /// Starts `command` as the child of a new thread, in a new pid namespace where one may be
    /// made.
    pub(crate) fn spawn(mut command: Command) -> io::Result<(Child, Self)> {
        let (started, start) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let thread = thread::Builder::new()
            .name("server-parent".into())
            .spawn(move || {
                // SAFETY: CLONE_NEWPID changes nothing for this thread but the pid namespace
                // of the children that it starts; no memory or descriptor table is unshared.
                let unshared = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWPID) };
                let spawned = command.spawn();
                drop(command); // closes our copies of the pipe's write end
                let runs = spawned.is_ok();
                if started.send((spawned, unshared.is_ok())).is_ok() && runs {
                    let _ = ended.recv();
                }
            })?;
        let (spawned, has_pid_namespace) = start
            .recv()
            .unwrap_or_else(|_| (Err(io::ErrorKind::BrokenPipe.into()), false));
        let parent = Self {
            end: Some(end),
            thread: Some(thread),
            has_pid_namespace,
        };
        Ok((spawned?, parent))
    }
}

impl Drop for Parent {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // It cannot panic, and there is nothing left to do if it did.
            let _ = thread.join();
        }
    }
}

/// Has the kernel kill the calling process when its parent, a thread of `spawner`, ends. Async-signal-safe,
/// for between fork and exec, and after any change of user, which clears the death signal.
pub(crate) fn die_with(spawner: &OwnedFd) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // it may have ended before the signal was armed
    match process::has_ended(spawner)? {
        false => Ok(()),
        true => Err(io::ErrorKind::BrokenPipe.into()),
    }
}
