//! The server under test: a child process that cannot outlive us.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, getpid, getppid, kill_process, set_parent_process_death_signal,
};

use crate::cpus::CpuSet;
use crate::netns::{self, NetNamespace};
use crate::process;
use crate::programs::{self, MissingProgram};
use crate::roots::Roots;
use crate::tail::{self, OutputTail};
use crate::user::User;

/// Why the server does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The program is not installed.
    #[error(transparent)]
    Missing(#[from] MissingProgram),
    /// It could not be started.
    #[error("cannot start {program}: {reason}")]
    Start {
        /// The program.
        program: String,
        /// Which step failed and how.
        reason: String,
    },
    /// It ended before it was ready, or while it was needed.
    #[error("{0}")]
    Exited(ServerExit),
    /// It runs but does not answer.
    #[error("{program} did not answer within {} s{}", waited.as_secs(), said(last_line))]
    NotReady {
        /// The program.
        program: String,
        /// How long it was asked.
        waited: Duration,
        /// The last line that it wrote.
        last_line: Option<String>,
    },
    /// Another process holds its port.
    #[error(
        "UDP port {} at {} is taken: stop the process that holds it (ss -lunp shows it) or choose \
         another port", address.port(), address.ip()
    )]
    PortTaken {
        /// The address and port wanted.
        address: SocketAddr,
    },
    /// The address cannot be used at all.
    #[error("cannot use UDP port {} at {}: {source}", address.port(), address.ip())]
    Port {
        /// The address and port wanted.
        address: SocketAddr,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The kernel would not say how it is.
    #[error("cannot watch {program}: {source}")]
    Watch {
        /// The program.
        program: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

fn said(last_line: &Option<String>) -> String {
    match last_line {
        Some(line) => format!("; it last wrote: {line}"),
        None => String::new(),
    }
}

/// What to run, where, and as whom.
#[derive(Debug)]
pub struct ServerSpec<'a> {
    /// A name to look for, or a path.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Variables to add to its environment (the journal's mark).
    pub env: Vec<(OsString, OsString)>,
    /// The network namespace to enter; `None`: ours.
    pub namespace: Option<&'a NetNamespace>,
    /// The CPUs for all of its threads.
    pub cpus: CpuSet,
    /// The user to become; `None`: ours. A server that changes its user by itself
    /// would lose its death signal: let it be done here.
    pub user: Option<User>,
}

/// How a server ended, in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerExit {
    /// The program.
    pub program: String,
    /// Exit status or signal.
    pub status: ExitStatus,
    /// The last line that it wrote.
    pub last_line: Option<String>,
}

impl ServerExit {
    /// What the user can do, where the last line tells.
    pub fn remedy(&self) -> Option<&'static str> {
        let line = self.last_line.as_deref()?;
        let any = |words: &[&str]| words.iter().any(|word| line.contains(word));
        if any(&["Address already in use", "failed to listen"]) {
            Some("stop the process that holds the port (ss -lunp shows it) or choose another port")
        } else if any(&["set rlimit"]) {
            Some("raise the limit of open files (ulimit -n)")
        } else if any(&["Permission denied", "not permitted"]) {
            Some("run as root (sudo)")
        } else if any(&["Cannot allocate memory", "Failed to allocate"]) {
            Some("free memory, or give the server less")
        } else {
            None
        }
    }
}

impl fmt::Display for ServerExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.program)?;
        match (self.status.code(), self.status.signal()) {
            (Some(code), _) => write!(f, "exited with status {code}")?,
            (None, Some(signal)) => {
                write!(f, "was killed by signal {signal}")?;
                if let Some(name) = signal_name(signal) {
                    write!(f, " ({name})")?;
                }
                if signal == Signal::KILL.as_raw() {
                    write!(
                        f,
                        "; if you did not, see dmesg for the out-of-memory killer"
                    )?;
                }
            }
            (None, None) => write!(f, "ended")?,
        }
        if let Some(line) = &self.last_line {
            write!(f, ": {line}")?;
        }
        if let Some(remedy) = self.remedy() {
            write!(f, "; {remedy}")?;
        }
        Ok(())
    }
}

