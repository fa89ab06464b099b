//! Remarks and questions on stderr. What they repeat may come from a recording or from other users' processes, so a
//! terminal must find nothing in it to obey.

use std::io::{self, BufRead, Write};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use taillab_model::text::plain;

use crate::args::Output;
use crate::exit::{Exit, Failure};

/// Asks a question on the terminal: whether the answer is yes. Above its `lines` stands what [`taillab_report`] has
/// `drawn`, which is clean already.
///
/// # Errors
/// The terminal is gone, or [`Exit::Interrupted`]: Ctrl-C, where it only raises a flag.
pub fn ask(drawn: &str, lines: &[String]) -> Result<bool, Failure> {
    let failed = |error: io::Error| Failure::failed(format!("cannot ask: {error}"));
    let mut terminal = io::stderr();
    let text = format!("{drawn}\n{} ", cleaned(lines));
    terminal.write_all(text.as_bytes()).map_err(failed)?;
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

/// The lines of a question; none of them can break into two.
fn cleaned(lines: &[String]) -> String {
    let lines: Vec<String> = lines.iter().map(|line| plain(line)).collect();
    lines.join("\n")
}

/// Writes a line to stderr. A measurement goes on even if the terminal is gone.
pub fn line(text: &impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "taillab: {}", plain(&text.to_string()));
}

/// The messages of a command, as many as its options ask for.
#[derive(Clone, Copy, Debug)]
pub struct Messages {
    /// Nothing but errors.
    pub quiet: bool,
    /// Each step of the work.
    pub verbose: bool,
}

impl Messages {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_a_question_can_neither_steer_the_terminal_nor_add_a_line() {
        let lines = [
            "thread 7 (x\u{1b}[2J\nChange nothing?)",
            "Change 1 setting? [y/N]",
        ];
        assert_eq!(
            cleaned(&lines.map(str::to_owned)),
            "thread 7 (x\u{fffd}[2J\u{fffd}Change nothing?)\nChange 1 setting? [y/N]"
        );
    }
}
