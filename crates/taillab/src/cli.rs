//! The command line. Arguments become plain data here; clap goes no further.

mod bench;
mod doctor;
mod explain;
mod load;
mod serve;
mod sim;
mod trace;

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Args, Parser, Subcommand, ValueHint};
use taillab_load::serve::{Architecture, ServiceTime};
use taillab_model::Nanos;
use taillab_probe::Disturbances;

use crate::commands::run::servers::words;
use crate::experiment::{Override, Protocol, ServerKind, TestbedKind, Transport};

pub use self::bench::{BenchArgs, BenchCommand, CausesArgs};
pub use self::doctor::DoctorArgs;
pub use self::explain::ExplainArgs;
pub use self::load::{Amounts, Floor, LoadArgs, StampKind, WaitKind};
pub use self::serve::ServeArgs;
pub use self::sim::{FigureName, Paper, ReproduceArgs, SimArgs, Sweep, TalesArgs, TimeUnit};
pub use self::trace::{AnalysisArgs, Told, TraceArgs};

const EXIT_CODES: &str = "Exit codes:\n  0    everything went well\n  1    something failed\n  2    \
    wrong command line or experiment file\n  4    the measurement cannot be believed (the result \
    says why)\n  5    a privilege or a kernel feature is missing\n  130  interrupted; what was \
    measured is kept";

/// A protocol of the generator by its name.
fn protocol() -> impl TypedValueParser<Value = Protocol> {
    PossibleValuesParser::new(taillab_load::Protocol::names())
        .try_map(|name| name.parse::<Protocol>())
}

/// A tail-latency laboratory for Linux servers.
///
/// Says how far a server's latency is from the best that queueing theory allows.
#[derive(Debug, Parser)]
#[command(name = "taillab", version, propagate_version = true, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    // These take their help from their arguments: it is longer than a line.
    Run(Box<RunArgs>),
    Trace(Box<TraceArgs>),
    Explain(ExplainArgs),
    Serve(Box<ServeArgs>),
    Load(Box<LoadArgs>),
    Sim(Box<SimArgs>),
    Reproduce(ReproduceArgs),
    Doctor(DoctorArgs),
    Bench(BenchArgs),
    /// Print a shell completion script
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a directory
    Man {
        /// The directory
        #[arg(value_hint = ValueHint::DirPath)]
        directory: PathBuf,
    },
}

/// Options that every command has.
#[derive(Debug, Args, Clone, Copy)]
pub struct Output {
    /// Print one JSON object on stdout instead of tables
    #[arg(long)]
    pub json: bool,
    /// No progress, no hints; errors only
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Say what is being done, and show more of the result
    #[arg(short, long, action = ArgAction::Count)]
    pub verbose: u8,
}

/// Measure a server under controlled load against its ideal.
///
/// Starts the server on its own CPUs in its own network namespace, finds its service time t
/// (workers / peak throughput), sends it an open-loop Poisson load, stamps every request
/// six times in the kernel, and shows the sojourn beside that of an ideal queue fed with the very
/// same arrivals. Needs root; changes nothing on the machine that outlives it.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct RunArgs {
    /// The server to measure; --server or an experiment file can name it instead
    #[arg(value_name = "SERVER")]
    pub kind: Option<ServerKind>,
    /// Measure a server of your own: its command line, split into words as a shell would, with
    /// {address} and {port} for where it is to listen; needs --port and --protocol
    #[arg(
        long = "server",
        value_name = "COMMAND",
        value_hint = ValueHint::CommandString,
        conflicts_with_all = ["kind", "server_program", "server_arg"],
        value_parser = command_line
    )]
    pub own_server: Option<CommandLine>,

    /// Experiment file (TOML) under the flags; `experiment.toml` of an earlier run repeats it
    #[arg(short = 'f', long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub experiment: Option<PathBuf>,
    /// Directory for the result [default: taillab-<server>-<time>]
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub output: Option<PathBuf>,
    /// Also keep the recorded kernel events (capture.tlc)
    #[arg(long)]
    pub save_capture: bool,
    #[command(flatten)]
    pub common: Output,
    #[command(flatten)]
    pub settings: Settings,
}

/// The words of a command line: a program and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine(Vec<String>);

fn command_line(text: &str) -> Result<CommandLine, String> {
    words(text).map(CommandLine)
}

impl RunArgs {
    /// The server named, and the settings given, by their key in the experiment.
    pub fn into_request(self) -> (Option<ServerKind>, Vec<Override>) {
        let mut overrides = self.settings.into_overrides();
        let Some(CommandLine(words)) = self.own_server else {
            return (self.kind, overrides);
        };
        let mut words = words.into_iter().map(toml::Value::String);
        overrides.extend(words.next().map(|program| ("server.program", program)));
        overrides.push(("server.args", toml::Value::Array(words.collect())));
        (Some(ServerKind::Custom), overrides)
    }
}

