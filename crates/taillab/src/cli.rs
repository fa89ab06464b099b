//! The command line. Arguments become plain data here; clap goes no further.

mod load;
mod serve;
mod sim;

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand, ValueHint};
use taillab_model::Nanos;

use crate::experiment::{Override, ServerKind, TestbedKind};

pub use self::load::{Amounts, Floor, LoadArgs, StampKind, WaitKind};
pub use self::serve::ServeArgs;
pub use self::sim::{FigureName, Paper, ReproduceArgs, SimArgs, Sweep, TalesArgs, TimeUnit};

const EXIT_CODES: &str = "Exit codes:\n  0    everything went well\n  1    something failed\n  2    \
    wrong command line or experiment file\n  4    the measurement cannot be believed (the result \
    says why)\n  5    a privilege or a kernel feature is missing\n  130  interrupted; what was \
    measured is kept";

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
    Serve(Box<ServeArgs>),
    Load(Box<LoadArgs>),
    Sim(Box<SimArgs>),
    Reproduce(ReproduceArgs),
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
    /// Say what is being done
    #[arg(short, long, action = ArgAction::Count)]
    pub verbose: u8,
}

/// Measure a server under controlled load against its ideal.
///
/// Starts the server on its own CPU in its own network namespace, finds its service time t
/// (1 / peak throughput of one core), sends it an open-loop Poisson load, stamps every request
/// six times in the kernel, and shows the sojourn beside that of an ideal queue fed with the very
/// same arrivals. Needs root; changes nothing on the machine that outlives it.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct RunArgs {
    /// The server to measure
    pub server: ServerKind,

    /// Experiment file (TOML) under the flags; `experiment.toml` of an earlier run repeats it
    #[arg(short = 'f', long, value_name = "FILE", value_hint = ValueHint::FilePath, env = "TAILLAB_EXPERIMENT")]
    pub experiment: Option<PathBuf>,
    /// Directory for the result [default: taillab-<server>-<time>]
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath, env = "TAILLAB_OUTPUT")]
    pub output: Option<PathBuf>,
    /// Also keep the recorded kernel events (capture.tlc)
    #[arg(long)]
    pub save_capture: bool,
    #[command(flatten)]
    pub common: Output,
    #[command(flatten)]
    pub settings: Settings,
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
        env = "TAILLAB_RATE",
        help_heading = "Load"
    )]
    rate: Option<f64>,
    /// Load as a share of the calibrated capacity, e.g. 75% or 0.75 [default: 75%]
    #[arg(allow_negative_numbers = true, short, long, value_name = "SHARE", value_parser = share, env = "TAILLAB_UTILIZATION", help_heading = "Load")]
    utilization: Option<f64>,
    /// Length of the measurement [default: 20s]
    #[arg(
        short,
        long,
        value_name = "TIME",
        env = "TAILLAB_DURATION",
        help_heading = "Load"
    )]
    duration: Option<Nanos>,
    /// Load before it, not measured [default: 3s]
    #[arg(
        long,
        value_name = "TIME",
        env = "TAILLAB_WARMUP",
        help_heading = "Load"
    )]
    warmup: Option<Nanos>,
    /// UDP sockets of the generator [default: 16]
    #[arg(
        short,
        long,
        value_name = "N",
        env = "TAILLAB_CONNECTIONS",
        help_heading = "Load"
    )]
    connections: Option<u16>,
    /// Seed of the schedule and of the mix [default: 1]
    #[arg(long, value_name = "N", env = "TAILLAB_SEED", help_heading = "Load")]
    seed: Option<i64>,
    /// Share of gets, the others are sets [default: 90%]
    #[arg(long, value_name = "SHARE", value_parser = share, env = "TAILLAB_GET_SHARE", help_heading = "Load")]
    get_share: Option<f64>,
    /// Distinct keys, all stored before the run [default: 10000]
    #[arg(long, value_name = "N", env = "TAILLAB_KEYS", help_heading = "Load")]
    keys: Option<u32>,
    /// Length of a key [default: 64]
    #[arg(
        long,
        value_name = "BYTES",
        env = "TAILLAB_KEY_BYTES",
        help_heading = "Load"
    )]
    key_bytes: Option<u16>,
    /// Length of a value [default: 1024]
    #[arg(
        long,
        value_name = "BYTES",
        env = "TAILLAB_VALUE_BYTES",
        help_heading = "Load"
    )]
    value_bytes: Option<u32>,
    /// How long a response is waited for [default: 1s]
    #[arg(
        long,
        value_name = "TIME",
        env = "TAILLAB_TIMEOUT",
        help_heading = "Load"
    )]
    timeout: Option<Nanos>,

    /// CPUs of the server, e.g. 0 or 0-2 [default: 0]
    #[arg(
        short = 'C',
        long,
        value_name = "CPUS",
        env = "TAILLAB_SERVER_CPUS",
        help_heading = "Server and testbed"
    )]
    server_cpus: Option<String>,
    /// CPU of the generator, which spins on it [default: 1]
    #[arg(
        long,
        value_name = "CPU",
        env = "TAILLAB_CLIENT_CPU",
        help_heading = "Server and testbed"
    )]
    client_cpu: Option<u32>,
    /// Worker threads of the server [default: 1]
    #[arg(
        short,
        long,
        value_name = "N",
        env = "TAILLAB_THREADS",
        help_heading = "Server and testbed"
    )]
    threads: Option<u32>,
    /// UDP port of the server [default: 11211]
    #[arg(
        short,
        long,
        value_name = "PORT",
        env = "TAILLAB_PORT",
        help_heading = "Server and testbed"
    )]
    port: Option<u16>,
    /// Receive buffer of the server's socket, so that a stall drops no request; 0 leaves the
    /// server's own [default: 8388608]
    #[arg(
        long,
        value_name = "BYTES",
        env = "TAILLAB_RECEIVE_BUFFER",
        help_heading = "Server and testbed"
    )]
    receive_buffer: Option<u32>,
    /// User that the server runs as [default: nobody]
    #[arg(
        long,
        value_name = "NAME",
        env = "TAILLAB_SERVER_USER",
        help_heading = "Server and testbed"
    )]
    server_user: Option<String>,
    /// The server's program [default: memcached]
    #[arg(
        long,
        value_name = "PATH",
        env = "TAILLAB_SERVER_PROGRAM",
        help_heading = "Server and testbed"
    )]
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
    #[arg(
        long,
        value_name = "KIND",
        env = "TAILLAB_TESTBED",
        help_heading = "Server and testbed"
    )]
    testbed: Option<TestbedKind>,

    /// Interleaved pairs of calibration blocks, without and with the probe [default: 9]
    #[arg(
        long,
        value_name = "N",
        env = "TAILLAB_PAIRS",
        help_heading = "Calibration and probe"
    )]
    pairs: Option<u32>,
    /// Length of a calibration block [default: 400ms]
    #[arg(
        long,
        value_name = "TIME",
        env = "TAILLAB_BLOCK",
        help_heading = "Calibration and probe"
    )]
    block: Option<Nanos>,
    /// Requests kept outstanding in a calibration block [default: 32]
    #[arg(
        long,
        value_name = "N",
        env = "TAILLAB_OUTSTANDING",
        help_heading = "Calibration and probe"
    )]
    outstanding: Option<u16>,
    /// Use this service time instead of the measured one
    #[arg(
        long,
        value_name = "TIME",
        env = "TAILLAB_SERVICE_TIME",
        help_heading = "Calibration and probe"
    )]
    service_time: Option<Nanos>,
    /// Ring buffer of each CPU, a power of two [default: 4194304]
    #[arg(
        long,
        value_name = "BYTES",
        env = "TAILLAB_RING_BYTES",
        help_heading = "Calibration and probe"
    )]
    ring_bytes: Option<u32>,
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
            ("client.timeout", length(self.timeout)),
            ("client.cpu", whole(self.client_cpu.map(Into::into))),
            ("server.cpus", self.server_cpus.map(text)),
            ("server.threads", whole(self.threads.map(Into::into))),
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
        ]
        .into_iter()
        .filter_map(|(key, value)| value.map(|value| (key, value)))
        .collect()
    }
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
    fn shares_are_read_as_percent_or_fraction() {
        assert_eq!(share("75%"), Ok(0.75));
        assert_eq!(share("0.75"), Ok(0.75));
        assert!(share("most").is_err());
        assert!(share("NaN").is_err());
    }

    #[test]
    fn only_the_flags_given_become_overrides() {
        let cli = Cli::parse_from([
            "taillab",
            "run",
            "memcached",
            "-R",
            "5000",
            "--server-arg",
            "-v",
        ]);
        let Command::Run(args) = cli.command else {
            panic!("not a run")
        };
        let overrides = args.settings.into_overrides();
        assert_eq!(
            overrides,
            vec![
                ("workload.rate_per_s", toml::Value::Float(5000.0)),
                ("server.args", toml::Value::Array(vec!["-v".into()])),
            ]
        );
    }
}
