//! The command line of `taillab run`.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum, ValueHint};
use taillab_console::args::{LimitArgs, Output};
use taillab_experiment::definition::{Override, PRESETS, Preset, ServerKind, SettingArgs};
use taillab_experiment::fix::{FactorialArgs, FixArgs};
use taillab_host::doctor::RUN;

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
        RUN.said()
    )
}

/// Measure a server under controlled load against its ideal.
///
/// Starts the server on its own CPUs in its own network namespace, measures its peak throughput, sends an
/// open-loop Poisson load, stamps every request six times in the kernel, and compares its sojourn with that
/// in an ideal queue with the same arrivals, in which each takes t: what a request cost in the busy periods
/// of the recording. All changes to the machine are undone at the end.
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
        conflicts_with_all = ["kind", "server-program", "server-arg"],
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
    pub settings: SettingArgs,
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
