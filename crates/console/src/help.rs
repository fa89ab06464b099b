//! How help and errors of a command line look.

use clap::error::ErrorKind;
use clap::{Arg, ArgAction};

/// The sections of a help text, the examples before the options.
const TEMPLATE: &str =
    "{about-with-newline}\n{before-help}{usage-heading} {usage}\n\n{all-args}{after-help}";

/// A command with two helps: `--help` is one screen with examples, `--help-all` has every option.
pub fn dressed(command: clap::Command) -> clap::Command {
    let subcommands: Vec<String> = (command.get_subcommands())
        .map(|subcommand| subcommand.get_name().to_owned())
        .collect();
    let help = |name: &'static str, action| {
        // otherwise clap would put it below the last heading of the options
        let option = Arg::new(name).long(name).action(action);
        option.help_heading(None)
    };
    let brief = help("help", ArgAction::HelpShort).short('h');
    let whole = help("help-all", ArgAction::HelpLong);
    let text = command.get_after_help().map(ToString::to_string);
    let command = command.next_help_heading(None::<&'static str>);
    let mut command = (command.disable_help_flag(true).help_template(TEMPLATE))
        .arg(brief.help("Print this help"))
        .arg(whole.help("Print all options, notations and exit codes"));
    if let Some(text) = text {
        let examples = text
            .split("\n\n")
            .find(|part| part.starts_with("Examples:"));
        if let Some(examples) = examples {
            // the long text already has them
            command = command
                .before_help(examples.to_owned())
                .before_long_help("");
        }
        command = command.after_help("").after_long_help(text);
    }
    subcommands.into_iter().fold(command, |command, name| {
        command.mut_subcommand(name, dressed)
    })
}

/// What is wrong with a command line and what to do, without the usage that clap adds.
pub fn in_one_line(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // clap's text for this is the whole help
        return "a command is missing; see --help".to_owned();
    }
    let rendered = error.render().to_string();
    let is_message =
        |line: &&str| !line.starts_with("Usage:") && !line.starts_with("For more information");
    let mut text = String::new();
    for line in rendered.lines().take_while(is_message).map(str::trim) {
        if !text.is_empty() && !line.is_empty() {
            let follows = text.ends_with(':') || line.starts_with('[');
            text.push_str(if follows { " " } else { "; " });
        }
        text.push_str(line.trim_start_matches("error: "));
    }
    text + "; see --help"
}
