//! The command line. Arguments become plain data here; clap goes no further.

mod agent;
mod burn;
mod compare;
mod doctor;
mod explain;
mod load;
mod run;
mod trace;
mod tune;

use std::path::PathBuf;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueHint};
use taillab_console::help::dressed;
use taillab_experiment::serve::ServeArgs;

pub use self::agent::AgentArgs;
#[cfg(test)]
pub use self::agent::EXAMPLE as AGENT_EXAMPLE;
pub use self::burn::BurnArgs;
pub use self::compare::CompareArgs;
pub use self::doctor::DoctorArgs;
pub use self::explain::ExplainArgs;
pub use self::load::{
    Amounts, ClientArgs, Floor, LoadArgs, RequestArgs, ScheduleArgs, StampKind, StoreArgs, WaitKind,
};
pub use self::run::RunArgs;
pub use self::trace::{LONGEST_RECORDING, ProtocolChoice, TraceArgs};
pub use self::tune::{ApplyArgs, PlanArgs, TuneArgs, TuneCommand};

use crate::instruments::Invocation;

/// A tail-latency laboratory for Linux servers.
///
/// Says how far a server's latency is from the best that queueing theory allows, and why.
#[derive(Debug, Parser)]
#[command(name = "taillab", version, propagate_version = true, after_help = run::EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    // the help of these is at their arguments, since it is longer than a line
    Run(Box<RunArgs>),
    Trace(Box<TraceArgs>),
    Explain(ExplainArgs),
    Compare(CompareArgs),
    Serve(Box<ServeArgs>),
    Load(Box<LoadArgs>),
    Agent(AgentArgs),
    #[command(flatten)]
    Instrument(Invocation),
    Tune(TuneArgs),
    Doctor(DoctorArgs),
    Burn(BurnArgs),
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

/// The whole command line. `--help` is one screen: what the command does, examples, and the usual
/// options. `--help-all` has all of them, with notations and exit codes.
pub fn command() -> clap::Command {
    dressed(Cli::command())
}

