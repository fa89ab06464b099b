//! The command line of `taillab trace`.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::{NonZeroU16, NonZeroU32};
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueHint};
use taillab_analysis::Framing;
use taillab_console::args::{AnalysisArgs, LimitArgs, Output, positive, size};
use taillab_experiment::args::disturbances_help;
use taillab_experiment::fix::{ConsentArgs, FixArgs};
use taillab_host::CpuSet;
use taillab_host::doctor::TRACE;
use taillab_model::{MiddleStamps, Nanos};
use taillab_probe::Disturbances;

const EXIT_CODES: &str = "Exit codes:\n  \
    0    everything went well\n  \
    1    something failed, or the server ended; what was recorded is kept\n  \
    2    wrong command line, or no such server\n  \
    3    a limit of --assert is not met\n  \
    4    no request was answered, or an --assert is not decided\n  \
    5    a privilege or a kernel feature is missing\n  \
    130  interrupted; what was recorded is kept";

fn help() -> String {
    format!(
        "Changes nothing on the machine, except with --fix. The result is saved in a new directory; \
         `taillab explain DIR` repeats the analysis from the recording in it (capture.tlc), without \
         root and on any machine.\n\nExamples:\n  \
         taillab trace -p 4711\n  \
         taillab trace --port 11211 --udp -d 30s\n  \
         taillab trace --cgroup system.slice/nginx.service --live\n  \
         taillab trace --port 11211 --live --metrics 127.0.0.1:9188\n  \
         taillab trace -p 4711 --fix\n  \
         taillab trace -d 5s -- redis-server --save ''\n\n{}\n\n{EXIT_CODES}",
        TRACE.said()
    )
}

/// Trace a running server: stamps every request six times, and records what happens on its CPUs.
///
/// Give it a process, a port or a control group, or a command to start. It stamps every request in the
/// kernel, without changing the server or its traffic, and shows how long requests were in the server,
/// where, and why longer than in an ideal queue.
#[derive(Debug, Args)]
#[command(
    after_help = help(),
    group = clap::ArgGroup::new("server").required(true).multiple(true)
        .args(["pid", "port", "cgroup", "words"])
)]
pub struct TraceArgs {
    #[command(flatten)]
    pub common: Output,
    #[command(flatten, next_help_heading = "Server")]
    pub server: ServerArgs,
    #[command(flatten, next_help_heading = "Recording")]
    pub recording: RecordingArgs,
    #[command(flatten, next_help_heading = "Analysis")]
    pub analysis: AnalysisArgs,
    #[command(flatten, next_help_heading = "Result")]
    pub result: ResultArgs,
    #[command(flatten, next_help_heading = "Fixes")]
    pub fix: FixArgs,
    #[command(flatten, next_help_heading = "Fixes")]
    pub consent: ConsentArgs,
    #[command(flatten, next_help_heading = "Limits")]
    pub limits: LimitArgs,
}

/// The server.
#[derive(Debug, Args)]
pub struct ServerArgs {
    /// The server's process, or one of its processes
    #[arg(short, long, value_name = "PID", value_parser = process, conflicts_with_all = ["cgroup", "words"])]
    pub pid: Option<NonZeroU32>,
    /// The server's port; with -p, --cgroup or a command, one of its ports
    #[arg(long, value_name = "PORT", value_parser = port)]
    pub port: Option<NonZeroU16>,
    /// The server's control group, e.g. system.slice/nginx.service
    #[arg(long, value_name = "PATH", value_hint = ValueHint::DirPath, conflicts_with = "words")]
    pub cgroup: Option<PathBuf>,
    /// Start this server, trace it, and stop it
    #[arg(value_name = "COMMAND", last = true, value_hint = ValueHint::CommandWithArguments)]
    pub words: Vec<OsString>,
    /// Its TCP port, if it listens on both TCP and UDP
    #[arg(long, conflicts_with = "udp")]
    pub tcp: bool,
    /// Its UDP port
    #[arg(long)]
    pub udp: bool,
    // the help lists the known framings
    #[arg(long, help = protocol_help(), value_name = "NAME", default_value = "auto")]
    pub protocol: ProtocolChoice,
    /// Watch these CPUs [default: all that the server may run on]
    #[arg(short = 'C', long, value_name = "CPUS")]
    pub cpus: Option<CpuSet>,
}

