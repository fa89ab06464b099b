//! Remarks on stderr.

use std::io::Write;

use crate::cli::Output;

/// Writes a line of ours to stderr. A terminal that has gone is no reason to end a measurement.
pub fn line(text: &impl std::fmt::Display) {
    let _ = writeln!(std::io::stderr(), "taillab: {text}");
}

/// How much is said.
#[derive(Clone, Copy, Debug)]
pub struct Say {
    /// Nothing but errors.
    pub quiet: bool,
    /// Each step of the work.
    pub verbose: bool,
}

impl Say {
    /// As the command line says.
    pub const fn of(output: Output) -> Self {
        Self {
            quiet: output.quiet,
            verbose: output.verbose > 0,
        }
    }

    /// Something that the user should know.
    pub fn note(self, text: &impl std::fmt::Display) {
        if !self.quiet {
            line(text);
        }
    }

    /// A step of the work, for those who want to follow it.
    pub fn step(self, text: &str) {
        if self.verbose {
            line(&text);
        }
    }
}
