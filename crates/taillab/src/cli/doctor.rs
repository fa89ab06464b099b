//! The command line of `taillab doctor`.

use clap::Args;

use super::shared::Output;

const EXIT_CODES: &str = "With -v all that was tried is printed; with -q only what is wrong, and nothing where nothing is.\n\n\
    Exit codes:\n  0    `taillab run` can work here\n  1    something failed\n  2    wrong command \
    line\n  5    `taillab run` cannot work here: a privilege or a kernel feature is missing";

/// Say what this machine allows, and what to do about what it does not allow.
///
/// Tries privileges, kernel features and every hook of the probe for real, for a moment each, and
/// looks for anything that may spoil a measurement. Leaves nothing behind and changes no setting.
/// Works for every user; as root it can try more.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct DoctorArgs {
    #[command(flatten)]
    pub common: Output,
}
