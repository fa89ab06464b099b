//! What a server's program says of itself.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{PidfdFlags, getpid, pidfd_open};

use super::LAST_WORDS;
use super::parent::{Parent, die_with};
use crate::invoker::Invoker;
use crate::programs;
use crate::tail::OutputTail;
use crate::user::User;

/// A program that takes longer has no version.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is asked whether it has ended.
const POLL: Duration = Duration::from_millis(2);

/// The first line that `program flag` prints, e.g. `memcached 1.6.18` for `-V`; `None`
/// if the program cannot be run, does not know the flag, prints nothing, or has not ended after five seconds.
///
/// The program may be one that somebody else's experiment names: under root, `user` runs it, without any of root's
/// rights. It ends with us, and what it starts with it.
pub fn version(program: &Path, flag: &str, user: &User) -> Option<String> {
    said(program, flag, user, PATIENCE).ok().flatten()
}

fn said(program: &Path, flag: &str, user: &User, patience: Duration) -> io::Result<Option<String>> {
    let path = programs::find(program).map_err(io::Error::other)?;
    // nginx prints it on stderr
    let (reader, writer) = io::pipe()?;
    let mut command = Command::new(path);
    command
        .arg(flag)
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .process_group(0);
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        let environment = user.environment(std::env::vars_os());
        command.env_clear().envs(environment);
    }
    let user = Some(Invoker::with_primary_group(user)).filter(|user| is_root && !user.is_current());
    let us = pidfd_open(getpid(), PidfdFlags::empty())?;
    let prepare = move || {
        user.as_ref().map_or(Ok(()), Invoker::assume_until_exec)?;
        // a set-user-ID program gains nothing either
        rustix::thread::set_no_new_privs(true)?;
        die_with(&us)
    };
    // SAFETY: between fork and exec it makes a few system calls and allocates nothing.
    unsafe { command.pre_exec(prepare) };
    let (mut child, parent) = Parent::spawn(command)?;
    let output = OutputTail::of(reader)?;
    let status = ended(&mut child, patience);
    // the kernel ends what it has started
    drop(parent);
    let is_good = status?.is_some_and(|status| status.success());
    output.wait_end(LAST_WORDS);
    Ok(output.first_line().filter(|_| is_good))
}

/// How it ended; it is killed if that takes longer.
fn ended(child: &mut Child, patience: Duration) -> io::Result<Option<ExitStatus>> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if began.elapsed() >= patience {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::Roots;

    fn nobody() -> User {
        User::find(&Roots::default(), "nobody").unwrap()
    }

    #[test]
    fn a_complaint_about_the_flag_is_no_version() {
        let said = version(Path::new("echo"), "server 1.2", &nobody());
        assert_eq!(said.as_deref(), Some("server 1.2"));
        let refused = version(Path::new("ls"), "--no-such-option", &nobody());
        assert_eq!(refused, None);
        assert_eq!(version(Path::new("no-such-server"), "-V", &nobody()), None);
    }

    /// A program of an experiment file that somebody else wrote.
    #[test]
    fn it_is_not_run_as_root() {
        let own = rustix::process::geteuid();
        let expected = match own.is_root() {
            true => nobody().uid,
            false => own.as_raw(),
        };
        let said = version(Path::new("id"), "-u", &nobody());
        assert_eq!(said, Some(expected.to_string()));
    }

    #[test]
    fn a_program_that_does_not_end_has_no_version() {
        let patience = Duration::from_millis(200);
        let said = said(Path::new("sleep"), "600", &nobody(), patience);
        assert_eq!(said.unwrap(), None);
    }
}