/// Settings of the experiment; each is a key of the experiment file too.
#[derive(Debug, Default, Args)]
pub struct Settings {
    /// Load in requests per second (goes before --utilization)
    #[arg(
        allow_negative_numbers = true,
        short = 'R',
        long,
        value_name = "PER_S",
        help_heading = "Load"
    )]
    rate: Option<f64>,
    /// Load as a share of the calibrated capacity, e.g. 75% or 0.75 [default: 75%]
    #[arg(allow_negative_numbers = true, short, long, value_name = "SHARE", value_parser = share, help_heading = "Load")]
    utilization: Option<f64>,
    /// Length of the measurement [default: 20s]
    #[arg(short, long, value_name = "TIME", help_heading = "Load")]
    duration: Option<Nanos>,
    /// Load before it, not measured [default: 3s]
    #[arg(long, value_name = "TIME", help_heading = "Load")]
    warmup: Option<Nanos>,
    /// Connections of the generator [default: 256, UDP 16]
    #[arg(short, long, value_name = "N", help_heading = "Load")]
    connections: Option<u16>,
    /// More TCP connections, used only while all others wait for a response, so that a stall makes
    /// no request queue on its own connection [default: 3840, null-rpc 768]
    #[arg(long, value_name = "N", help_heading = "Load")]
    reserve: Option<u16>,
    /// Seed of the schedule and of the mix [default: 1]
    #[arg(long, value_name = "N", help_heading = "Load")]
    seed: Option<i64>,
    /// Share of gets, the others are sets (key-value stores) [default: 90%]
    #[arg(long, value_name = "SHARE", value_parser = share, help_heading = "Load")]
    get_share: Option<f64>,
    /// Distinct keys, all stored before the run (key-value stores) [default: 10000]
    #[arg(long, value_name = "N", help_heading = "Load")]
    keys: Option<u32>,
    /// Length of a key (key-value stores) [default: 64]
    #[arg(long, value_name = "BYTES", help_heading = "Load")]
    key_bytes: Option<u16>,
    /// Length of a value (key-value stores) [default: 1024]
    #[arg(long, value_name = "BYTES", help_heading = "Load")]
    value_bytes: Option<u32>,
    /// What is asked for over HTTP [default: /, nginx /index.html]
    #[arg(long, value_name = "PATH", help_heading = "Load")]
    path: Option<String>,
    /// Length of a request (echo, and HTTP, which a header fills up) [default: 128, nginx 85]
    #[arg(long, value_name = "BYTES", help_heading = "Load")]
    request_bytes: Option<u32>,
    /// Length of a response (echo, nginx) [default: 128, nginx 849]
    #[arg(long, value_name = "BYTES", help_heading = "Load")]
    response_bytes: Option<u32>,
    /// How long a response is waited for [default: 1s]
    #[arg(long, value_name = "TIME", help_heading = "Load")]
    timeout: Option<Nanos>,

    /// CPUs of the server, e.g. 0 or 0-2 [default: 0]
    #[arg(
        short = 'C',
        long,
        value_name = "CPUS",
        help_heading = "Server and testbed"
    )]
    server_cpus: Option<String>,
    /// CPUs of the generator, one thread spinning on each, e.g. 1 or 4-7 [default: 1]
    #[arg(
        long,
        visible_alias = "client-cpu",
        value_name = "CPUS",
        help_heading = "Server and testbed"
    )]
    client_cpus: Option<String>,
    /// What carries the requests [default: tcp, memcached udp]
    #[arg(long, value_name = "NAME", help_heading = "Server and testbed")]
    transport: Option<Transport>,
    /// What a server of your own speaks
    #[arg(long, value_name = "NAME", value_parser = protocol(), help_heading = "Server and testbed")]
    protocol: Option<Protocol>,
    /// Worker threads or processes of the server; of your own: how many requests it serves at
    /// once [default: 1]
    #[arg(
        short = 't',
        long,
        visible_alias = "threads",
        value_name = "N",
        help_heading = "Server and testbed"
    )]
    workers: Option<u32>,
    /// How null-rpc divides requests among its threads: null-rpc (a thread for each
    /// connection), epoll-shared, epoll-per-worker, udp-shared or udp-reuseport
    /// [default: null-rpc]
    #[arg(long, value_name = "NAME", help_heading = "Server and testbed")]
    architecture: Option<Architecture>,
    /// What a worker of null-rpc does for a request: none, spin:LAW (keeps its CPU busy) or
    /// wait:LAW (sleeps), e.g. wait:exponential:1ms [default: none]
    #[arg(long, value_name = "WHAT", help_heading = "Server and testbed")]
    service: Option<ServiceTime>,
    /// Port of the server [default: memcached 11211, nginx 8080, null-rpc 7777]
    #[arg(short, long, value_name = "PORT", help_heading = "Server and testbed")]
    port: Option<u16>,
    /// Receive buffer of the server's UDP sockets, so that a stall drops no request; 0 leaves
    /// the server's own [default: 8388608]
    #[arg(long, value_name = "BYTES", help_heading = "Server and testbed")]
    receive_buffer: Option<u32>,
    /// User that the server runs as [default: nobody]
    #[arg(long, value_name = "NAME", help_heading = "Server and testbed")]
    server_user: Option<String>,
    /// The server's program, by name or path [default: memcached or nginx]
    #[arg(long, value_name = "PATH", help_heading = "Server and testbed")]
    server_program: Option<String>,
    /// A further argument of the server; may be given often
    #[arg(
        long,
        value_name = "ARG",
        allow_hyphen_values = true,
        help_heading = "Server and testbed"
    )]
    server_arg: Vec<String>,
    /// How generator and server are connected [default: veth]
    #[arg(long, value_name = "KIND", help_heading = "Server and testbed")]
    testbed: Option<TestbedKind>,

    /// Interleaved pairs of calibration blocks, without and with the probe [default: 9]
    #[arg(long, value_name = "N", help_heading = "Calibration and probe")]
    pairs: Option<u32>,
    /// Length of a calibration block [default: 400ms]
    #[arg(long, value_name = "TIME", help_heading = "Calibration and probe")]
    block: Option<Nanos>,
    /// Requests kept outstanding in a calibration block [default: 32]
    #[arg(long, value_name = "N", help_heading = "Calibration and probe")]
    outstanding: Option<u16>,
    /// Use this service time instead of the measured one
    #[arg(long, value_name = "TIME", help_heading = "Calibration and probe")]
    service_time: Option<Nanos>,
    /// Ring buffer of each CPU, a power of two [default: 4194304]
    #[arg(long, value_name = "BYTES", help_heading = "Calibration and probe")]
    ring_bytes: Option<u32>,
    /// Kinds of disturbance to record: all, none, or a list of sched, wake, irq, softirq, idle,
    /// fault, storage, lock, frequency, retransmit [default: all]
    #[arg(long, value_name = "LIST", help_heading = "Calibration and probe")]
    disturbances: Option<Disturbances>,
}

