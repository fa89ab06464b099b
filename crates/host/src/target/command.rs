//! A server that we start in order to watch it, and end when the watch ends.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, kill_process, kill_process_group, pidfd_open,
};

use crate::invoker::Invoker;
use crate::server::{Parent, die_with};

/// How often to check whether an ending command has ended.
const POLL: Duration = Duration::from_millis(5);

/// The command cannot be started, or has ended.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// There is nothing to start.
    #[error("there is no command after `--`: write e.g. `taillab trace -- memcached -U 11211`")]
    Empty,
    /// It did not start.
    #[error("cannot start {program}: {source}; check its name and that it is installed")]
    Start {
        /// The program.
        program: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// It could not be asked whether it still runs.
    #[error("cannot see whether {program} still runs: {source}")]
    Ask {
        /// The program.
        program: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// A command with its children, in a process group of its own: Ctrl-C reaches only us, and we end
/// it. It is the first process of a pid namespace where one may be made, so the kernel ends it and
/// everything that it has started when we end, for whatever reason.
#[derive(Debug)]
pub struct StartedCommand {
    child: Child,
    program: String,
    /// It has ended, and what it had started was killed.
    stopped: bool,
    /// Dropped last, since the kernel then kills the command.
    parent: Parent,
}

impl StartedCommand {
    /// Starts it as this user with its groups, or as ours, with `variable` in its environment. What it prints
    /// goes to our stderr: stdout is for the result.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn start(
        words: &[OsString],
        user: Option<Invoker>,
        variable: Option<(OsString, OsString)>,
    ) -> Result<Self, CommandError> {
        let (program, args) = words.split_first().ok_or(CommandError::Empty)?;
        let name = program.to_string_lossy().into_owned();
        let refused = |source| CommandError::Start {
            program: name.clone(),
            source,
        };
        let output = io::stderr().as_fd().try_clone_to_owned().map_err(refused)?;
        let mut command = Command::new(program);
        command
            .args(args)
            .envs(variable)
            .stdin(Stdio::null())
            .stdout(output)
            .process_group(0);
        let us =
            pidfd_open(getpid(), PidfdFlags::empty()).map_err(|error| refused(error.into()))?;
        // not by Command::uid, which clears the groups
        let prepare = move || {
            user.as_ref().map_or(Ok(()), Invoker::assume)?;
            die_with(&us)
        };
        // SAFETY: between fork and exec it makes a few system calls and allocates nothing.
        unsafe { command.pre_exec(prepare) };
        let (child, parent) = Parent::spawn(command).map_err(refused)?;
        Ok(Self {
            child,
            program: name,
            stopped: false,
            parent,
        })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has. What is left of its process group is killed then.
    ///
    /// # Errors
    /// [`CommandError::Ask`].
    pub fn try_exit(&mut self) -> Result<Option<ExitStatus>, CommandError> {
        let status = self.child.try_wait().map_err(|source| CommandError::Ask {
            program: self.program.clone(),
            source,
        })?;
        if status.is_some() {
            self.kill_group();
        }
        Ok(status)
    }

    /// Asks it to end (SIGTERM, unless the kernel keeps that from it), waits for at most `patience`, and
    /// kills what is left of its process group.
    pub fn end(mut self, patience: Duration) {
        self.stop(patience);
    }

    fn stop(&mut self, patience: Duration) {
        if self.stopped {
            return;
        }
        if !self.parent.is_deaf(self.pid()) {
            // It may end by itself at any time; then there is nobody left to ask.
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
            let deadline = Instant::now() + patience;
            while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
                std::thread::sleep(POLL);
            }
        }
        let _ = self.child.kill();
        self.kill_group();
        let _ = self.child.wait();
    }

    /// The end of a pid namespace's first process ends all others in it. Without a namespace, children that
    /// outlived the command are in its process group, which keeps its number while it has members. Without
    /// any, another group may get the number once the command's end was seen: so this is done at once, and
    /// never again.
    fn kill_group(&mut self) {
        if !std::mem::replace(&mut self.stopped, true) {
            // its process id is also the number of its group
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        }
    }
}

impl Drop for StartedCommand {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{self, ProcessIdentity};
    use crate::roots::Roots;

    const PATIENCE: Duration = Duration::from_secs(30);

    fn words(text: &[&str]) -> Vec<OsString> {
        text.iter().map(OsString::from).collect()
    }

    #[test]
    fn a_command_runs_until_it_is_ended_with_its_children() {
        let script = "sleep 600 & echo; wait";
        let mut command = StartedCommand::start(&words(&["sh", "-c", script]), None, None).unwrap();
        let roots = Roots::default();
        let began = Instant::now();
        let family = loop {
            let family = process::family(&roots, command.pid());
            if family.len() == 2 {
                break family;
            }
            assert!(began.elapsed() < PATIENCE, "{family:?}");
            std::thread::sleep(POLL);
        };
        assert_eq!(command.try_exit().unwrap(), None);
        let identities: Vec<_> = family
            .iter()
            .filter_map(|pid| ProcessIdentity::of(&roots, *pid))
            .collect();
        assert_eq!(identities.len(), 2);
        command.end(PATIENCE);
        let began = Instant::now();
        let gone = || identities.iter().all(|one| !one.is_alive(&roots));
        while !gone() {
            assert!(began.elapsed() < PATIENCE);
            std::thread::sleep(POLL);
        }
    }

    #[test]
    fn the_children_of_a_command_that_has_ended_are_ended_too() {
        let roots = Roots::default();
        let (name, value) = ("TAILLAB_TEST_COMMAND", std::process::id().to_string());
        let mark = format!("{name}={value}");
        let is_marked = |pid: &u32| {
            let text = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let mut variables = text.split(|byte| *byte == 0);
            variables.any(|variable| variable == mark.as_bytes())
        };
        let left = || process::numbers_in(&roots.proc).iter().any(is_marked);
        let script = words(&["sh", "-c", "sleep 600 & true"]);
        let variable = Some((name.into(), value.into()));
        let mut command = StartedCommand::start(&script, None, variable).unwrap();
        let began = Instant::now();
        while command.try_exit().unwrap().is_none() {
            assert!(began.elapsed() < PATIENCE);
            std::thread::sleep(POLL);
        }
        // not when it is dropped: by then, the group's number may be another's
        assert!(command.stopped);
        let began = Instant::now();
        while left() {
            assert!(began.elapsed() < PATIENCE);
            std::thread::sleep(POLL);
        }
    }

    #[test]
    fn what_cannot_start_is_named() {
        let error = StartedCommand::start(&words(&["no-such-program"]), None, None).unwrap_err();
        assert!(error.to_string().contains("cannot start no-such-program"));
        let error = StartedCommand::start(&[], None, None).unwrap_err();
        assert!(matches!(error, CommandError::Empty));
    }

    #[test]
    fn its_end_is_seen() {
        let mut command = StartedCommand::start(&words(&["true"]), None, None).unwrap();
        let began = Instant::now();
        while command.try_exit().unwrap().is_none() {
            assert!(began.elapsed() < PATIENCE);
            std::thread::sleep(POLL);
        }
        assert!(command.try_exit().unwrap().unwrap().success());
    }
}
