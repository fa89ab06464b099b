//! Remarks and questions on stderr.

use std::io::{self, BufRead, Write};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::cli::Output;
use crate::exit::{Exit, Failure};

/// Asks a question on the terminal: whether the answer is yes.
///
/// # Errors
/// The terminal is gone, or [`Exit::Interrupted`]: Ctrl-C, where it only raises a flag.
pub fn ask(question: &str) -> Result<bool, Failure> {
    let failed = |error: io::Error| Failure::failed(format!("cannot ask: {error}"));
    let mut terminal = io::stderr();
    terminal.write_all(question.as_bytes()).map_err(failed)?;
    terminal.flush().map_err(failed)?;
    let stdin = io::stdin();
    // unlike a read, this does not go on after such a signal
    let polled = poll(&mut [PollFd::new(&stdin, PollFlags::IN)], None);
    if polled == Err(Errno::INTR) {
        let text = "interrupted at a question";
        return Err(Failure::new(Exit::Interrupted, text));
    }
    polled.map_err(|error| failed(error.into()))?;
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer).map_err(failed)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Writes a line to stderr. A measurement goes on even if the terminal is gone.
pub fn line(text: &impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "taillab: {text}");
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
    /// As the options of the command line ask.
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