/// The recording.
#[derive(Debug, Args)]
pub struct RecordingArgs {
    /// Length of the recording, at most 72h [default: 10s; with --live until q is pressed]
    #[arg(short, long, value_name = "TIME", value_parser = recorded)]
    pub duration: Option<Nanos>,
    /// When the stamps between a request's arrival (T1) and its response's departure (T6), and disturbances, are
    /// recorded: all the time (all), in slices that make up a share of it (sampled:1/16), or never (ends).
    /// Recording less costs less
    #[arg(long, value_name = "WHICH", default_value = "all")]
    pub stamps: MiddleStamps,
    #[arg(long, value_name = "LIST", help = disturbances_help("all; with --stamps ends none"))]
    pub disturbances: Option<Disturbances>,
    /// How long clients wait for a response; taillab looks for one four times as long
    #[arg(hide_short_help = true, long, value_name = "TIME", default_value = "1s", value_parser = positive)]
    pub timeout: Nanos,
    /// Buffer for each CPU, a power of two, e.g. 16M [default: 8 MiB, less on many CPUs]
    #[arg(hide_short_help = true, long, value_name = "BYTES", value_parser = size::<u32>)]
    pub ring_bytes: Option<u32>,
}

/// The output.
#[derive(Debug, Args)]
pub struct ResultArgs {
    /// Show the result of the last second, every second, until q or Ctrl-C. Saves nothing without -o
    #[arg(long, conflicts_with_all = ["json", "fix"])]
    pub live: bool,
    /// With --live, serve its figures over HTTP in the format of OpenMetrics, for Prometheus, on this port of the loopback
    /// interface, or at this address; needs no terminal [default: 127.0.0.1:9188]
    #[arg(hide_short_help = true, long, value_name = "[ADDR:]PORT", num_args = 0..=1, default_missing_value = "9188", requires = "live")]
    pub metrics: Option<MetricsAddress>,
    /// Save the result in this new directory [default: taillab-<server>-<time>]
    #[arg(short, long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub output: Option<PathBuf>,
    /// Only print the result; the recording is in memory, from 32 MiB on in a temporary file
    #[arg(hide_short_help = true, long, conflicts_with = "output")]
    pub no_save: bool,
}

/// Where figures are served: on the loopback interface unless an address is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricsAddress(pub SocketAddr);

impl FromStr for MetricsAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let port = || {
            text.parse()
                .ok()
                .map(|port: u16| (Ipv4Addr::LOCALHOST, port).into())
        };
        let address = text.parse().ok().or_else(port);
        address.map(Self).ok_or_else(|| {
            format!("`{text}` is no address; write a port, e.g. 9188, or ADDR:PORT, e.g. 0.0.0.0:9188 or [::1]:9188")
        })
    }
}

impl ResultArgs {
    /// Whether the recording and the result are kept.
    pub fn saves(&self) -> bool {
        self.output.is_some() || !(self.no_save || self.live)
    }
}

impl TraceArgs {
    /// The length of the recording; `None` if the user ends it.
    pub fn length(&self) -> Option<Nanos> {
        const DEFAULT: Nanos = Nanos::from_secs(10);
        self.recording
            .duration
            .or((!self.result.live).then_some(DEFAULT))
    }
}

/// The longest recording. The times of its events have 48 bits, 78 hours in nanoseconds.
pub const LONGEST_RECORDING: Nanos = Nanos::from_secs(72 * 3_600);

fn recorded(text: &str) -> Result<Nanos, String> {
    match positive(text)? {
        length if length > LONGEST_RECORDING => {
            Err("a recording lasts for at most 72h: take several, one after the other".to_owned())
        }
        length => Ok(length),
    }
}

fn process(text: &str) -> Result<NonZeroU32, String> {
    let remedy =
        "a process is a whole number of at least 1; look for the server's with `pgrep -a NAME`";
    text.parse().map_err(|_| remedy.to_owned())
}

