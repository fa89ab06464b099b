//! The command line of `taillab load`.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum, ValueHint};
use taillab_console::args::{LimitArgs, Output, count, limit, numbers, rate, share, size, wrapped};
use taillab_experiment::args::{TraceFileArgs, load_share};
use taillab_experiment::definition::Experiment;
use taillab_load::protocol::PROTOCOLS;
use taillab_load::{Protocol, Target};
use taillab_model::Nanos;
use taillab_model::Objective;
use taillab_model::summary::{ClientKind, Connect};
use taillab_queueing::arrivals::ArrivalProcess;
use taillab_queueing::arrivals::profile::RateProfile;

const EXIT_CODES: &str = "Exit codes:\n  0    everything went well\n  1    something failed, e.g. \
    the server died\n  2    wrong command line\n  3    a limit of --assert is not met; --find: \
    no rate holds the objective\n  4    \
    no request was answered, or an --assert is not decided\n  5    a privilege or a kernel \
    feature is missing\n  130  interrupted; what was measured is kept";

/// Schemes, notation and examples, below the options.
fn help() -> String {
    let usual = Protocol::names().into_iter().filter_map(Protocol::named);
    let ports: Vec<_> = usual
        .map(|protocol| format!("{} {}", protocol.name, protocol.default_port))
        .collect();
    format!(
        "Targets:\n  {}\n  Usual ports: {}. An IPv6 address needs brackets.\n  A Unix socket is \
         named by its path: redis+unix:/run/redis.sock, \
         http+unix:/run/app.sock:/path\n\nNotation:\n  arrivals  {}\n  profile   \
         {}\n\nExamples:\n  \
         taillab load memcached+udp://127.0.0.1 -R 20000 -d 10s\n  \
         taillab load http://[::1]:8080/index.html -R 5k -c 100 -t 2 -H 'Host: example.org'\n  \
         taillab load redis://localhost -u 75%\n  \
         taillab load memcached+tcp://db -R 10k..100k:10k -d 5s -o sweep\n  \
         taillab load memcached+tcp://db --find 'p99.9<=200us'\n  \
         taillab load http://localhost/ --profile 'step:10s@5000,10s@20000'\n  \
         taillab load echo+tcp://localhost:7777 -R max\n\n{EXIT_CODES}",
        wrapped(&Target::schemes(), 2),
        ports.join(", "),
        wrapped(ArrivalProcess::NOTATION, 12),
        RateProfile::EXAMPLE,
    )
}

/// Load a server and measure its latency, with a generator that checks itself.
///
/// Every request has an intended time, from a random process that does not wait for answers (open loop).
/// Its response time counts from that intended time, so neither a stalled server nor a late generator can
/// hide how long users would have waited. The result also shows how late the generator was, which arrival
/// process it really sent, and the floor: what the same client measures with a server that does nothing.
#[derive(Debug, Args)]
#[command(after_help = help())]
pub struct LoadArgs {
    /// The server, e.g. memcached+udp://127.0.0.1:11211
    pub target: Target,
    #[command(flatten)]
    pub common: Output,
    #[command(flatten, next_help_heading = "Load")]
    pub load: ScheduleArgs,
    #[command(flatten, next_help_heading = "Client")]
    pub client: ClientArgs,
    #[command(flatten, next_help_heading = "Requests")]
    pub requests: RequestArgs,
    /// Save the result in this new directory: result.json, report.html, ccdf.svg, latency.hlog,
    /// latency.hgrm and requests.parquet; of a sweep or a search: result.json, report.html and
    /// sweep.svg [default: it is printed only]
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = "Result")]
    pub output: Option<PathBuf>,
    #[command(flatten, next_help_heading = "Limits")]
    pub limits: LimitArgs,
}