/// Reads the command line of this process.
///
/// # Errors
/// The help or the error from clap.
pub fn parse() -> Result<Cli, clap::Error> {
    Cli::from_arg_matches(&command().try_get_matches()?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::sync::LazyLock;

    use clap::Arg;
    use taillab_console::help::in_one_line;

    use crate::instruments::{self, INSTRUMENTS};

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    fn each(command: &clap::Command, name: &str, look: &mut impl FnMut(&str, &clap::Command)) {
        look(name, command);
        for below in command
            .get_subcommands()
            .filter(|below| below.get_name() != "help")
        {
            each(below, &format!("{name} {}", below.get_name()), look);
        }
    }

    /// One rule for all: what records the machine saves it; everything else is printed.
    #[test]
    fn each_command_says_where_its_result_is_saved() {
        const SAVE: [&str; 3] = ["run", "trace", "compare"];
        let mut found = 0;
        each(&command(), "taillab", &mut |name, command| {
            let mut options = command.get_arguments();
            let Some(output) = options.find(|option| option.get_long() == Some("output")) else {
                return;
            };
            let help = output
                .get_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            assert!(
                help.starts_with("Save the result in this new directory"),
                "{name}: {help}"
            );
            let saves = SAVE.iter().any(|saving| name.ends_with(saving));
            let prints = help.ends_with("[default: it is printed only]");
            assert_eq!(prints, !saves, "{name}: {help}");
            found += 1;
        });
        assert!(found > 5, "only {found} commands save a result");
    }

    #[test]
    fn help_is_one_screen_and_the_whole_help_has_every_option() {
        const LINES: usize = 80;
        let mut whole = command().term_width(100);
        whole.build();
        each(&whole, "taillab", &mut |name, command| {
            let brief = command.clone().render_help().to_string();
            let lines = brief.lines().count();
            assert!(lines <= LINES, "{name}: {lines} lines\n{brief}");
            let all = command.clone().render_long_help().to_string();
            for option in command.get_arguments().filter_map(Arg::get_long) {
                assert!(all.contains(&format!("--{option}")), "{name}: {option}");
            }
        });
    }

    /// The command lines of a text, without `sudo`, comments and what comes after a pipe.
    fn printed(text: &str) -> Vec<Vec<String>> {
        // a line that ends with a backslash goes on
        let text: String = text.split("\\\n").map(str::trim_start).collect();
        let lines = text
            .lines()
            .map(|line| line.trim().trim_start_matches("$ "));
        // contributors have the program in the build folder; a word in capitals stands for something
        let ours = lines
            .map(|line| line.strip_prefix("sudo ").unwrap_or(line))
            .map(|line| line.strip_prefix("target/debug/").unwrap_or(line))
            .filter(|line| line.starts_with("taillab "))
            .filter(|line| !["COMMAND", "NAME"].iter().any(|word| line.contains(word)));
        ours.map(|line| {
            // help explains a command after it, behind several spaces
            let line = line.split("   ").next().unwrap_or(line);
            let line = line.split(" && ").next().unwrap_or(line);
            let mut line = line.split(" | ").next().unwrap_or(line).to_owned();
            while let Some((from, to)) = line.find("$(").zip(line.find(')')) {
                line.replace_range(from..=to, "4711");
            }
            shlex::split(&line).unwrap_or_else(|| panic!("{line}"))
        })
        .collect()
    }

    /// The pages of a folder and of those below it, with their text.
    fn pages(folder: &Path, found: &mut Vec<(String, String)>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("target") {
                pages(&path, found);
            } else if path.file_name().is_some_and(|name| name == "README.md") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path.display().to_string(), text));
            }
        }
    }

    /// Whether it is a command of an instrument whose folder somebody has taken out: README names the command, and it
    /// is not there. So may be the paper that `reproduce` names.
    fn is_of_missing_instrument<W: AsRef<str>>(words: &[W]) -> bool {
        const README: &str = include_str!("../../../README.md");
        let mut names = words.iter().skip(1).map(AsRef::as_ref);
        let (command, paper) = (names.next().unwrap_or_default(), names.next());
        let all = command_line();
        match (all.find_subcommand(command), paper) {
            (None, _) => README.contains(&format!("**`{command}`**")),
            (Some(reproduce), Some(paper)) if command == "reproduce" => {
                !has_papers() && reproduce.find_subcommand(paper).is_none()
            }
            _ => false,
        }
    }

    /// The whole command line, made once.
    fn command_line() -> &'static clap::Command {
        static LINE: LazyLock<clap::Command> = LazyLock::new(command);
        &LINE
    }

    #[test]
    fn a_command_that_readme_does_not_name_is_of_no_instrument() {
        assert!(!is_of_missing_instrument(&["taillab", "nosie"]));
    }

    fn has_papers() -> bool {
        INSTRUMENTS
            .iter()
            .any(|instrument| instrument.paper.is_some())
    }

    /// The privileges that a command can use are in its help.
    #[test]
    fn help_names_the_capabilities_that_a_command_needs() {
        for (name, needs) in instruments::needs() {
            let command = command_line().find_subcommand(name).unwrap();
            let help = command.clone().term_width(0).render_long_help();
            let said = needs.said();
            // those that need none may say so or not
            let needs_none = needs.least.is_empty() && needs.more.is_empty();
            let says = help.to_string().contains(&said);
            assert!(says || needs_none, "{name}: no `{said}`");
        }
    }

    /// What the documents and the help print can be typed.
    #[test]
    fn every_printed_command_line_is_one() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut texts: Vec<(String, String)> = [
            "README.md",
            "CONTRIBUTING.md",
            "docs/advice.md",
            "docs/causes.md",
            "docs/fix.md",
            "docs/packages.md",
            "docs/recipes.md",
            "docs/since-the-papers.md",
            "docs/tune.md",
            "docs/tutorial.md",
            "docs/verdict.md",
        ]
        .map(|name| {
            let text = fs::read_to_string(root.join(name)).unwrap();
            (name.to_owned(), text)
        })
        .to_vec();
        for folder in ["crates", "scripts", "schemas"] {
            pages(&root.join(folder), &mut texts);
        }
        each(&command(), "taillab", &mut |name, command| {
            let after = command.get_after_long_help().map(ToString::to_string);
            texts.push((name.to_owned(), after.unwrap_or_default()));
        });
        let instruments = fs::read_dir(root.join("crates/instruments")).unwrap();
        let folders = instruments.map(|entry| entry.unwrap().path().join("figures"));
        for entry in folders
            .filter_map(|folder| fs::read_dir(folder).ok())
            .flatten()
        {
            let path = entry.unwrap().path();
            let text = fs::read_to_string(&path).unwrap();
            let commands = text
                .lines()
                .filter_map(|line| line.strip_prefix("command = \""));
            let commands: Vec<&str> = commands.map(|line| line.trim_end_matches('"')).collect();
            texts.push((path.display().to_string(), commands.join("\n")));
        }
        for (whence, text) in texts {
            let lines = printed(&text);
            let has_some = [
                "README.md",
                "docs/tune.md",
                "docs/tutorial.md",
                "docs/recipes.md",
            ]
            .contains(&whence.as_str());
            assert!(!has_some || !lines.is_empty(), "{whence}: none was found");
            for words in lines {
                if is_of_missing_instrument(&words) {
                    continue;
                }
                let parsed = command().try_get_matches_from(&words);
                let said = parsed.err().map(|error| error.to_string());
                assert!(said.is_none(), "{whence}: {words:?}: {said:?}");
            }
        }
    }

    /// A letter is one option, whichever the command.
    #[test]
    fn a_short_flag_means_one_thing() {
        let mut meanings: std::collections::BTreeMap<char, Vec<(String, String)>> =
            Default::default();
        each(&command(), "taillab", &mut |name, command| {
            for option in command.get_arguments() {
                if let (Some(short), Some(long)) = (option.get_short(), option.get_long()) {
                    let known = meanings.entry(short).or_default();
                    known.push((long.to_owned(), name.to_owned()));
                }
            }
        });
        for (short, used) in meanings {
            // where a command has a server, the CPUs that are measured are the server's
            let alike = |long: &str| match long {
                "server-cpus" | "server-cpu" => "cpus".to_owned(),
                long => long.to_owned(),
            };
            let first = alike(&used[0].0);
            let same = used.iter().all(|(long, _)| alike(long) == first);
            assert!(same, "-{short}: {used:?}");
        }
    }

    #[test]
    fn every_count_and_every_size_takes_a_suffix() {
        for line in [
            "trace -p 1 --ring-bytes 64K",
            "run memcached --ring-bytes 64K --receive-buffer 8M --keys 10k --key-bytes 1K --value-bytes 1K \
             --request-bytes 1K --response-bytes 1K --pairs 1k --outstanding 1k --connections 1k --reserve 4k",
            "load echo://h:1 -R 1 --connections 1k --outstanding 1k --request-bytes 1K --response-bytes 64K",
            "load memcached://h:1 -R 1 --keys 1M --key-bytes 64 --value-bytes 64K",
            "rtt --count 100M --runs 1k --warmup 10k --size 64K --conns 1,1k --link veth --mtu 9K",
            "reproduce deconstructing fig4 --count 1M --runs 1k",
            "reproduce tales fig1 --requests 20M",
            "serve epoll-shared --request-bytes 1K --response-bytes 64K",
            "sim --requests 20M",
            "budget --draws 1M",
        ] {
            let words: Vec<&str> = ["taillab"]
                .into_iter()
                .chain(line.split_whitespace())
                .collect();
            if is_of_missing_instrument(&words) {
                continue;
            }
            let said = Cli::try_parse_from(words)
                .err()
                .map(|error| error.to_string());
            assert!(said.is_none(), "{line}: {said:?}");
        }
    }

    /// A trace says what `--help` says of it.
    #[test]
    fn the_unit_of_a_trace_is_never_guessed_where_it_matters() {
        each(&command(), "taillab", &mut |name, command| {
            let unit = |arg: &&Arg| arg.get_long() == Some("trace-unit");
            let help = command.get_arguments().find(unit).and_then(Arg::get_help);
            let help = help.map(ToString::to_string).unwrap_or_default();
            assert!(
                help.is_empty() || help.contains("else it is needed"),
                "{name}: {help}"
            );
        });
    }

    #[test]
    fn a_wrong_command_line_is_one_line_with_its_remedy() {
        for (words, parts) in [
            (&["trace", "-p", "x"][..], &["`pgrep", "--help"][..]),
            (&["trace", "-p", "0"], &["at least 1"]),
            (&["trace", "--port", "70000"], &["from 1 to 65535"]),
            (&["trace", "-p", "1", "-d", "73h"], &["at most 72h"]),
            (
                &["trace", "--sloest", "3"],
                &["--sloest", "tip: ", "--slowest"],
            ),
            (&["trace"], &["--pid <PID>"]),
            (&["explain"], &["FILE|DIR"]),
            (&[], &["a command is missing", "--help"]),
            (&["tune"], &["a command is missing", "--help"]),
        ] {
            let error = Cli::try_parse_from(["taillab"].iter().chain(words)).unwrap_err();
            let line = in_one_line(&error);
            assert!(!line.contains('\n') && !line.contains("Usage"), "{line}");
            for part in parts {
                assert!(line.contains(part), "{words:?}: {line}");
            }
        }
    }
}
