//! What a plan is made for: the server's threads, its CPUs and devices, and everybody else.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::error::TuneError;
use super::proposal::Unavailable;
use crate::cpus::{self, CpuSet};
use crate::netns::NetNamespace;
use crate::process::{ProcessIdentity, Stat, numbers_in, threads};
use crate::roots::{Roots, read_optional, status};
use crate::target::{comm, whole_server};

/// What the user has named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// A process of the server; all of the server is meant.
    pub pid: Option<u32>,
    /// A network device.
    pub device: Option<String>,
    /// The CPUs of the server.
    pub cpus: Option<CpuSet>,
}

/// A thread of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its number and its start.
    pub identity: ProcessIdentity,
    /// The process that it belongs to.
    pub process: u32,
    /// The thread's name (`/proc/PID/task/TID/comm`).
    pub name: String,
    /// A thread of the kernel.
    pub is_kernel: bool,
    /// The kernel has bound it to its CPUs for good.
    pub is_bound: bool,
    /// It runs before ordinary threads (a real-time or deadline policy).
    pub is_real_time: bool,
    /// The CPUs on which it may run.
    pub cpus: CpuSet,
}

/// The server that is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerThreads {
    /// The process that was named.
    pub process: ProcessIdentity,
    /// That process's name (`/proc/PID/comm`).
    pub name: String,
    /// All processes of the server ([`whole_server`]).
    pub processes: Vec<u32>,
    /// All their threads.
    pub threads: Vec<Thread>,
}

impl ServerThreads {
    /// The first thread of each process.
    pub fn leaders(&self) -> impl Iterator<Item = &Thread> {
        let threads = self.threads.iter();
        threads.filter(|thread| thread.identity.pid == thread.process)
    }
}

/// What a plan is made for.
#[derive(Clone, Debug)]
pub struct Scene {
    /// The machine.
    pub roots: Roots,
    /// The CPUs that are online.
    pub online: CpuSet,
    /// The server, if one is named.
    pub server: Option<ServerThreads>,
    /// The CPUs that are to be kept free: those named, else the server's, else all.
    pub cpus: CpuSet,
    /// The CPUs were named.
    pub cpus_are_named: bool,
    /// The inode of the server's network namespace; `None` for ours.
    pub namespace: Option<u64>,
    /// The network device, if one is named.
    pub device: Option<String>,
}

impl Scene {
    /// Looks at the machine.
    ///
    /// # Errors
    /// [`TuneError::Scope`] where something that is named does not exist.
    pub fn look(roots: &Roots, scope: &Scope) -> Result<Self, TuneError> {
        let online = cpus::online(roots).ok_or_else(|| {
            TuneError::Scope(
                "the kernel does not say which CPUs are online: mount sysfs on /sys".into(),
            )
        })?;
        let server = scope.pid.map(|pid| server(roots, pid)).transpose()?;
        if let Some(wanted) = &scope.cpus {
            let offline = wanted.difference(&online);
            if !offline.is_empty() {
                return Err(TuneError::Scope(format!(
                    "CPU {offline} is offline or does not exist: choose among {online}"
                )));
            }
        }
        let of_server = server.as_ref().map(|server| {
            let all = server.threads.iter().flat_map(|thread| thread.cpus.iter());
            all.collect::<CpuSet>().intersection(&online)
        });
        let namespace = scope.pid.and_then(|pid| other_namespace(roots, pid));
        let scene = Self {
            roots: roots.clone(),
            cpus_are_named: scope.cpus.is_some(),
            cpus: scope
                .cpus
                .clone()
                .or(of_server)
                .unwrap_or_else(|| online.clone()),
            online,
            server,
            namespace,
            device: scope.device.clone(),
        };
        if let Some(device) = &scope.device
            && !scene.all_devices().contains(device)
        {
            return Err(TuneError::Scope(format!(
                "there is no network device \"{device}\"{}: choose among {}",
                if namespace.is_some() {
                    " in the server's network namespace"
                } else {
                    ""
                },
                scene.all_devices().join(", ")
            )));
        }
        Ok(scene)
    }

    /// The server.
    ///
    /// # Errors
    /// Where none is named.
    pub fn server(&self) -> Result<&ServerThreads, Unavailable> {
        self.server.as_ref().ok_or_else(|| {
            Unavailable("it applies to one server: name one of its processes with -p PID".into())
        })
    }

    /// The CPUs that remain for everything else.
    ///
    /// # Errors
    /// Where none remains.
    pub fn other_cpus(&self) -> Result<CpuSet, Unavailable> {
        let others = self.online.difference(&self.cpus);
        if !others.is_empty() {
            return Ok(others);
        }
        let example = self.online.iter().last().unwrap_or_default();
        Err(Unavailable(
            match self.cpus_are_named || self.online.len() < 2 {
                true => format!("no CPU other than {} is left", self.cpus),
                false => format!(
                    "the server may use every CPU ({}): name those that it should keep, e.g. -C \
                     {example}",
                    self.cpus
                ),
            },
        ))
    }

    /// The network devices that are meant: the one named, else those of the namespace that have
    /// received anything, without the loopback.
    ///
    /// # Errors
    /// Where there is none.
    pub fn devices(&self) -> Result<Vec<String>, Unavailable> {
        if let Some(device) = &self.device {
            return Ok(vec![device.clone()]);
        }
        let devices = self.devices_with(|name, received| name != "lo" && received > 0);
        match devices.is_empty() {
            true => Err(Unavailable(
                "no network device but the loopback has received anything: name one with --device"
                    .into(),
            )),
            false => Ok(devices),
        }
    }