fn signal_name(signal: i32) -> Option<&'static str> {
    let names = [
        (Signal::KILL, "SIGKILL"),
        (Signal::TERM, "SIGTERM"),
        (Signal::INT, "SIGINT"),
        (Signal::SEGV, "SIGSEGV"),
        (Signal::ABORT, "SIGABRT"),
        (Signal::BUS, "SIGBUS"),
        (Signal::ILL, "SIGILL"),
        (Signal::FPE, "SIGFPE"),
        (Signal::HUP, "SIGHUP"),
    ];
    let named = names.iter().find(|(known, _)| known.as_raw() == signal)?;
    Some(named.1)
}

/// Checks that nobody holds a UDP port, in the namespace of the calling thread.
///
/// Servers bind with SO_REUSEADDR, and then two of them share a UDP port without an
/// error and each gets some of the requests: the bind here is exclusive.
///
/// # Errors
/// [`ServerError::PortTaken`], [`ServerError::Port`].
pub fn ensure_udp_port_free(address: SocketAddr) -> Result<(), ServerError> {
    match UdpSocket::bind(address) {
        Ok(_) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::AddrInUse => Err(ServerError::PortTaken { address }),
        Err(source) => Err(ServerError::Port { address, source }),
    }
}

/// How often a server is asked whether it is ready.
const READY_POLL: Duration = Duration::from_millis(5);

/// How long a server's last words may take to come through the pipe.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// A running server. Dropping it kills it and waits for its end.
#[derive(Debug)]
pub struct ServerProcess {
    child: Child,
    program: String,
    output: OutputTail,
    exit: Option<ServerExit>,
}