/// When requests are sent.
#[derive(Debug, Args)]
pub struct ScheduleArgs {
    /// Load in requests per second: 20000, 20k, several (5k,10k), a sweep (5k..50k:5k), or max, which
    /// sends as fast as the server answers (overrides --utilization)
    #[arg(short = 'R', long, value_name = "PER_S", value_parser = rates, allow_hyphen_values = true)]
    pub rate: Option<Amounts>,
    /// Load as a share of the capacity, which is measured first: 75%, or a sweep (10%..90%:10%)
    #[arg(short, long, value_name = "SHARE", value_parser = shares, allow_hyphen_values = true)]
    pub utilization: Option<Amounts>,
    /// Search for the highest rate that meets this, e.g. 'p99.9<=200us'; -R LOW..HIGH or -u
    /// LOW..HIGH bound the search [default: 1%..100% of the capacity]
    #[arg(long, value_name = "OBJECTIVE", conflicts_with_all = ["profile", "trace", "ping_pong"])]
    pub find: Option<Objective>,
    /// Length of the measurement [default: 10s]; with --find, the maximum for each rate [default: 30s]
    #[arg(short, long, value_name = "TIME")]
    pub duration: Option<Nanos>,
    /// Length of the load before the measurement [default: 1s; none with --trace]
    #[arg(hide_short_help = true, long, value_name = "TIME", value_parser = length_or_zero)]
    pub warmup: Option<Nanos>,
    /// The arrival process
    #[arg(long, value_name = "PROCESS", default_value = "poisson")]
    pub arrivals: ArrivalProcess,
    /// A rate that changes: steps (below), or a CSV file with a column of times and one of rates;
    /// -R or -u sets its mean
    #[arg(long, value_name = "STEPS|FILE", value_hint = ValueHint::FilePath, conflicts_with = "trace")]
    pub profile: Option<String>,
    #[command(flatten)]
    pub recorded: TraceFileArgs,
    /// Keep one request in flight on each connection: the next one is sent as soon as it is answered
    #[arg(long, conflicts_with_all = ["rate", "utilization", "profile", "trace"])]
    pub ping_pong: bool,
    /// Requests in flight with -R max and while the capacity is measured [default: 32, or 8 for each thread, if
    /// that is more]
    #[arg(hide_short_help = true, long, value_name = "N", value_parser = count::<NonZeroUsize>)]
    pub outstanding: Option<NonZeroUsize>,
    #[arg(hide_short_help = true, long, value_name = "N", default_value_t = 1,
          help = without_default("workload.seed"))]
    pub seed: u64,
}

/// The client.
#[derive(Debug, Args)]
pub struct ClientArgs {
    #[arg(long, value_name = "KIND", default_value = "independent",
          help = without_default("client.kind"))]
    pub clients: ClientKind,
    /// Whether TCP and Unix connections are opened once, before the load, or by each request when it is due: then
    /// connecting counts in its response time, and at most -c are open at once [default of -c: 1024]
    #[arg(
        hide_short_help = true,
        long,
        value_name = "once|each",
        default_value = "once"
    )]
    pub connect: Connect,
    /// Connections, divided among the threads [default: 128 where --pipeline has a limit, else 16; at least one for each
    /// thread]
    #[arg(short, long, value_name = "N", value_parser = count::<NonZeroUsize>)]
    pub connections: Option<NonZeroUsize>,
    /// The most requests under way on a TCP or Unix connection at once, 0 for no limit: further requests wait in
    /// the client [default: HTTP and Redis 1, else 0]
    #[arg(hide_short_help = true, long, value_name = "N", value_parser = limit::<u32>)]
    pub pipeline: Option<u32>,
    /// Threads that send and receive, each on its own CPU
    #[arg(short, long, value_name = "N", default_value = "1")]
    pub threads: NonZeroUsize,
    /// CPUs of these threads, e.g. 1 or 2-3 [default: the last ones allowed]
    #[arg(long = "client-cpus", value_name = "CPUS")]
    pub cpus: Option<String>,
    /// Allow more threads than CPUs, although they delay each other
    #[arg(hide_short_help = true, long)]
    pub oversubscribe: bool,
    /// How long to wait for an answer
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub timeout: Nanos,
    /// What a thread does between requests: spin, or sleep if there is enough time (hybrid)
    #[arg(
        hide_short_help = true,
        long,
        value_name = "HOW",
        default_value = "spin"
    )]
    pub wait: WaitKind,
    /// Keep all CPUs out of idle states during the load (as root): sends that wake another CPU become cheaper
    /// and arrivals more exact, but a server on this machine becomes faster than it usually is
    #[arg(hide_short_help = true, long)]
    pub keep_awake: bool,
    /// Also record the kernel's time stamps of sent and received packets
    #[arg(
        hide_short_help = true,
        long,
        value_name = "WHOSE",
        default_value = "none"
    )]
    pub stamps: StampKind,
    /// How long to measure the client's own floor (the same load with a server that does nothing), or
    /// off [default: as long as the load, at most 3s]
    #[arg(hide_short_help = true, long, value_name = "TIME|off")]
    pub floor: Option<Floor>,
}

