//! The command line of `taillab rtt`.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum, ValueHint};
use taillab_console::args::{Output, count, rate, size};
use taillab_experiment::args::load_share;
use taillab_host::CpuSet;
use taillab_host::doctor::Needs;
use taillab_host::doctor::capability::{
    BPF, DAC_OVERRIDE, DAC_READ_SEARCH, NET_ADMIN, NET_RAW, PERFMON, SYS_ADMIN,
};
use taillab_load::rtt::{Mode, Proto, RDMA};
use taillab_model::Nanos;

const HELP: &str = "A message begins with the header of sockperf, so `sockperf server` answers (with --tcp \
    for TCP), as does any other server that sends back what it receives. Modes that a protocol does not \
    have, and sizes that it does not carry, are skipped.\n\n\
    RDMA (rdma is rdma-send) needs libibverbs and a device. Between namespaces (--link veth), soft RoCE is \
    used if its module is loaded: it shows that the exchange works, but not the latency of an adapter. \
    A read or a write ends when the device reports its completion; no thread of the server takes part.\n\n\
    Modes:\n  blocking     a receive call that sleeps\n  nonblocking  repeated receive calls; in \
    shared memory, polling\n  epoll        epoll_wait, then a receive call\n  busy-poll    a receive call \
    that polls the device first (SO_BUSY_POLL)\n  io_uring     one io_uring_enter for a send and a \
    receive\n\nExamples:\n  \
    taillab rtt\n  \
    taillab rtt --proto tcp,udp,unix,shm --mode blocking,nonblocking,epoll -o rtt\n  \
    taillab rtt --proto tcp --size 64..512K --runs 3\n  \
    taillab rtt --proto tcp --conns 1,2,4,8 --size 1K\n  \
    sudo taillab rtt --link veth --proto udp --size 64,1472 --mode blocking,busy-poll\n  \
    sudo taillab rtt --link veth --mtu 9000 --proto udp --size 8K\n  \
    sudo taillab rtt --proto tcp,udp,shm --explain -o rtt\n  \
    taillab rtt --proto tcp,shm -u 50%\n  \
    taillab rtt --proto udp --target 192.0.2.7:11111 --json\n  \
    sudo taillab rtt --link veth --proto rdma-send,rdma-read,rdma-write --mode blocking";

const EXIT_CODES: &str = "Exit codes:\n  0    everything went well\n  1    something failed; what was \
    measured before is printed and marked\n  2    wrong command line\n  4    an open loop had no answer\n  5    a privilege or a \
    kernel feature is missing\n  130  interrupted; what was measured is kept";

/// The privileges that it can use.
pub const NEEDS: Needs = Needs {
    least: &[],
    more: &[
        (
            "joins two namespaces",
            &[SYS_ADMIN, NET_ADMIN, DAC_OVERRIDE],
        ),
        (
            "measures xdp",
            &[SYS_ADMIN, NET_ADMIN, NET_RAW, DAC_OVERRIDE],
        ),
        ("explains the tail", &[BPF, PERFMON, DAC_READ_SEARCH]),
    ],
};

fn help() -> String {
    format!("{HELP}\n\n{}\n\n{EXIT_CODES}", NEEDS.said())
}

