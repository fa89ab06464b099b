//! The server under test: processes that cannot outlive us.

mod error;
mod exit;
mod parent;
mod ports;
mod version;

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, getpid, getrlimit, kill_process, pidfd_open,
    setrlimit,
};

pub(crate) use self::parent::{Parent, die_with};
use crate::cpus::CpuSet;
use crate::invoker::Invoker;
use crate::netns::{self, NetNamespace};
use crate::private_folder::PrivateFolder;
use crate::process;
use crate::programs;
use crate::roots::Roots;
use crate::tail::OutputTail;
use crate::user::User;

pub use self::error::ServerError;
pub use self::exit::ServerExit;
pub use self::ports::{ensure_tcp_port_free, ensure_udp_port_free};
pub use self::version::version;

/// What to run, where, and as whom.
#[derive(Debug)]
pub struct ServerSpec<'a> {
    /// What messages call it.
    pub name: String,
    /// A name to look for, or a path.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Variables to add to its environment (the journal's mark). Where root starts it for a user, it has little more.
    pub env: Vec<(OsString, OsString)>,
    /// The network namespace to enter; `None`: ours.
    pub namespace: Option<&'a NetNamespace>,
    /// The CPUs for all of its threads.
    pub cpus: CpuSet,
    /// The user to become; `None`: ours. A server that changes its user by itself
    /// would lose its death signal, so let it be changed here.
    pub user: Option<User>,
    /// Its working directory, with files that only it needs; `None`: ours.
    pub folder: Option<&'a PrivateFolder>,
    /// How many descriptors it should be able to open; fewer where we may not raise the limit.
    pub open_files: u64,
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
    /// Dropped last, since the kernel then kills the server.
    parent: Parent,
}