/// The requests.
#[derive(Debug, Args)]
pub struct RequestArgs {
    /// Dialect of memcached [default: ascii]
    #[arg(hide_short_help = true, long, value_name = "NAME", value_parser = dialect)]
    pub dialect: Option<&'static str>,
    /// A header of every HTTP request, e.g. 'Host: example.org'; may be repeated
    #[arg(short = 'H', long, value_name = "NAME: VALUE")]
    pub header: Vec<String>,
    #[command(flatten)]
    pub store: StoreArgs,
    /// Use some keys more often than others: exponent of a Zipf law, e.g. 0.99 [default: all equally]
    #[arg(
        hide_short_help = true,
        long,
        value_name = "EXPONENT",
        allow_hyphen_values = true
    )]
    pub zipf: Option<f64>,
    /// Do not store the keys before the load
    #[arg(hide_short_help = true, long)]
    pub no_prefill: bool,
    /// Length of a request (echo, and HTTP, where a header fills it up) [default: echo 128]
    #[arg(hide_short_help = true, long, value_name = "BYTES", value_parser = size::<usize>)]
    pub request_bytes: Option<usize>,
    /// Length of an echo's response [default: 128]
    #[arg(hide_short_help = true, long, value_name = "BYTES", value_parser = size::<usize>)]
    pub response_bytes: Option<usize>,
}

/// Gets and sets of a key-value store, as in an experiment.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct StoreArgs {
    #[arg(hide_short_help = true, long, value_name = "SHARE", value_parser = share, allow_hyphen_values = true,
          help = help_of("workload.get_share"))]
    pub get_share: Option<f64>,
    #[arg(hide_short_help = true, long, value_name = "N", value_parser = count::<u32>, help = help_of("workload.keys"))]
    pub keys: Option<u32>,
    #[arg(hide_short_help = true, long, value_name = "BYTES", value_parser = size::<u32>,
          help = help_of("workload.key_bytes"))]
    pub key_bytes: Option<u32>,
    #[arg(hide_short_help = true, long, value_name = "BYTES", value_parser = size::<u32>,
          help = help_of("workload.value_bytes"))]
    pub value_bytes: Option<u32>,
}

/// What the help of `run` says of this setting of an experiment.
fn help_of(key: &str) -> String {
    Experiment::setting(key).help()
}

/// The same, without the default: it is the option's own here.
fn without_default(key: &str) -> String {
    let help = help_of(key);
    let about = help.split_once(" [default: ").map(|(about, _)| about);
    about.map(str::to_owned).unwrap_or(help)
}

/// Amounts of load, in requests per second or as shares.
#[derive(Clone, Debug, PartialEq)]
pub enum Amounts {
    /// As fast as the server answers.
    Max,
    /// One, or several one after the other.
    Values(Vec<f64>),
    /// The bounds of a search.
    Between(f64, f64),
}

