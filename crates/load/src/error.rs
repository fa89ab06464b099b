//! Why a load cannot be produced.

use std::io;

use taillab_model::Nanos;
use taillab_queueing::arrivals::ArrivalError;

use crate::Endpoint;
use crate::wrong_answer::WrongAnswer;

/// Why a load cannot be produced. Each text names the cause and the remedy.
///
/// Failures of single requests are not errors: they are counted in the record.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The process may not open as many files as there are connections.
    #[error(
        "{connections} connections need about {needed} open files, but the limit is lower: raise \
         it with `ulimit -n {needed}` or use fewer connections"
    )]
    TooManyFiles {
        /// Connections asked for.
        connections: usize,
        /// Open files needed, with room for the rest of the process.
        needed: usize,
    },
    /// There are not enough local ports for this many connections to one server.
    #[error(
        "no local port is left for {connections} connections to {server}: widen `sysctl \
         net.ipv4.ip_local_port_range`, use fewer connections, or wait a minute until old ones \
         time out"
    )]
    TooManyPorts {
        /// The server that they were for.
        server: Endpoint,
        /// Connections asked for.
        connections: usize,
    },
    /// A socket to the server cannot be opened.
    #[error("cannot open a socket to {server}: {source}; check the address and the route to it")]
    Socket {
        /// The server that it was for.
        server: Endpoint,
        /// What the kernel said.
        source: io::Error,
    },
    /// The server's host says that nothing listens there.
    #[error(
        "nothing listens at {server}: start the server there{}",
        server.memcached_hint()
    )]
    Refused {
        /// The server.
        server: Endpoint,
    },
    /// The server does not answer.
    #[error(
        "no answer from {server} to {requests} requests for {waited}: {}",
        no_answer(server, said.as_ref())
    )]
    NoAnswer {
        /// The server.
        server: Endpoint,
        /// Requests that were sent, repeated ones included, and have no answer.
        requests: u64,
        /// Since the last answer, or since the first request.
        waited: Nanos,
        /// The first wrong answer that the client noted.
        said: Option<WrongAnswer>,
    },
    /// The server refused to store keys.
    #[error("{server} refused to store {refused} of {keys} keys{}", not_stored(said.as_ref()))]
    NotStored {
        /// The server.
        server: Endpoint,
        /// Keys it refused.
        refused: u64,
        /// Keys to be stored.
        keys: u64,
        /// The first wrong answer that the client noted.
        said: Option<WrongAnswer>,
    },
    /// The server lost what it had stored.
    #[error(
        "{server} no longer has {missing} of {sampled} keys that were just stored: give it more \
         memory (memcached: -m) or use fewer keys"
    )]
    Evicted {
        /// The server.
        server: Endpoint,
        /// Keys of the sample that are missing.
        missing: u64,
        /// Keys in the sample.
        sampled: u64,
    },
    /// The protocol does not run over the endpoint's transport.
    #[error(
        "this protocol cannot be used with {server}: choose a TCP or Unix target for a stream \
         protocol and a UDP target for datagrams"
    )]
    WrongTransport {
        /// The endpoint, which determines the transport.
        server: Endpoint,
    },
    /// There is no client thread.
    #[error("the number of client threads must be at least 1")]
    NoThreads,
    /// A client thread cannot be started or prepared.
    #[error("client thread {thread} cannot be set up: {source}; use fewer threads or other CPUs")]
    Thread {
        /// The thread's number, from 0.
        thread: usize,
        /// What failed.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A client thread panicked, which is a bug in this program.
    #[error("client thread {thread} panicked: {said}; run again, and report this if it persists")]
    ThreadPanicked {
        /// The thread's number, from 0.
        thread: usize,
        /// The message of the panic; empty if it had no text.
        said: String,
    },
    /// The number of schedules is not the number of client threads.
    #[error("{schedules} schedules were given for {threads} client threads: give one for each")]
    Schedules {
        /// Schedules given.
        schedules: usize,
        /// Client threads.
        threads: usize,
    },
    /// There is no connection.
    #[error("the number of connections must be at least 1")]
    NoConnections,
    /// A set does not fit one datagram.
    #[error(
        "a value of {value_bytes} bytes does not fit one datagram with its key: use at most \
         {limit} bytes"
    )]
    ValueTooLarge {
        /// Size asked for.
        value_bytes: usize,
        /// Largest size with keys of this length.
        limit: usize,
    },
    /// Keys are too long for the server, or too short to be different.
    #[error("{keys} keys need between {min} and {max} bytes each, not {key_bytes}")]
    KeySize {
        /// Size asked for.
        key_bytes: usize,
        /// Keys asked for.
        keys: u32,
        /// Digits that the largest key number needs.
        min: usize,
        /// The server's limit.
        max: usize,
    },
    /// There is no key, or there are more than the record can number.
    #[error("the number of keys must be between 1 and {max}, not {keys}")]
    Keys {
        /// Number asked for.
        keys: u32,
        /// The maximum.
        max: u32,
    },
    /// The distribution of keys is unknown.
    #[error(
        "keys cannot be drawn as {0:?}: use uniform, or zipf:S with an exponent S above 0 and at \
         most 16"
    )]
    KeyDistribution(String),
    /// The protocol cannot carry a message of this size.
    #[error("{what} cannot have {bytes} bytes: use between {min} and {max}")]
    MessageSize {
        /// Which message.
        what: &'static str,
        /// Size asked for.
        bytes: usize,
        /// Smallest size.
        min: usize,
        /// Largest size.
        max: usize,
    },
    /// A part of the request would break it.
    #[error("the {what} {text:?} cannot be sent: {remedy}")]
    RequestText {
        /// Which part.
        what: &'static str,
        /// Its text.
        text: String,
        /// What to use instead.
        remedy: &'static str,
    },
    /// The share of gets is not between 0 and 1.
    #[error("the share of gets must be between 0 and 1, not {0}")]
    GetShare(f64),
    /// There is nothing to send.
    #[error("the schedule has no requests: use a higher rate or a longer measurement")]
    EmptySchedule,
    /// The schedule is not sorted.
    #[error("the schedule goes backwards at request {at}: sort it by time")]
    UnsortedSchedule {
        /// The first request that is due earlier than the one before it.
        at: usize,
    },
    /// The warm-up is as long as the schedule.
    #[error(
        "the measurement would start at request {measure_from} of {requests}: use a shorter \
         warm-up or a longer measurement"
    )]
    NothingMeasured {
        /// First request of the measurement.
        measure_from: usize,
        /// Requests in the schedule.
        requests: usize,
    },
    /// A closed loop has no request in flight, or more than it can track.
    #[error("requests in flight must be between 1 and {max}, not {outstanding}")]
    Outstanding {
        /// Number asked for.
        outstanding: usize,
        /// The maximum.
        max: usize,
    },
    /// The schedule cannot be made.
    #[error(transparent)]
    Arrivals(#[from] ArrivalError),
}

