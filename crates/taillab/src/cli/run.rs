//! The command line of `taillab run`.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum, ValueHint};
use taillab_console::args::{LimitArgs, Output, StoreArgs, count, limit, rate, size};
use taillab_experiment::args::{disturbances_help, load_share};
use taillab_experiment::definition::{
    Override, PRESETS, Preset, Protocol, ServerKind, TestbedKind, Transport,
};
use taillab_experiment::fix::{FactorialArgs, FixArgs};
use taillab_host::doctor::privileges_of;
use taillab_load::serve::{Architecture, ServiceTime};
use taillab_model::summary::{ClientKind, Connect};
use taillab_model::{MiddleStamps, Nanos};
use taillab_probe::Disturbances;

pub(super) const EXIT_CODES: &str = "Exit codes:\n  0    everything went well\n  1    something \
                                     failed\n  2    \
    wrong command line or experiment file\n  3    a limit of --assert is not met\n  4    no \
    request was answered, or an --assert is not decided\n  5    a privilege or a kernel feature \
    is missing\n  130  interrupted; what was \
    measured is kept";

fn help() -> String {
    format!(
        "Examples:\n  \
         sudo taillab run memcached\n  \
         sudo taillab run memcached -u 50% -d 60s -o result\n  \
         sudo taillab run nginx -R 20k --assert 'p99<=1ms'\n  \
         sudo taillab run null-rpc --architecture epoll-shared -w 4 -C 0-3\n  \
         sudo taillab run --server 'redis-server --port {{port}} --bind {{address}} \
         --protected-mode no' \\\n      \
             --port 6379 --protocol redis\n\n\
         {}\n\n{EXIT_CODES}",
        privileges_of("run")
    )
}

/// A protocol of the generator by its name.
fn protocol() -> impl TypedValueParser<Value = Protocol> {
    PossibleValuesParser::new(taillab_load::Protocol::names())
        .try_map(|name| name.parse::<Protocol>())
}

/// A transport by its name.
fn transport() -> impl TypedValueParser<Value = Transport> {
    PossibleValuesParser::new(Transport::ALL.map(Transport::name))
        .try_map(|name| name.parse::<Transport>())
}

/// Measure a server under controlled load against its ideal.
///
/// Starts the server on its own CPUs in its own network namespace, determines its service time t
/// (workers ÷ peak throughput), sends an open-loop Poisson load, stamps every request six times in the
/// kernel, and compares its sojourn with that in an ideal queue with the same arrivals. All changes to the
/// machine are undone at the end.
#[derive(Debug, Args)]
#[command(after_help = help())]
pub struct RunArgs {
    /// The server to measure, or an experiment that comes with taillab (preset:NAME); --server or an
    /// experiment file can name a server instead
    #[arg(value_name = "SERVER", value_parser = subject())]
    pub kind: Option<Subject>,
    /// Measure your own server: its command line, split into words as by a shell, with {address} and
    /// {port} for where it should listen; needs --port and --protocol
    #[arg(
        long = "server",
        value_name = "COMMAND",
        value_hint = ValueHint::CommandString,
        conflicts_with_all = ["kind", "server_program", "server_arg"],
        value_parser = command_line
    )]
    pub own_server: Option<CommandLine>,

    /// Experiment file (TOML); flags override it, and `experiment.toml` of an earlier run repeats
    /// that run
    #[arg(short = 'f', long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub experiment: Option<PathBuf>,
    /// Save the result in this new directory [default: taillab-<server>-<time>]
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub output: Option<PathBuf>,
    /// Also save the recorded kernel events (capture.tlc)
    #[arg(long)]
    pub save_capture: bool,
    /// Only print the result
    #[arg(hide_short_help = true, long, conflicts_with_all = ["output", "save_capture"])]
    pub no_save: bool,
    #[command(flatten)]
    pub common: Output,
    #[command(flatten, next_help_heading = "Fixes")]
    pub fix: FixArgs,
    #[command(flatten, next_help_heading = "Fixes")]
    pub factorial: FactorialArgs,
    #[command(flatten, next_help_heading = "Limits")]
    pub limits: LimitArgs,
    #[command(flatten)]
    pub settings: Settings,
}

/// The first argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A server that taillab can start.
    Server(ServerKind),
    /// An experiment that comes with the program.
    Preset(Preset),
}

