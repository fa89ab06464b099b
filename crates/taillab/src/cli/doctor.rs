//! The command line of `taillab doctor`.

use clap::Args;
use taillab_console::args::Output;

const EXIT_CODES: &str = "With -v everything that was tried is printed; with -q only what is wrong.\n\n\
    Exit codes:\n  0    `taillab run` can work here\n  1    something failed\n  2    wrong command \
    line\n  5    `taillab run` cannot work here: a privilege or a kernel feature is missing";

/// Check what works on this machine, and say what to do about the rest.
///
/// Briefly tries privileges, kernel features and every hook of the probe, and looks for anything that
/// may disturb a measurement. It leaves nothing behind and changes no setting. It works for every user;
/// as root it can try more.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub struct DoctorArgs {
    #[command(flatten)]
    pub common: Output,
}
