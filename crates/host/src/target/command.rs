//! A server that is started to be watched, and ends with it.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, getpid, getppid, kill_process, kill_process_group, set_parent_process_death_signal,
};

/// How often an ending command is looked at.
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

/// A command with its children, in a separate process group: Ctrl-C reaches only us, and we end the
/// command. The kernel kills it when the thread that started it ends for any reason.
#[derive(Debug)]
pub struct StartedCommand {
    child: Child,
    program: String,
    ended: bool,
}

impl StartedCommand {
    /// Starts it as this user and group, or as ours. What it prints goes to our stderr:
    /// stdout is for the result.
    ///
    /// # Errors
    /// [`CommandError`].
    pub fn start(words: &[OsString], user: Option<(u32, u32)>) -> Result<Self, CommandError> {
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
            .stdin(Stdio::null())
            .stdout(output)
            .process_group(0);
        if let Some((user, group)) = user {
            command.uid(user).gid(group);
        }
        let parent = getpid();
        let die_with_us = move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // we may have ended before that was set
            match getppid() {
                Some(now) if now == parent => Ok(()),
                _ => Err(io::ErrorKind::BrokenPipe.into()),
            }
        };
        // SAFETY: between fork and exec it makes two system calls and allocates nothing.
        unsafe { command.pre_exec(die_with_us) };
        let child = command.spawn().map_err(refused)?;
        Ok(Self {
            child,
            program: name,
            ended: false,
        })
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// [`CommandError::Ask`].
    pub fn try_exit(&mut self) -> Result<Option<ExitStatus>, CommandError> {
        let status = self.child.try_wait().map_err(|source| CommandError::Ask {
            program: self.program.clone(),
            source,
        })?;
        self.ended |= status.is_some();
        Ok(status)
    }

    /// Asks it to end (SIGTERM), and kills what is left of its process group after
    /// `patience`.
    pub fn end(mut self, patience: Duration) {
        self.stop(patience);
    }

    fn stop(&mut self, patience: Duration) {
        let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) else {
            return;
        };
        if !self.ended {
            // It may end by itself at any time; then there is nobody left to ask.
            let _ = kill_process(pid, Signal::TERM);
            let deadline = Instant::now() + patience;
            while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
                std::thread::sleep(POLL);
            }
        }
        // Kills children that outlived it; most commands have none. The group keeps its number as long
        // as it has a process.
        let _ = kill_process_group(pid, Signal::KILL);
        let _ = self.child.wait();
        self.ended = true;
    }
}

impl Drop for StartedCommand {
    fn drop(&mut self) {
        if !self.ended {
            self.stop(Duration::ZERO);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::ProcessIdentity;
    use crate::roots::Roots;

    fn words(text: &[&str]) -> Vec<OsString> {
        text.iter().map(OsString::from).collect()
    }

    #[test]
    fn a_command_runs_until_it_is_ended_with_its_children() {
        let script = "sleep 600 & echo; wait";
        let mut command = StartedCommand::start(&words(&["sh", "-c", script]), None).unwrap();
        let roots = Roots::default();
        let began = Instant::now();
        let family = loop {
            let family = crate::process::family(&roots, command.pid());
            if family.len() == 2 {
                break family;
            }
            assert!(began.elapsed() < Duration::from_secs(20), "{family:?}");
            std::thread::sleep(POLL);
        };
        assert_eq!(command.try_exit().unwrap(), None);
        let identities: Vec<_> = family
            .iter()
            .filter_map(|pid| ProcessIdentity::of(&roots, *pid))
            .collect();
        assert_eq!(identities.len(), 2);
        command.end(Duration::from_secs(20));
        let gone = || identities.iter().all(|one| !one.is_alive(&roots));
        while !gone() {
            assert!(began.elapsed() < Duration::from_secs(20));
            std::thread::sleep(POLL);
        }
    }

    #[test]
    fn what_cannot_start_is_named() {
        let error = StartedCommand::start(&words(&["no-such-program"]), None).unwrap_err();
        assert!(error.to_string().contains("cannot start no-such-program"));
        let error = StartedCommand::start(&[], None).unwrap_err();
        assert!(matches!(error, CommandError::Empty));
    }

    #[test]
    fn its_end_is_seen() {
        let mut command = StartedCommand::start(&words(&["true"]), None).unwrap();
        let began = Instant::now();
        while command.try_exit().unwrap().is_none() {
            assert!(began.elapsed() < Duration::from_secs(20));
            std::thread::sleep(POLL);
        }
        assert!(command.try_exit().unwrap().unwrap().success());
    }
}
