//! The settings as options of `taillab run`.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use taillab_model::MiddleStamps;
use taillab_probe::Disturbances;

use super::layers::Override;
use super::server::Server;
use super::setting::{Heading, Hyphens, RunOption, Setting, text};
use super::settings::{Calibration, Client, Probe, Testbed, Workload};

/// The sections with options, in the order of the help; one comes after those that its options stand behind.
const SECTIONS: [&[Setting]; 6] = [
    Workload::SETTINGS,
    Server::SETTINGS,
    Client::SETTINGS,
    Testbed::SETTINGS,
    Calibration::SETTINGS,
    Probe::SETTINGS,
];

/// The options of `taillab run` that are keys of the experiment file too.
#[derive(Clone, Debug, Default)]
pub struct SettingArgs(Vec<Override>);

impl SettingArgs {
    /// Those that were given, by their key in the experiment.
    pub fn into_overrides(self) -> Vec<Override> {
        let mut given = self.0;
        let has = |key| given.iter().any(|(known, _)| *known == key);
        // without T2 to T5, disturbances explain nothing
        let ends = ("probe.stamps", text(MiddleStamps::Ends));
        if given.contains(&ends) && !has("probe.disturbances") {
            given.push(("probe.disturbances", text(Disturbances::NONE)));
        }
        given
    }
}

impl Args for SettingArgs {
    fn augment_args(command: Command) -> Command {
        in_order()
            .into_iter()
            .fold(command, |command, (setting, option)| {
                command.arg(arg(setting, option))
            })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SettingArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = in_order().into_iter().filter_map(|(setting, option)| {
            let values = matches.get_many::<toml::Value>(option.long)?;
            let mut values: Vec<toml::Value> = values.cloned().collect();
            let value = match option.is_list {
                true => toml::Value::Array(values),
                false => values.pop()?,
            };
            Some((setting.key, value))
        });
        Ok(Self(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The settings with options, in the order of the help.
fn in_order() -> Vec<(&'static Setting, RunOption)> {
    let mut all: Vec<(&'static Setting, RunOption)> = Vec::new();
    for heading in Heading::ALL {
        for section in SECTIONS {
            let with_option = section.iter().filter_map(|one| Some((one, one.option?)));
            let mut place = all.len();
            for (setting, option) in with_option.filter(|(_, option)| option.heading == heading) {
                let is_behind = |other| all.iter().position(|(_, known)| known.long == other);
                place = option.after.and_then(is_behind).map_or(place, |at| at + 1);
                all.insert(place, (setting, option));
                place += 1;
            }
        }
    }
    all
}

fn arg(setting: &Setting, option: RunOption) -> Arg {
    let action = match option.is_list {
        true => ArgAction::Append,
        false => ArgAction::Set,
    };
    let mut arg = Arg::new(option.long)
        .long(option.long)
        .value_name(option.value_name)
        .value_parser((option.reader)())
        .action(action)
        .help(setting.help())
        .help_heading(option.heading.name())
        .hide_short_help(!option.is_usual)
        .allow_negative_numbers(option.hyphens == Hyphens::Numbers)
        .allow_hyphen_values(option.hyphens == Hyphens::All);
    if let Some(short) = option.short {
        arg = arg.short(short);
    }
    if let Some(alias) = option.alias {
        arg = arg.visible_alias(alias);
    }
    if let Some(other) = option.needs {
        arg = arg.requires(other);
    }
    arg
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An option that stands behind one of a later section, or behind none that exists, would silently be at the end.
    #[test]
    fn every_option_finds_the_one_that_it_stands_behind() {
        let all = in_order();
        let longs: Vec<&str> = all.iter().map(|(_, option)| option.long).collect();
        for (at, (_, option)) in all.iter().enumerate() {
            if let Some(after) = option.after {
                assert_eq!(longs[at - 1], after, "--{}", option.long);
            }
        }
    }
}