impl ServerProcess {
    /// Starts the server: in its namespace, on its CPUs, as its user, in a process
    /// group of its own (Ctrl-C at the terminal reaches us alone, and we end the
    /// server in order), and to be killed by the kernel when **the calling thread**
    /// ends (`PR_SET_PDEATHSIG`). So call this from a thread that outlives the
    /// server.
    ///
    /// The thread that collects what the server writes inherits the CPU affinity of
    /// the calling thread; it sleeps while the server is silent.
    ///
    /// # Errors
    /// [`ServerError::Missing`], [`ServerError::Start`].
    pub fn spawn(spec: &ServerSpec<'_>) -> Result<Self, ServerError> {
        let path = programs::find(&spec.program)?;
        let program = spec.program.display().to_string();
        let start_failed = |reason: String| ServerError::Start {
            program: program.clone(),
            reason,
        };
        let (reader, writer) = io::pipe().map_err(|e| start_failed(e.to_string()))?;
        // a descriptor of its own for the child: the standard streams have locks
        let complaints = writer
            .try_clone()
            .map_err(|e| start_failed(e.to_string()))?;
        let mut command = Command::new(path);
        command
            .args(&spec.args)
            .envs(spec.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(
                writer
                    .try_clone()
                    .map_err(|e| start_failed(e.to_string()))?,
            )
            .stderr(writer)
            .process_group(0);
        let namespace = match spec.namespace {
            Some(namespace) => {
                let fd = namespace.as_fd().try_clone_to_owned();
                Some(fd.map_err(|e| start_failed(e.to_string()))?)
            }
            None => None,
        };
        let affinity = spec.cpus.to_affinity();
        let user = spec.user.clone().filter(|user| !user.is_current());
        let parent = getpid();
        let prepare = move || {
            let step = |name: &str, result: rustix::io::Result<()>| {
                result.map_err(|e| {
                    // only the error number comes back through spawn()
                    let _ = rustix::io::write(&complaints, name.as_bytes());
                    io::Error::from(e)
                })
            };
            if let Some(namespace) = &namespace {
                step(
                    "enter its network namespace",
                    netns::enter(namespace.as_fd()),
                )?;
            }
            step(
                "bind to its CPUs",
                rustix::thread::sched_setaffinity(None, &affinity),
            )?;
            if let Some(user) = &user {
                step("change its user", user.assume())?;
            }
            // After the change of user, which clears the death signal.
            let armed = set_parent_process_death_signal(Some(Signal::KILL));
            step("arm its death signal", armed)?;
            // We may have died before the signal was armed.
            match getppid() {
                Some(now) if now != parent => Err(io::ErrorKind::BrokenPipe.into()),
                _ => Ok(()),
            }
        };
        // SAFETY: between fork and exec only async-signal-safe work is allowed. The
        // closure makes bare system calls and writes constant text to a pipe;
        // it takes no lock and allocates nothing.
        unsafe { command.pre_exec(prepare) };
        let spawned = command.spawn();
        drop(command); // closes our copies of the pipe's write end
        let output = OutputTail::of(reader).map_err(|e| start_failed(e.to_string()))?;
        match spawned {
            Ok(child) => Ok(Self {
                child,
                program,
                output,
                exit: None,
            }),
            Err(error) => {
                output.wait_end(LAST_WORDS);
                Err(start_failed(match output.last_line() {
                    Some(step) => format!("cannot {step}: {error}"),
                    None => error.to_string(),
                }))
            }
        }
    }

    /// Its process id. Once it has ended the number may belong to another process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The ids of its threads in ascending order; empty when it has ended.
    pub fn threads(&self) -> Vec<u32> {
        match self.exit {
            None => process::threads(&Roots::default(), self.pid()),
            Some(_) => Vec::new(),
        }
    }

    /// How it ended, or `None` while it runs.
    ///
    /// # Errors
    /// [`ServerError::Watch`].
    pub fn try_exit(&mut self) -> Result<Option<ServerExit>, ServerError> {
        if self.exit.is_none()
            && let Some(status) = self.child.try_wait().map_err(|e| self.watch_failed(e))?
        {
            self.output.wait_end(LAST_WORDS);
            self.exit = Some(ServerExit {
                program: self.program.clone(),
                status,
                last_line: self.output.last_line(),
            });
        }
        Ok(self.exit.clone())
    }

    /// Asks `is_ready` again and again until it says yes.
    ///
    /// # Errors
    /// [`ServerError::Exited`] as soon as the server ends, [`ServerError::NotReady`]
    /// after `patience`, [`ServerError::Watch`].
    pub fn wait_ready(
        &mut self,
        patience: Duration,
        mut is_ready: impl FnMut() -> bool,
    ) -> Result<(), ServerError> {
        let start = Instant::now();
        loop {
            let ready = is_ready();
            // Asked in this order: another process may have answered in its place.
            if let Some(exit) = self.try_exit()? {
                return Err(ServerError::Exited(exit));
            }
            if ready {
                return Ok(());
            }
            if start.elapsed() > patience {
                return Err(ServerError::NotReady {
                    program: self.program.clone(),
                    waited: start.elapsed(),
                    last_line: self.output.last_line(),
                });
            }
            thread::sleep(READY_POLL);
        }
    }

    /// Ends it: SIGTERM, and SIGKILL after `patience`; waits for its end.
    ///
    /// # Errors
    /// [`ServerError::Watch`].
    pub fn shutdown(mut self, patience: Duration) -> Result<ServerExit, ServerError> {
        let start = Instant::now();
        let mut signal = Some(Signal::TERM);
        loop {
            if let Some(exit) = self.try_exit()? {
                return Ok(exit);
            }
            if start.elapsed() > patience {
                // Even SIGKILL waits for a process that hangs in the kernel.
                self.child.kill().map_err(|e| self.watch_failed(e))?;
                self.child.wait().map_err(|e| self.watch_failed(e))?;
                continue;
            }
            if let Some(signal) = signal.take() {
                // not yet reaped, so the number is still its own
                let pid = Pid::from_child(&self.child);
                kill_process(pid, signal).map_err(|e| self.watch_failed(e.into()))?;
            }
            thread::sleep(READY_POLL);
        }
    }

    /// The end of what it wrote, at most 16 KiB.
    pub fn output(&self) -> String {
        self.output.text()
    }

    fn watch_failed(&self, source: io::Error) -> ServerError {
        ServerError::Watch {
            program: self.program.clone(),
            source,
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if self.exit.is_none() {
            // Fails only when it has been reaped, and then there is nothing to end.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// What `program -V` prints first, e.g. `memcached 1.6.18`; `None` when it cannot be
/// had.
pub fn version(program: &std::path::Path) -> Option<String> {
    let output = Command::new(programs::find(program).ok()?)
        .arg("-V")
        .stdin(Stdio::null())
        .output()
        .ok()?;
    tail::last_line(String::from_utf8_lossy(&output.stdout).lines().next()?)
}
