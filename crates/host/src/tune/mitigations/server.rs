//! What only the server itself can do, by an option that it takes when it starts.

use taillab_model::mitigation;

use super::Mitigation;
use crate::tune::proposal::{Proposal, Unavailable};
use crate::tune::scene::{Scene, ServerThreads};

pub(super) const SERVER_THREADS: Mitigation = Mitigation {
    is: mitigation::SERVER_THREADS,
    needs: "-p; an option of the server",
    interface: "nothing: the server reads it when it starts (memcached -t, nginx worker_processes, redis-server \
                --io-threads). To measure it: taillab run --server-arg=OPTION",
    undo: "a restart without it",
    proof: "/proc/PID/status: Threads",
    reference: "man 1 memcached; Tales of the Tail, section 4.3",
    plan: server_threads,
};

/// A server that is known by the name of its program.
struct KnownServer {
    /// The process's name (`/proc/PID/comm`).
    name: &'static str,
    /// The option for the number of threads that it starts; `{}` is that number.
    threads: &'static str,
    /// The option that makes it lock its memory, if there is one.
    locks: Option<&'static str>,
}

const KNOWN: &[KnownServer] = &[
    KnownServer {
        name: "memcached",
        threads: "-t {} (and -R 1: one request of a connection in turn)",
        locks: Some("-k"),
    },
    KnownServer {
        name: "nginx",
        threads: "worker_processes {}; in its configuration",
        locks: None,
    },
    KnownServer {
        name: "redis-server",
        threads: "--io-threads {}",
        locks: None,
    },
];

fn known(server: &ServerThreads) -> Option<&'static KnownServer> {
    KNOWN.iter().find(|known| known.name == server.name)
}

/// How a server locks its memory by itself.
pub(super) fn locks_memory(server: &ServerThreads) -> String {
    match known(server).and_then(|known| known.locks) {
        Some(option) => format!("start {} with {option}, which locks all of it", server.name),
        None => format!(
            "{} would have to call mlockall(MCL_CURRENT | MCL_FUTURE) itself, with LimitMEMLOCK=infinity",
            server.name
        ),
    }
}

fn server_threads(scene: &Scene) -> Result<Proposal, Unavailable> {
    let server = scene.server()?;
    let cpus = scene.cpus.len().to_string();
    let threads = match server.threads.len() {
        1 => "1 thread".to_owned(),
        n => format!("{n} threads"),
    };
    let has = format!("{} has {threads} for CPU {}", server.name, scene.cpus);
    Err(Unavailable(match known(server) {
        Some(known) => format!(
            "{has} and takes another number only when it starts: {}",
            known.threads.replace("{}", &cpus)
        ),
        None => format!("{has}: only an option of its own could change that, when it starts"),
    }))
}
