//! What every command says, and how it ends: options of several commands, remarks and questions, progress, errors
//! with their exit codes, results on stdout and in files.
//!
//! It knows no command: what it needs of one is handed in.

#![warn(
    clippy::print_stderr,
    reason = "it panics where stderr is closed: `console::messages` does not"
)]

pub mod args;
pub mod ending;
pub mod exit;
pub mod fail;
pub mod help;
pub mod instrument;
pub mod messages;
pub mod print;
pub mod progress;
pub mod rendered;
pub mod rights;
pub mod rundir;
pub mod terminal;