/// Measure round trips of single messages over network protocols, up to p99.999.
///
/// A client sends a message, waits until it has come back, and sends the next one, as in
/// *Deconstructing the Tail at Scale Effect*: 100,000 times in each of ten runs. The result shows how the
/// tail differs between protocols, sizes, numbers of connections and modes of waiting, whether slow round
/// trips come alone or in bursts, and how long the slowest of many nodes would take. It starts the server
/// on this host, unless --target names one.
#[derive(Debug, Args)]
#[command(after_help = help())]
pub struct RttArgs {
    /// The protocols
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "tcp,udp", value_parser = protos(), help_heading = "Messages")]
    pub proto: Vec<Proto>,
    /// How both ends wait for a message [default: blocking; nonblocking for rdma, xdp and shm]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = modes(), help_heading = "Messages")]
    pub mode: Vec<Mode>,
    /// Bytes of a message: 64, 1K, several (64,1K), or 64..512K in doublings
    #[arg(
        long,
        value_name = "BYTES,...",
        default_value = "1K",
        value_parser = sizes,
        help_heading = "Messages"
    )]
    pub size: Sizes,
    /// Simultaneous connections, each with one message in flight
    #[arg(
        long,
        value_name = "N,...",
        value_delimiter = ',',
        default_value = "1",
        value_parser = count::<NonZeroU32>,
        help_heading = "Messages"
    )]
    pub conns: Vec<NonZeroU32>,
    /// Round trips in a run, over all connections: 100000, 100k, 1M
    #[arg(
        long,
        value_name = "N",
        default_value = "100000",
        value_parser = count::<NonZeroU64>,
        help_heading = "Messages"
    )]
    pub count: NonZeroU64,
    /// Runs, each with new connections
    #[arg(
        long,
        value_name = "N",
        default_value = "10",
        value_parser = count::<NonZeroU32>,
        help_heading = "Messages"
    )]
    pub runs: NonZeroU32,
    /// End a run after this time, even before its --count [default: 60s with --open or -u, else no limit]
    #[arg(hide_short_help = true, long, value_name = "TIME", value_parser = timeout, help_heading = "Messages")]
    pub at_most: Option<Nanos>,
    /// Round trips on each connection before the measured ones
    #[arg(
        hide_short_help = true,
        long,
        value_name = "N",
        default_value_t = 1_000,
        value_parser = count::<u64>,
        help_heading = "Messages"
    )]
    pub warmup: u64,
    /// How long to wait for an answer
    #[arg(hide_short_help = true, long, value_name = "TIME", default_value = "1s", value_parser = timeout, help_heading = "Messages")]
    pub timeout: Nanos,

    /// Send by a schedule (Poisson) that does not wait for answers, at half of the capacity unless -R or
    /// -u is given; each round trip counts from when it was due
    #[arg(long, help_heading = "Open loop")]
    pub open: bool,
    /// Open loop with this rate in messages per second: 20000, 20k
    #[arg(short = 'R', long, value_name = "PER_S", value_parser = rate, conflicts_with = "utilization", allow_hyphen_values = true, help_heading = "Open loop")]
    pub rate: Option<f64>,
    /// Open loop with a share of the capacity, which is measured first: 50%
    #[arg(short, long, value_name = "SHARE", value_parser = load_share, allow_hyphen_values = true, help_heading = "Open loop")]
    pub utilization: Option<f64>,

    /// Explain the tail: measure once more with the kernel probe, and divide each round trip into its
    /// parts at both ends (tcp and udp; needs root)
    #[arg(long, conflicts_with_all = ["target", "open", "rate", "utilization"])]
    pub explain: bool,

    /// An echo server that is already running: HOST:PORT, or unix:PATH; for RDMA, --serve on another host
    #[arg(long, value_name = "WHERE", help_heading = "Ends")]
    pub target: Option<String>,
    /// Run the RDMA server at this address of an RDMA device until Ctrl-C, for --target on another host
    #[arg(
        hide_short_help = true,
        long,
        value_name = "ADDRESS:PORT",
        conflicts_with_all = ["target", "link", "output"],
        help_heading = "Ends"
    )]
    pub serve: Option<SocketAddr>,
    /// How client and server are connected
    #[arg(
        long,
        value_name = "KIND",
        default_value = "loopback",
        conflicts_with = "target",
        help_heading = "Ends"
    )]
    pub link: LinkKind,
    /// MTU of the veth devices, e.g. 9000 for jumbo frames [default: 1500]
    #[arg(hide_short_help = true, long, value_name = "BYTES", value_parser = mtu, help_heading = "Ends")]
    pub mtu: Option<u32>,
    /// Whether AF_XDP copies packets
    #[arg(
        hide_short_help = true,
        long,
        value_name = "HOW",
        default_value = "copy",
        help_heading = "Ends"
    )]
    pub xdp: XdpKind,
    /// CPUs of the client, e.g. 1 or 2-3 [default: one that the server does not use]
    #[arg(long, value_name = "CPUS", help_heading = "Ends")]
    pub client_cpus: Option<CpuSet>,
    /// CPUs of the server [default: the first one]
    #[arg(
        short = 'C',
        long,
        value_name = "CPUS",
        conflicts_with = "target",
        help_heading = "Ends"
    )]
    pub server_cpus: Option<CpuSet>,

    /// Save the result in this new directory: report.html, result.json, ccdf.svg, and for each row
    /// every round trip (Parquet), an HdrHistogram log and its figures [default: it is printed only]
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub common: Output,
}

/// Sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes(pub Vec<usize>);

/// How client and server are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LinkKind {
    /// The loopback interface of this namespace
    Loopback,
    /// Two network namespaces joined by veth; needs root
    Veth,
}

/// How AF_XDP gets packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum XdpKind {
    /// The kernel copies them (any driver)
    Copy,
    /// The device writes into the memory of the program (few drivers)
    ZeroCopy,
}

fn protos() -> impl TypedValueParser<Value = Proto> {
    let values = Proto::ALL.map(|proto| {
        let value = PossibleValue::new(proto.name());
        match proto {
            Proto::RdmaSend => value.alias(RDMA),
            _ => value,
        }
    });
    PossibleValuesParser::new(values).try_map(|name| name.parse::<Proto>())
}

fn modes() -> impl TypedValueParser<Value = Mode> {
    PossibleValuesParser::new(Mode::ALL.map(Mode::name)).try_map(|name| name.parse::<Mode>())
}

fn sizes(text: &str) -> Result<Sizes, String> {
    let mut all = Vec::new();
    for part in text.split(',') {
        match part.split_once("..") {
            None => all.push(size(part)?),
            Some((from, to)) => {
                let (from, to): (usize, usize) = (size(from)?, size(to)?);
                if from == 0 || to < from {
                    return Err(format!("`{part}` must go up, e.g. 64..512K"));
                }
                let doubled = std::iter::successors(Some(from), |size| size.checked_mul(2));
                all.extend(doubled.take_while(|size| *size <= to));
            }
        }
    }
    Ok(Sizes(all))
}

/// What IP allows.
fn mtu(text: &str) -> Result<u32, String> {
    let bytes: u32 = size(text)?;
    match (68..=65_535).contains(&bytes) {
        true => Ok(bytes),
        false => Err(format!("{bytes} is not in 68..=65535")),
    }
}

fn timeout(text: &str) -> Result<Nanos, String> {
    match text.parse::<Nanos>() {
        Ok(length) if length >= Nanos::from_millis(1) => Ok(length),
        Ok(_) => Err("wait at least 1ms".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_lists_and_doublings() {
        assert_eq!(sizes("64,1K,1472"), Ok(Sizes(vec![64, 1024, 1472])));
        assert_eq!(sizes("64..512").unwrap().0, [64, 128, 256, 512]);
        assert_eq!(sizes("64..512K").unwrap().0.last(), Some(&(512 << 10)));
        assert_eq!(sizes("1m"), Ok(Sizes(vec![1 << 20])));
        for wrong in [
            "",
            "1G",
            "x",
            "512..64",
            "0..8",
            "-1",
            "64..",
            "99999999999999999999K",
        ] {
            assert!(sizes(wrong).is_err(), "{wrong}");
        }
    }
}