fn port(text: &str) -> Result<NonZeroU16, String> {
    text.parse()
        .map_err(|_| "a port is a number from 1 to 65535".to_owned())
}

fn protocol_help() -> String {
    format!(
        "Its protocol, if requests on a connection can be separated only by their content: auto, {}, \
         fixed:REQUEST:RESPONSE (lengths), or datagram (one request and one response in turn). \
         The recording keeps only keywords and lengths of the content",
        Framing::names()
    )
}

/// How requests are separated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolChoice {
    /// By turns; the server's name says whether it answers in order.
    Auto,
    /// As the user says.
    As(Framing),
}

impl FromStr for ProtocolChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "datagram" => Ok(Self::As(Framing::OneInTurn)),
            _ => text.parse().map(Self::As).map_err(|_| {
                format!(
                    "`{text}` is none of auto, {}, datagram, fixed:BYTES, \
                     fixed:REQUEST:RESPONSE",
                    Framing::names()
                )
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn parse(args: &[&str]) -> Result<TraceArgs, clap::Error> {
        let all = ["taillab", "trace"].iter().chain(args);
        Cli::try_parse_from(all).map(|cli| match cli.command {
            Command::Trace(args) => *args,
            _ => panic!("not a trace"),
        })
    }

    #[test]
    fn a_server_is_named_in_one_way_with_an_additional_port() {
        assert_eq!(
            parse(&["-p", "7", "--port", "80"])
                .unwrap()
                .server
                .pid
                .map(NonZeroU32::get),
            Some(7)
        );
        let command = parse(&["-d", "5s", "--", "redis-server", "--port", "7000"]).unwrap();
        assert_eq!(command.server.words.len(), 3);
        assert_eq!(command.length(), Some(Nanos::from_secs(5)));
        assert_eq!(
            parse(&["-p", "7"]).unwrap().length(),
            Some(Nanos::from_secs(10))
        );
        assert_eq!(parse(&["-p", "7", "--live"]).unwrap().length(), None);
        for wrong in [
            &[][..],
            &["-p", "0"],
            &["-p", "7", "--cgroup", "x"],
            &["-p", "7", "--", "x"],
            &["--port", "0"],
            &["--port", "80", "--tcp", "--udp"],
            &["--port", "80", "--disturbances", "noise"],
            &["--port", "80", "--service-time", "0s"],
            &["--port", "80", "-d", "0"],
            &["--port", "80", "--live", "--json"],
            &["--port", "80", "--metrics", "9188"],
            &["--port", "80", "--live", "--metrics", "everywhere"],
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn figures_are_served_on_loopback_unless_an_address_is_given() {
        for (words, wanted) in [
            (&["--metrics"][..], "127.0.0.1:9188"),
            (&["--metrics", "9000"], "127.0.0.1:9000"),
            (&["--metrics", "0.0.0.0:9188"], "0.0.0.0:9188"),
            (&["--metrics=[::1]:9188"], "[::1]:9188"),
        ] {
            let args = parse(&[&["--port", "80", "--live"], words].concat()).unwrap();
            assert_eq!(args.result.metrics.unwrap().0.to_string(), wanted);
        }
        let args = parse(&["--port", "80", "--live"]).unwrap();
        assert_eq!(args.result.metrics, None);
    }

    #[test]
    fn protocols_are_read_as_recordings_name_them() {
        for name in ["http", "memcached", "resp", "fixed:128:64"] {
            let choice: ProtocolChoice = name.parse().unwrap();
            assert_eq!(choice, ProtocolChoice::As(name.parse().unwrap()));
        }
        assert_eq!("auto".parse(), Ok(ProtocolChoice::Auto));
        assert_eq!(
            "datagram".parse(),
            Ok(ProtocolChoice::As(Framing::OneInTurn))
        );
        for wrong in ["", "fixed:0", "fixed:", "grpc"] {
            assert!(wrong.parse::<ProtocolChoice>().is_err(), "{wrong}");
        }
    }
}
