//! Remarks on stderr.

use crate::cli::Output;

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
            eprintln!("taillab: {text}");
        }
    }

    /// A step of the work, for those who want to follow it.
    pub fn step(self, text: &str) {
        if self.verbose {
            eprintln!("taillab: {text}");
        }
    }
}