/// A server or a preset by its name.
fn subject() -> impl TypedValueParser<Value = Subject> {
    let presets = PRESETS.iter().map(|preset| preset.name);
    let servers = ServerKind::value_variants()
        .iter()
        .filter(|kind| kind.to_possible_value().is_some())
        .map(|kind| kind.name());
    PossibleValuesParser::new(servers.chain(presets)).try_map(|name| {
        let preset = PRESETS.iter().find(|preset| preset.name == name);
        match preset {
            Some(preset) => Ok(Subject::Preset(*preset)),
            None => ServerKind::from_str(&name, false).map(Subject::Server),
        }
    })
}

/// The words of a command line: a program and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLine(Vec<String>);

/// Splits `text` by the quoting rules of a POSIX shell, without its other features; no shell is started.
fn command_line(text: &str) -> Result<CommandLine, String> {
    let words = shlex::split(text).ok_or("a quote is not closed, or a \\ ends the line")?;
    match words.first() {
        Some(program) if !program.is_empty() => Ok(CommandLine(words)),
        _ => Err("it names no program".to_owned()),
    }
}

impl RunArgs {
    /// The experiment named, if it is one that comes with the program.
    pub const fn preset(&self) -> Option<Preset> {
        match self.kind {
            Some(Subject::Preset(preset)) => Some(preset),
            _ => None,
        }
    }

    /// The server named, and the settings given, by their key in the experiment.
    pub fn into_request(self) -> (Option<ServerKind>, Vec<Override>) {
        let mut overrides = self.settings.into_overrides();
        let Some(CommandLine(words)) = self.own_server else {
            let kind = match self.kind {
                Some(Subject::Server(kind)) => Some(kind),
                _ => None,
            };
            return (kind, overrides);
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
    #[command(flatten, next_help_heading = "Load")]
    load: LoadSettings,
    #[command(flatten, next_help_heading = "Server and testbed")]
    server: ServerSettings,
    #[command(flatten, next_help_heading = "Calibration and probe")]
    calibration: CalibrationSettings,
}

#[derive(Debug, Default, Args)]
struct LoadSettings {
    /// Load in requests per second: 20000 or 20k (overrides --utilization)
    #[arg(allow_negative_numbers = true, short = 'R', long, value_name = "PER_S", value_parser = rate)]
    rate: Option<f64>,
    /// Load as a share of the capacity, e.g. 75% or 0.75; below 97% the rate follows the capacity
    /// as it changes [default: 75%]
    #[arg(allow_negative_numbers = true, short, long, value_name = "SHARE", value_parser = load_share)]
    utilization: Option<f64>,
    /// Length of the measurement [default: 20s]
    #[arg(short, long, value_name = "TIME")]
    duration: Option<Nanos>,
    /// Measure until a percentile has this precision, e.g. p99.9=20% (half its interval)
    #[arg(long, value_name = "TARGET")]
    precision: Option<String>,
    /// The maximum length of the measurement with --precision [default: 3 times the duration]
    #[arg(
        hide_short_help = true,
        long,
        value_name = "TIME",
        requires = "precision"
    )]
    max_duration: Option<Nanos>,
    /// Length of the load before the measurement [default: 3s]
    #[arg(hide_short_help = true, long, value_name = "TIME")]
    warmup: Option<Nanos>,
    /// Who the requests come from: independent clients, one for each connection, or the pooled connections of one
    /// client, which deals requests out evenly [default: independent]
    #[arg(long, value_name = "KIND")]
    clients: Option<ClientKind>,
    /// How long a TCP connection lasts: once opened, it is kept, or each request has one of its own, which is opened
    /// when the request is due and is a part of its response time; -c are open at once [default: once]
    #[arg(hide_short_help = true, long, value_name = "once|each")]
    connect: Option<Connect>,
    /// Connections of the generator [default: 1024, pooled 256, UDP 16, but at least one for each of its CPUs]
    #[arg(short, long, value_name = "N", value_parser = count::<u16>)]
    connections: Option<u16>,
    /// The most requests under way on a TCP connection at once, 0 for no limit: others wait in the client for theirs
    /// [default: HTTP and Redis 1, else 0]
    #[arg(hide_short_help = true, long, value_name = "N", value_parser = limit::<u16>)]
    pipeline: Option<u16>,
    /// Additional TCP connections of a pool, used only while all others wait for a response, so that requests do not
    /// queue on their connections during a stall [default: 3840, null-rpc 768]
    #[arg(hide_short_help = true, long, value_name = "N", value_parser = count::<u16>)]
    reserve: Option<u16>,
    /// Seed of the schedule and of the requests [default: 1]
    #[arg(hide_short_help = true, long, value_name = "N")]
    seed: Option<i64>,
    #[command(flatten)]
    store: StoreArgs,
    /// Path of HTTP requests [default: /, nginx /index.html]
    #[arg(hide_short_help = true, long, value_name = "PATH")]
    path: Option<String>,
    /// Length of a request (echo; HTTP, padded with a header) [default: 128, nginx 85]
    #[arg(hide_short_help = true, long, value_name = "BYTES", value_parser = size::<u32>)]
    request_bytes: Option<u32>,
    /// Length of a response (echo, nginx) [default: 128, nginx 849]
    #[arg(hide_short_help = true, long, value_name = "BYTES", value_parser = size::<u32>)]
    response_bytes: Option<u32>,
    /// How long to wait for a response [default: 1s]
    #[arg(hide_short_help = true, long, value_name = "TIME")]
    timeout: Option<Nanos>,
}

