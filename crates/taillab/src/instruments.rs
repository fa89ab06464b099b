//! The instruments that are built in. Another one needs its line here and among the dependencies of this crate.

use clap::error::ErrorKind;
use clap::{ArgMatches, Command, FromArgMatches, Subcommand};
use taillab_console::exit::{Exit, Failure};
use taillab_console::instrument::{Instrument, Paper};
use taillab_host::doctor::{self, Needs};

/// All of them, in the order of `--help`.
pub const INSTRUMENTS: &[Instrument] = &[
    taillab_noise::INSTRUMENT,
    taillab_budget::INSTRUMENT,
    taillab_rtt::INSTRUMENT,
    taillab_sim::INSTRUMENT,
    taillab_reproduce::INSTRUMENT,
];

/// The commands that need or can use privileges, with what they need.
pub fn needs() -> Vec<(&'static str, Needs)> {
    let own = [("run", doctor::RUN), ("trace", doctor::TRACE)];
    let of_instruments = INSTRUMENTS.iter().map(|one| (one.name, one.needs));
    own.into_iter().chain(of_instruments).collect()
}

/// The instrument that was asked for, with its arguments.
#[derive(Clone, Debug)]
pub struct Invocation {
    instrument: &'static Instrument,
    arguments: ArgMatches,
}

impl Invocation {
    /// Runs it, or for a paper that another instrument reproduces, that one.
    pub fn run(&self) -> Result<Exit, Failure> {
        let paper = self.arguments.subcommand().and_then(|(name, arguments)| {
            let paper = papers_below(self.instrument).find(|paper| paper.name == name)?;
            Some((paper, arguments))
        });
        match paper {
            Some((paper, arguments)) => (paper.run)(arguments),
            None => (self.instrument.run)(&self.arguments, INSTRUMENTS),
        }
    }
}

fn named(name: &str) -> Option<&'static Instrument> {
    INSTRUMENTS
        .iter()
        .find(|instrument| instrument.name == name)
}

/// The papers of all instruments, below the one that reproduces papers.
fn papers_below(instrument: &Instrument) -> impl Iterator<Item = Paper> {
    let has_papers = instrument.name == "reproduce";
    let papers = INSTRUMENTS.iter().filter_map(|instrument| instrument.paper);
    papers.filter(move |_| has_papers)
}

fn command_of(instrument: &Instrument) -> Command {
    let command = (instrument.arguments)(Command::new(instrument.name));
    papers_below(instrument).fold(command, |command, paper| {
        let of_paper = Command::new(paper.name).display_order(paper.place);
        command.subcommand((paper.arguments)(of_paper))
    })
}

impl Subcommand for Invocation {
    fn augment_subcommands(command: Command) -> Command {
        let commands = INSTRUMENTS.iter().map(command_of);
        commands.fold(command, Command::subcommand)
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        named(name).is_some()
    }
}

impl FromArgMatches for Invocation {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let invoked = matches.subcommand().and_then(|(name, arguments)| {
            let instrument = named(name)?;
            let arguments = arguments.clone();
            Some(Self {
                instrument,
                arguments,
            })
        });
        invoked.ok_or_else(|| clap::Error::new(ErrorKind::MissingSubcommand))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
