//! Exit codes, and errors that carry one.

use std::fmt;
use std::process::ExitCode;

/// How the command ended; the number is part of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Everything went well.
    Ok = 0,
    /// Something failed.
    Failed = 1,
    /// The command line or the experiment file is wrong.
    Usage = 2,
    /// An objective was not reached.
    Missed = 3,
    /// No request was answered or matched, the result contradicts itself, or what was asked is not decided.
    Invalid = 4,
    /// A privilege or a feature of the machine or its kernel is missing.
    Unsupported = 5,
    /// Interrupted; what was measured until then is kept.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// An error whose text is one line with the cause and the remedy.
#[derive(Debug)]
pub struct Failure {
    /// How the command ends.
    pub exit: Exit,
    /// The line.
    pub message: String,
}

impl Failure {
    /// An error that ends the command with `exit`.
    pub fn new(exit: Exit, message: impl fmt::Display) -> Self {
        Self {
            exit,
            message: message.to_string(),
        }
    }

    /// [`Exit::Usage`].
    pub fn usage(message: impl fmt::Display) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// [`Exit::Failed`].
    pub fn failed(message: impl fmt::Display) -> Self {
        Self::new(Exit::Failed, message)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// Gives any error an exit code.
pub trait OrExit<T> {
    /// The value, or a [`Failure`] with `exit` and the error's own text.
    ///
    /// # Errors
    /// The error it had, as a [`Failure`].
    fn or_exit(self, exit: Exit) -> Result<T, Failure>;
}

impl<T, E: fmt::Display> OrExit<T> for Result<T, E> {
    fn or_exit(self, exit: Exit) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(exit, error))
    }
}