#[derive(Debug, Default, Args)]
struct ServerSettings {
    /// CPUs of the server, e.g. 0 or 0-2 [default: the first one, or one beside the generator's]
    #[arg(short = 'C', long, value_name = "CPUS")]
    server_cpus: Option<String>,
    /// CPUs of the generator, one thread spinning on each, e.g. 1 or 4-7 [default: the next one on another core;
    /// with -C, one for every two of the server's]
    #[arg(long, visible_alias = "client-cpu", value_name = "CPUS")]
    client_cpus: Option<String>,
    /// The transport of the requests [default: tcp, memcached udp]
    #[arg(long, value_name = "NAME", value_parser = transport())]
    transport: Option<Transport>,
    /// The protocol of your own server
    #[arg(long, value_name = "NAME", value_parser = protocol())]
    protocol: Option<Protocol>,
    /// Worker threads or processes of the server; for your own server, how many requests it serves at once
    /// [default: 1]
    #[arg(short, long, value_name = "N")]
    workers: Option<u32>,
    /// How null-rpc divides requests among its threads: null-rpc (a thread for each
    /// connection), epoll-shared, epoll-per-worker, udp-shared or udp-reuseport
    /// [default: null-rpc]
    #[arg(hide_short_help = true, long, value_name = "NAME")]
    architecture: Option<Architecture>,
    /// The work of null-rpc for a request: none, spin:DIST (keeps its CPU busy) or wait:DIST (sleeps), e.g.
    /// wait:exponential:1ms [default: none]
    #[arg(hide_short_help = true, long, value_name = "WHAT")]
    service: Option<ServiceTime>,
    /// Port of the server [default: memcached 11211, nginx 8080, null-rpc 7777]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Receive buffer of the server's UDP sockets, so that a stall drops no requests; 0 keeps the
    /// server's own [default: 8388608]
    #[arg(hide_short_help = true, long, value_name = "BYTES", value_parser = size::<u32>)]
    receive_buffer: Option<u32>,
    /// User that the server runs as [default: nobody]
    #[arg(hide_short_help = true, long, value_name = "NAME")]
    server_user: Option<String>,
    /// The server's program, by name or path [default: memcached or nginx]
    #[arg(hide_short_help = true, long, value_name = "PATH")]
    server_program: Option<String>,
    /// An additional argument of the server; may be repeated
    #[arg(
        hide_short_help = true,
        long,
        value_name = "ARG",
        allow_hyphen_values = true
    )]
    server_arg: Vec<String>,
    /// How generator and server are connected [default: veth]
    #[arg(hide_short_help = true, long, value_name = "KIND")]
    testbed: Option<TestbedKind>,
}

#[derive(Debug, Default, Args)]
struct CalibrationSettings {
    /// Interleaved pairs of calibration blocks, with and without the probe, all with the same server
    /// process: their interval does not include the difference between processes [default: 9]
    #[arg(hide_short_help = true, long, value_name = "N", value_parser = count::<u32>)]
    pairs: Option<u32>,
    /// Length of a calibration block [default: 400ms]
    #[arg(hide_short_help = true, long, value_name = "TIME")]
    block: Option<Nanos>,
    /// Outstanding requests in a calibration block [default: as many as give the highest throughput]
    #[arg(hide_short_help = true, long, value_name = "N", value_parser = count::<u16>)]
    outstanding: Option<u16>,
    /// Use this service time instead of the measured one
    #[arg(hide_short_help = true, long, value_name = "TIME")]
    service_time: Option<Nanos>,
    /// Ring buffer of each CPU, a power of two, e.g. 8M [default: 4194304, less on many CPUs]
    #[arg(hide_short_help = true, long, value_name = "BYTES", value_parser = size::<u32>)]
    ring_bytes: Option<u32>,
    /// When T2 to T5 and disturbances are recorded: all the time (all), in slices of time that make up a share
    /// of it (sampled:1/16), or never (ends); T1 and T6 always are. Recording less costs less [default: all]
    #[arg(long, value_name = "WHICH")]
    stamps: Option<MiddleStamps>,
    #[arg(hide_short_help = true, long, value_name = "LIST", help = disturbances_help("all"))]
    disturbances: Option<Disturbances>,
}