impl Settings {
    /// The flags that were given, by their key in the experiment.
    pub fn into_overrides(self) -> Vec<Override> {
        let text = toml::Value::String;
        let length = |value: Option<Nanos>| value.map(|v| text(v.to_exact_string()));
        let whole = |value: Option<i64>| value.map(toml::Value::Integer);
        let number = |value: Option<f64>| value.map(toml::Value::Float);
        let server_args = (!self.server_arg.is_empty())
            .then(|| toml::Value::Array(self.server_arg.into_iter().map(text).collect()));
        let testbed = self.testbed.map(|kind| {
            text(
                match kind {
                    TestbedKind::Veth => "veth",
                    TestbedKind::Loopback => "loopback",
                }
                .to_owned(),
            )
        });
        [
            ("workload.rate_per_s", number(self.rate)),
            ("workload.utilization", number(self.utilization)),
            ("workload.duration", length(self.duration)),
            ("workload.warmup", length(self.warmup)),
            ("workload.seed", whole(self.seed)),
            ("workload.get_share", number(self.get_share)),
            ("workload.path", self.path.map(text)),
            (
                "workload.request_bytes",
                whole(self.request_bytes.map(Into::into)),
            ),
            (
                "workload.response_bytes",
                whole(self.response_bytes.map(Into::into)),
            ),
            ("workload.keys", whole(self.keys.map(Into::into))),
            ("workload.key_bytes", whole(self.key_bytes.map(Into::into))),
            (
                "workload.value_bytes",
                whole(self.value_bytes.map(Into::into)),
            ),
            (
                "client.connections",
                whole(self.connections.map(Into::into)),
            ),
            ("client.reserve", whole(self.reserve.map(Into::into))),
            ("client.timeout", length(self.timeout)),
            ("client.cpus", self.client_cpus.map(text)),
            ("server.cpus", self.server_cpus.map(text)),
            ("server.workers", whole(self.workers.map(Into::into))),
            (
                "server.transport",
                self.transport.map(|name| text(name.name().to_owned())),
            ),
            (
                "server.protocol",
                self.protocol.map(|protocol| text(protocol.name.to_owned())),
            ),
            (
                "server.architecture",
                self.architecture.map(|name| text(name.to_string())),
            ),
            (
                "server.service",
                self.service.map(|service| text(service.to_string())),
            ),
            ("server.port", whole(self.port.map(Into::into))),
            (
                "server.receive_buffer_bytes",
                whole(self.receive_buffer.map(Into::into)),
            ),
            ("server.user", self.server_user.map(text)),
            ("server.program", self.server_program.map(text)),
            ("server.args", server_args),
            ("testbed.kind", testbed),
            ("calibration.pairs", whole(self.pairs.map(Into::into))),
            ("calibration.block", length(self.block)),
            (
                "calibration.outstanding",
                whole(self.outstanding.map(Into::into)),
            ),
            ("calibration.service_time", length(self.service_time)),
            ("probe.ring_bytes", whole(self.ring_bytes.map(Into::into))),
            (
                "probe.disturbances",
                self.disturbances.map(|kinds| text(kinds.to_string())),
            ),
        ]
        .into_iter()
        .filter_map(|(key, value)| value.map(|value| (key, value)))
        .collect()
    }
}