/// Why the server may have refused to store keys, and what to do.
fn not_stored(said: Option<&WrongAnswer>) -> String {
    let line = said.map(ToString::to_string).unwrap_or_default();
    let remedy = match line.split(' ').next() {
        Some("-DENIED") => "start Redis with --protected-mode no, or measure it on loopback",
        Some("-NOAUTH") => "start Redis without a password, since none is sent",
        Some("-READONLY") => "measure the primary, since a replica stores nothing",
        Some("-MOVED") => "measure a Redis that is not part of a cluster",
        // Redis, memcached
        _ if line.contains("number of clients") || line.contains("open connections") => {
            "use fewer connections, or let it accept more (memcached: -c, Redis: --maxclients)"
        }
        _ => "give it more memory (memcached: -m) or use fewer or smaller keys and values",
    };
    match said {
        Some(_) => format!(" (it said `{line}`): {remedy}"),
        None => format!(": {remedy}"),
    }
}

/// Why there may be no answer, and what to do.
fn no_answer(server: &Endpoint, said: Option<&WrongAnswer>) -> String {
    match said.map(|said| (said, said.speaks())) {
        Some((said, Some(protocol))) => format!(
            "this port speaks {protocol} (it said `{said}`): use that protocol's scheme in the \
             target, or another port"
        ),
        Some((said, None)) => format!(
            "the answer does not follow this protocol (it said `{said}`): check the port and the \
             protocol"
        ),
        None => format!(
            "check that it runs, that it speaks this protocol there{}, that no firewall blocks it, \
             and that it is not too busy to answer",
            server.memcached_hint()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_to_store_has_the_remedy_for_what_the_server_said() {
        for (said, remedy) in [
            ("-DENIED Redis is running in", "protected-mode"),
            ("-NOAUTH Authentication required.", "password"),
            ("-READONLY You can't write", "primary"),
            ("-MOVED 3999 127.0.0.1:6381", "cluster"),
            ("-ERR max number of clients reached", "--maxclients"),
            ("ERROR Too many open connections", "fewer connections"),
            ("SERVER_ERROR out of memory", "more memory"),
        ] {
            let text = not_stored(Some(&WrongAnswer::of(said.as_bytes())));
            assert!(text.contains(said) && text.contains(remedy), "{text}");
        }
        assert!(not_stored(None).contains("more memory"));
    }
}