/// The flags that were given, by their key in the experiment.
#[derive(Default)]
struct Overrides(Vec<Override>);

impl Overrides {
    fn text(&mut self, key: &'static str, value: Option<impl ToString>) {
        let value = value.map(|value| toml::Value::String(value.to_string()));
        self.0.extend(value.map(|value| (key, value)));
    }

    fn length(&mut self, key: &'static str, value: Option<Nanos>) {
        self.text(key, value.map(Nanos::to_exact_string));
    }

    fn whole(&mut self, key: &'static str, value: Option<impl Into<i64>>) {
        let value = value.map(|value| toml::Value::Integer(value.into()));
        self.0.extend(value.map(|value| (key, value)));
    }

    fn number(&mut self, key: &'static str, value: Option<f64>) {
        self.0
            .extend(value.map(|value| (key, toml::Value::Float(value))));
    }
}

impl Settings {
    /// The flags that were given, by their key in the experiment.
    pub fn into_overrides(self) -> Vec<Override> {
        let mut given = Overrides::default();
        self.load.add_to(&mut given);
        self.server.add_to(&mut given);
        self.calibration.add_to(&mut given);
        given.0
    }
}

impl LoadSettings {
    fn add_to(self, given: &mut Overrides) {
        given.number("workload.rate_per_s", self.rate);
        given.number("workload.utilization", self.utilization);
        given.length("workload.duration", self.duration);
        given.text("workload.precision", self.precision);
        given.length("workload.max_duration", self.max_duration);
        given.length("workload.warmup", self.warmup);
        given.whole("workload.seed", self.seed);
        given.number("workload.get_share", self.store.get_share);
        given.whole("workload.keys", self.store.keys);
        given.whole("workload.key_bytes", self.store.key_bytes);
        given.whole("workload.value_bytes", self.store.value_bytes);
        given.text("workload.path", self.path);
        given.whole("workload.request_bytes", self.request_bytes);
        given.whole("workload.response_bytes", self.response_bytes);
        given.text("client.kind", self.clients);
        given.text("client.connect", self.connect);
        given.whole("client.connections", self.connections);
        given.whole("client.pipeline", self.pipeline);
        given.whole("client.reserve", self.reserve);
        given.length("client.timeout", self.timeout);
    }
}

impl ServerSettings {
    fn add_to(self, given: &mut Overrides) {
        given.text("client.cpus", self.client_cpus);
        given.text("server.cpus", self.server_cpus);
        given.whole("server.workers", self.workers);
        given.text("server.transport", self.transport.map(Transport::name));
        given.text(
            "server.protocol",
            self.protocol.map(|protocol| protocol.name),
        );
        given.text("server.architecture", self.architecture);
        given.text("server.service", self.service);
        given.whole("server.port", self.port);
        given.whole("server.receive_buffer_bytes", self.receive_buffer);
        given.text("server.user", self.server_user);
        given.text("server.program", self.server_program);
        if !self.server_arg.is_empty() {
            let args = self.server_arg.into_iter().map(toml::Value::String);
            given
                .0
                .push(("server.args", toml::Value::Array(args.collect())));
        }
        let kind = self.testbed.and_then(|kind| kind.to_possible_value());
        given.text("testbed.kind", kind.map(|kind| kind.get_name().to_owned()));
    }
}

impl CalibrationSettings {
    fn add_to(self, given: &mut Overrides) {
        given.whole("calibration.pairs", self.pairs);
        given.length("calibration.block", self.block);
        given.whole("calibration.outstanding", self.outstanding);
        given.length("calibration.service_time", self.service_time);
        given.whole("probe.ring_bytes", self.ring_bytes);
        given.text("probe.stamps", self.stamps);
        // without T2 to T5, disturbances explain nothing
        let ends = self.stamps == Some(MiddleStamps::Ends);
        let disturbances = self.disturbances.or(ends.then_some(Disturbances::NONE));
        given.text("probe.disturbances", disturbances);
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

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