    fn all_devices(&self) -> Vec<String> {
        self.devices_with(|_, _| true)
    }

    fn devices_with(&self, wanted: impl Fn(&str, u64) -> bool) -> Vec<String> {
        let process = match (&self.server, self.namespace) {
            (Some(server), Some(_)) => server.process.pid.to_string(),
            _ => "self".to_owned(),
        };
        let text = read_optional(&self.roots.proc.join(process).join("net/dev"));
        let lines = text.as_deref().unwrap_or_default().lines();
        lines
            .filter_map(|line| {
                let (name, counts) = line.split_once(':')?;
                let packets = counts.split_ascii_whitespace().nth(1)?.parse().ok()?;
                wanted(name.trim(), packets).then(|| name.trim().to_owned())
            })
            .collect()
    }

    /// Every thread of the machine except those of the server, of this process and of its ancestors:
    /// the user who applies something must stay able to revert it.
    pub fn others(&self) -> Vec<Thread> {
        let mut spared: HashSet<u32> = HashSet::from_iter(ancestors(&self.roots));
        spared.extend(self.server.iter().flat_map(|server| &server.processes));
        let pids = numbers_in(&self.roots.proc).into_iter();
        pids.filter(|pid| !spared.contains(pid))
            .flat_map(|pid| threads_of(&self.roots, pid))
            .collect()
    }

    /// The text of a file of the machine.
    pub fn text(&self, path: &str) -> Option<String> {
        read_optional(&self.place(path)?)
    }

    /// Whether a file or a folder of the machine exists.
    pub fn has(&self, path: &str) -> bool {
        self.place(path).is_some_and(|place| place.exists())
    }

    fn place(&self, path: &str) -> Option<PathBuf> {
        let below = |root: &Path, prefix| Some(root.join(path.strip_prefix(prefix)?));
        below(&self.roots.proc, "/proc/").or_else(|| below(&self.roots.sys, "/sys/"))
    }

    /// The names in a folder of /sys or /proc.
    pub fn names(&self, path: &str) -> Vec<String> {
        let entries = self.place(path).map(fs::read_dir).into_iter();
        let entries = entries.flatten().flatten().flatten();
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort_by_key(|name| (name.len(), name.clone()));
        names
    }

    /// The first process with one of these names, with that name.
    pub fn running(&self, names: &[&str]) -> Option<(u32, String)> {
        numbers_in(&self.roots.proc)
            .into_iter()
            .map(|pid| (pid, comm(&self.roots, pid)))
            .find(|(_, name)| names.contains(&name.as_str()))
    }
}

fn server(roots: &Roots, pid: u32) -> Result<ServerThreads, TuneError> {
    let gone = || {
        TuneError::Scope(format!(
            "there is no process {pid}: it has ended, or the number is wrong"
        ))
    };
    let process = ProcessIdentity::of(roots, pid).ok_or_else(gone)?;
    let processes =
        whole_server(roots, pid).map_err(|error| TuneError::Scope(error.to_string()))?;
    let threads: Vec<Thread> = (processes.iter())
        .flat_map(|pid| threads_of(roots, *pid))
        .collect();
    if threads.iter().any(|thread| thread.is_kernel) {
        return Err(TuneError::Scope(format!(
            "process {pid} is a kernel thread ({}): name a server",
            comm(roots, pid)
        )));
    }
    match threads.is_empty() {
        true => Err(gone()),
        false => Ok(ServerThreads {
            process,
            name: comm(roots, pid),
            processes,
            threads,
        }),
    }
}

fn threads_of(roots: &Roots, pid: u32) -> Vec<Thread> {
    let thread = |tid: u32| {
        let stat = Stat::read(&roots.proc.join(format!("{pid}/task/{tid}/stat")))?;
        let allowed = status(roots, format!("{pid}/task/{tid}"), "Cpus_allowed_list");
        (!stat.is_dead()).then(|| Thread {
            identity: ProcessIdentity {
                pid: tid,
                start_time_ticks: stat.start_time_ticks,
            },
            process: pid,
            is_kernel: stat.is_kernel(),
            is_bound: stat.is_bound(),
            is_real_time: stat.is_real_time(),
            name: stat.comm,
            cpus: allowed
                .and_then(|list| list.parse().ok())
                .unwrap_or_default(),
        })
    };
    threads(roots, pid).into_iter().filter_map(thread).collect()
}

/// This process and those above it.
fn ancestors(roots: &Roots) -> Vec<u32> {
    let mut all = Vec::new();
    let mut next = Some(std::process::id());
    while let Some(pid) = next.filter(|pid| *pid > 1 && !all.contains(pid)) {
        all.push(pid);
        next = Stat::of(roots, pid).map(|stat| stat.parent);
    }
    all
}

/// The inode of a process's network namespace, where it is not ours.
fn other_namespace(roots: &Roots, pid: u32) -> Option<u64> {
    let inode = NetNamespace::of_process(roots, pid)?.inode();
    let ours = NetNamespace::current().ok()?.inode();
    (inode != ours).then_some(inode)
}