/// What a thread does between requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WaitKind {
    /// Spin: the most exact
    Spin,
    /// Sleep while the next request is far away, then spin
    Hybrid,
}

/// Whose time stamps are taken besides the client's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StampKind {
    /// Nobody's
    None,
    /// The kernel's, where the transport has them
    Kernel,
}

/// Whether and how long the floor is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Floor {
    /// Not at all.
    Off,
    /// For this long.
    For(Nanos),
}

impl FromStr for Floor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "off" {
            return Ok(Self::Off);
        }
        match text.parse() {
            Ok(Nanos::ZERO) => Err("give a length above 0, or off".to_owned()),
            Ok(length) => Ok(Self::For(length)),
            Err(error) => Err(format!("{error}, or off")),
        }
    }
}

fn dialect(text: &str) -> Result<&'static str, String> {
    let mut known = PROTOCOLS.iter().filter_map(|protocol| protocol.dialect());
    known.find(|known| *known == text).ok_or_else(|| {
        let known = PROTOCOLS.iter().filter_map(|protocol| protocol.dialect());
        format!("choose one of {}", known.collect::<Vec<_>>().join(", "))
    })
}

fn length_or_zero(text: &str) -> Result<Nanos, String> {
    if text == "0" {
        return Ok(Nanos::ZERO);
    }
    text.parse::<Nanos>().map_err(|error| error.to_string())
}

fn rates(text: &str) -> Result<Amounts, String> {
    if text == "max" {
        return Ok(Amounts::Max);
    }
    amounts(text, rate)
}

fn shares(text: &str) -> Result<Amounts, String> {
    amounts(text, load_share)
}

/// `a`, `a,b`, `a..b:step` or `a..b`.
fn amounts(text: &str, one: impl Fn(&str) -> Result<f64, String>) -> Result<Amounts, String> {
    if let Some((from, to)) = text.split_once("..")
        && !to.contains(':')
    {
        let (from, to) = (one(from)?, one(to)?);
        return if from < to {
            Ok(Amounts::Between(from, to))
        } else {
            Err(format!("`{text}` must go up"))
        };
    }
    numbers(text, one).map(Amounts::Values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_as_people_write_them() {
        for (text, wanted) in [
            ("20000", Amounts::Values(vec![20_000.0])),
            ("5k,1.2M", Amounts::Values(vec![5e3, 1.2e6])),
            ("5k..20k:5k", Amounts::Values(vec![5e3, 1e4, 1.5e4, 2e4])),
            ("5k..50k", Amounts::Between(5e3, 5e4)),
            ("max", Amounts::Max),
        ] {
            assert_eq!(rates(text), Ok(wanted), "{text}");
        }
        for text in [
            "", "0", "-5", "nan", "inf", "fast", "5k..1k", "1..2:0", "1k;2k",
        ] {
            assert!(rates(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shares_are_read_as_percent_or_fraction() {
        assert_eq!(shares("75%"), Ok(Amounts::Values(vec![0.75])));
        assert_eq!(shares("0.5,60%"), Ok(Amounts::Values(vec![0.5, 0.6])));
        assert_eq!(
            shares("10%..30%:10%"),
            Ok(Amounts::Values(vec![0.1, 0.2, 0.3]))
        );
        for text in ["0", "-1", "200%", "max"] {
            assert!(shares(text).is_err(), "{text}");
        }
        assert!(shares("75").unwrap_err().contains("75%"));
    }

    #[test]
    fn a_floor_is_a_length_or_off() {
        assert_eq!("off".parse(), Ok(Floor::Off));
        assert_eq!("2s".parse(), Ok(Floor::For(Nanos::from_secs(2))));
        assert!("0s".parse::<Floor>().is_err());
        assert!("never".parse::<Floor>().unwrap_err().contains("or off"));
    }
}