/// What is wrong with a command line, and what helps, without the usage that clap adds.
pub fn in_one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let told =
        |line: &&str| !line.starts_with("Usage:") && !line.starts_with("For more information");
    let mut said = String::new();
    for line in text.lines().take_while(told).map(str::trim) {
        if !said.is_empty() && !line.is_empty() {
            let follows = said.ends_with(':') || line.starts_with('[');
            said.push_str(if follows { " " } else { "; " });
        }
        said.push_str(line.trim_start_matches("error: "));
    }
    said + "; see --help"
}

/// A share written as `75%` or `0.75`.
fn share(text: &str) -> Result<f64, String> {
    let (number, scale) = match text.trim().strip_suffix('%') {
        Some(percent) => (percent, 100.0),
        None => (text.trim(), 1.0),
    };
    match number.trim().parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(value / scale),
        _ => Err("write a share, e.g. 75% or 0.75".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_wrong_command_line_is_one_line_with_its_remedy() {
        for (words, parts) in [
            (&["trace", "-p", "x"][..], &["`pgrep", "--help"][..]),
            (&["trace", "-p", "0"], &["from 1 on"]),
            (&["trace", "--port", "70000"], &["from 1 to 65535"]),
            (
                &["trace", "--sloest", "3"],
                &["--sloest", "tip: ", "--slowest"],
            ),
            (&["trace"], &["--pid <PID>"]),
            (
                &["bench", "causes", "earthquake"],
                &["earthquake", "background"],
            ),
            (&["explain"], &["FILE|DIR"]),
        ] {
            let error = Cli::try_parse_from(["taillab"].iter().chain(words)).unwrap_err();
            let line = in_one_line(&error);
            assert!(!line.contains('\n') && !line.contains("Usage"), "{line}");
            for part in parts {
                assert!(line.contains(part), "{words:?}: {line}");
            }
        }
    }

    #[test]
    fn shares_are_read_as_percent_or_fraction() {
        assert_eq!(share("75%"), Ok(0.75));
        assert_eq!(share("0.75"), Ok(0.75));
        assert!(share("most").is_err());
        assert!(share("NaN").is_err());
    }

    fn request(args: &[&str]) -> (Option<ServerKind>, Vec<Override>) {
        let all = ["taillab", "run"].iter().chain(args);
        match Cli::try_parse_from(all).unwrap().command {
            Command::Run(args) => args.into_request(),
            _ => panic!("not a run"),
        }
    }

    #[test]
    fn a_command_line_is_split_without_a_shell() {
        let (kind, overrides) = request(&["--server", "redis-server --save '' --port {port}"]);
        assert_eq!(kind, Some(ServerKind::Custom));
        let words = ["--save", "", "--port", "{port}"];
        assert_eq!(
            overrides,
            vec![
                ("server.program", "redis-server".into()),
                (
                    "server.args",
                    toml::Value::Array(words.map(toml::Value::from).into())
                ),
            ]
        );
        for wrong in ["", " ", "program 'unclosed", "''"] {
            let parsed = Cli::try_parse_from(["taillab", "run", "--server", wrong]);
            assert!(parsed.is_err(), "{wrong}");
        }
        assert!(Cli::try_parse_from(["taillab", "run", "nginx", "--server", "x"]).is_err());
    }

    #[test]
    fn only_the_flags_given_become_overrides() {
        let (kind, overrides) = request(&["memcached", "-R", "5000", "--server-arg", "-v"]);
        assert_eq!(kind, Some(ServerKind::Memcached));
        assert_eq!(
            overrides,
            vec![
                ("workload.rate_per_s", toml::Value::Float(5000.0)),
                ("server.args", toml::Value::Array(vec!["-v".into()])),
            ]
        );
    }
}
