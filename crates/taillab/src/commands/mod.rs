//! One module for each command.

pub mod run;
pub mod shell;
