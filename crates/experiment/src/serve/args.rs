//! The command line of `taillab serve`.

use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueHint};
use taillab_console::args::{Output, size, workers, wrapped};
use taillab_host::CpuSet;
use taillab_load::fault::Fault;
use taillab_load::serve::{Architecture, Listen};
use taillab_queueing::service::Service;

const EXIT_CODES: &str = "Exit codes:\n  0    stopped by Ctrl-C or SIGTERM: that is how a server \
    ends\n  1    something failed, e.g. the port is taken\n  2    wrong command line\n  5    a \
    privilege is missing, e.g. for a port below 1024";

/// The text below the options.
fn help() -> String {
    format!(
        "A request has --request-bytes, its answer --response-bytes; the answer begins with the first bytes \
         of the request. On TCP and Unix sockets, requests follow each other without separators. The first \
         two bytes of a datagram are its id; a datagram of another length is counted and gets no answer.\n\n\
         With --json there are two objects, each on a line: `\"event\": \"listening\"` when requests are \
         accepted, and `\"event\": \"stopped\"` with what was served.\n\n\
         Notation (times need a unit: ns, us, ms, s):\n  service   none, spin:DIST (keeps the CPU busy), \
         wait:DIST (sleeps)\n  DIST      {},\n            empirical:FILE (measured times, as in taillab sim)\n  fault     {}\n\nExamples:\n  \
         taillab serve null-rpc\n  \
         taillab serve epoll-per-worker --workers 4 --service spin:exponential:50us --cpus 0-3\n  \
         taillab serve udp-shared --listen [::1]:7777 --workers 8 --service wait:exponential:1ms\n  \
         taillab serve epoll-shared --listen unix:/run/user/1000/echo.sock\n  \
         taillab load echo+tcp://127.0.0.1:7777 -R 5000\n\n{EXIT_CODES}",
        wrapped(Service::NOTATION, 12),
        wrapped(Fault::NOTATION, 12)
    )
}

/// Run one of the built-in servers, until Ctrl-C.
///
/// They are echo servers, and differ only in how they divide requests among threads: a thread for each
/// connection, one queue for all workers, or a queue for each worker. They listen on loopback unless
/// --listen is given.
#[derive(Debug, Args)]
#[command(after_help = help())]
pub struct ServeArgs {
    /// How requests are divided among threads
    #[arg(value_parser = architectures())]
    pub architecture: Architecture,

    /// Where to listen: ADDRESS:PORT, a port of loopback, or unix:PATH
    #[arg(short, long, value_name = "WHERE", default_value = "127.0.0.1:7777")]
    pub listen: Listen,
    /// Worker threads; null-rpc has one for each connection instead [default: 1]
    #[arg(short, long, value_name = "N", value_parser = workers, allow_hyphen_values = true)]
    pub workers: Option<NonZeroU32>,
    /// The work of a worker for a request
    #[arg(long, value_name = "none|spin:DIST|wait:DIST", default_value = "none")]
    pub service: String,
    /// Seed of the service times; each worker has its own stream
    #[arg(hide_short_help = true, long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Length of a request
    #[arg(
        hide_short_help = true,
        long,
        value_name = "BYTES",
        default_value_t = 128,
        value_parser = size::<usize>
    )]
    pub request_bytes: usize,
    /// Length of an answer
    #[arg(
        hide_short_help = true,
        long,
        value_name = "BYTES",
        default_value_t = 128,
        value_parser = size::<usize>
    )]
    pub response_bytes: usize,
    /// CPUs that the server may use, e.g. 0-1 [default: all]
    #[arg(short = 'C', long, value_name = "CPUS")]
    pub cpus: Option<CpuSet>,
    /// Workers poll for requests and never sleep (not null-rpc)
    #[arg(long)]
    pub busy: bool,
    /// A deliberate fault, to see whether an analysis finds it; may be repeated
    #[arg(long, value_name = "KIND:PARAMETERS", help_heading = "Faults")]
    pub fault: Vec<Fault>,
    /// At the end, write the time of each fault to this file (JSON)
    #[arg(hide_short_help = true,
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        requires = "fault",
        help_heading = "Faults"
    )]
    pub fault_log: Option<PathBuf>,
    #[allow(missing_docs, reason = "the help of its options says what they are")]
    #[command(flatten)]
    pub common: Output,
}

fn architectures() -> impl TypedValueParser<Value = Architecture> {
    let values = Architecture::ALL.map(|architecture| {
        PossibleValue::new(architecture.name()).help(match architecture {
            Architecture::NullRpc => "A thread for each connection, blocking read and write",
            Architecture::EpollShared => "Workers on one epoll: any worker, any connection",
            Architecture::EpollPerWorker => {
                "An epoll for each worker: connections are assigned in turn, and stay"
            }
            Architecture::UdpShared => "Workers on one UDP socket: one queue",
            Architecture::UdpReuseport => {
                "A UDP socket for each worker (SO_REUSEPORT): the kernel assigns by flow"
            }
        })
    });
    PossibleValuesParser::new(values).try_map(|name| name.parse::<Architecture>())
}