impl ServerProcess {
    /// Starts the server in its namespace, on its CPUs and as its user. It gets a session of its own: Ctrl-C at the
    /// terminal reaches only us, and we end the server in order. Where the kernel divides the CPUs among sessions
    /// (sched(7), autogroups), the server's threads then do not count as ours: a thousand of them that want to run on
    /// their CPU would leave the generator a thousandth of the weight on its own.
    ///
    /// The server and every process that it starts end with us, for whatever reason we end. It is the
    /// first process of a new pid namespace; the kernel kills it when its parent, a thread of ours,
    /// ends (`PR_SET_PDEATHSIG`), and when the first process ends it kills all others
    /// (pid_namespaces(7)).
    ///
    /// Where no pid namespace may be made, only the first process has this guarantee.
    ///
    /// Two threads of ours, one that collects the server's output and one that is its parent, inherit
    /// the CPU affinity of the calling thread; they sleep while the server is silent.
    ///
    /// # Errors
    /// [`ServerError::Missing`], [`ServerError::Start`].
    pub fn spawn(spec: &ServerSpec<'_>) -> Result<Self, ServerError> {
        let path = programs::find(&spec.program)?;
        let start_failed = |reason: String| ServerError::Start {
            program: spec.name.clone(),
            reason,
        };
        let failed = |e: io::Error| start_failed(e.to_string());
        // it is started in its folder, where a relative path leads elsewhere
        let path = std::path::absolute(path).map_err(failed)?;
        let (reader, writer) = io::pipe().map_err(failed)?;
        // the child needs a separate descriptor: the standard streams have locks
        let complaints = writer.try_clone().map_err(failed)?;
        let mut command = Command::new(&path);
        if let Some(user) = &spec.user
            && rustix::process::geteuid().is_root()
        {
            let environment = user.environment(std::env::vars_os());
            command.env_clear().envs(environment);
        }
        command
            .args(&spec.args)
            .envs(spec.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(writer.try_clone().map_err(failed)?)
            .stderr(writer);
        let placing = Placing::of(spec).map_err(failed)?;
        let prepare = move || {
            placing.take_place().map_err(|(step, error)| {
                // only the error number comes back through spawn()
                let _ = rustix::io::write(&complaints, step.as_bytes());
                error
            })
        };
        // SAFETY: between fork and exec only async-signal-safe work is allowed. The
        // closure makes bare system calls and writes constant text to a pipe;
        // it takes no lock and allocates nothing.
        unsafe { command.pre_exec(prepare) };
        let spawned = Parent::spawn(command);
        let output = OutputTail::of(reader).map_err(failed)?;
        match spawned {
            Ok((child, parent)) => Ok(Self {
                child,
                program: spec.name.clone(),
                output,
                exit: None,
                parent,
            }),
            Err(error) => {
                output.wait_end(LAST_WORDS);
                Err(start_failed(match (output.last_line(), &spec.user) {
                    (Some(step), _) => format!("cannot {step}: {error}"),
                    (None, Some(user)) if error.kind() == io::ErrorKind::PermissionDenied => {
                        format!(
                            "the user {} may not execute {}: choose another (--server-user) or \
                             another program",
                            user.name,
                            path.display()
                        )
                    }
                    (None, _) => error.to_string(),
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

    /// The ids of its processes in ascending order: the one started and all that come from
    /// it; empty when it has ended.
    pub fn processes(&self) -> Vec<u32> {
        match self.exit {
            None => process::family(&Roots::default(), self.pid()),
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
            // In this order: if the server has ended, another process answered in its place.
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

    /// Ends it: SIGTERM, and SIGKILL after `patience`; waits for its end. The first
    /// process of a pid namespace does not get a SIGTERM that it neither handles nor
    /// waits for (pid_namespaces(7)), so such a server gets the SIGKILL at once.
    ///
    /// # Errors
    /// [`ServerError::Watch`].
    pub fn shutdown(mut self, patience: Duration) -> Result<ServerExit, ServerError> {
        let patience = match self.parent.is_deaf(self.pid()) {
            true => Duration::ZERO,
            false => patience,
        };
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

/// What the child does between fork and exec.
struct Placing {
    namespace: Option<OwnedFd>,
    affinity: rustix::thread::CpuSet,
    user: Option<Invoker>,
    folder: Option<OwnedFd>,
    open_files: u64,
    /// A pidfd of this process: readable once we have ended.
    spawner: OwnedFd,
}

impl Placing {
    fn of(spec: &ServerSpec<'_>) -> io::Result<Self> {
        let copy = |fd: BorrowedFd<'_>| fd.try_clone_to_owned();
        let user = spec.user.as_ref().map(Invoker::with_primary_group);
        Ok(Self {
            namespace: spec.namespace.map(|n| copy(n.as_fd())).transpose()?,
            affinity: spec.cpus.to_affinity(),
            user: user.filter(|user| !user.is_current()),
            folder: spec.folder.map(|folder| copy(folder.as_fd())).transpose()?,
            open_files: spec.open_files,
            spawner: pidfd_open(getpid(), PidfdFlags::empty())?,
        })
    }

    /// Async-signal-safe: bare system calls, no lock, no allocation. The text names the
    /// step that failed.
    fn take_place(&self) -> Result<(), (&'static str, io::Error)> {
        let step =
            |name, result: rustix::io::Result<()>| result.map_err(|e| (name, io::Error::from(e)));
        step("begin a session", rustix::process::setsid().map(drop))?;
        if let Some(namespace) = &self.namespace {
            step(
                "enter its network namespace",
                netns::enter(namespace.as_fd()),
            )?;
        }
        step(
            "bind to its CPUs",
            rustix::thread::sched_setaffinity(None, &self.affinity),
        )?;
        if let Some(folder) = &self.folder {
            step("enter its folder", rustix::process::fchdir(folder))?;
        }
        raise_open_files(self.open_files);
        if let Some(user) = &self.user {
            user.assume_until_exec()
                .map_err(|error| ("change its user", error))?;
        }
        die_with(&self.spawner).map_err(|error| ("make it end with its parent", error))
    }
}

/// Raises the limit of open files to `wanted`, and the hard limit with it where we may; otherwise
/// only up to the hard limit. A server that needs more reports it itself.
fn raise_open_files(wanted: u64) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = |maximum: Option<u64>| Rlimit {
        current: Some(maximum.map_or(wanted, |maximum| wanted.min(maximum))),
        maximum,
    };
    if current.is_none_or(|current| current >= wanted) {
        return;
    }
    let more = maximum.map(|maximum| maximum.max(wanted));
    if setrlimit(Resource::Nofile, raised(more)).is_err() {
        let _ = setrlimit(Resource::Nofile, raised(maximum));
    }
}
