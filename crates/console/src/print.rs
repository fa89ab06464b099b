//! What goes to standard output.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use serde::Serialize;
use taillab_report::json;
use taillab_report::terminal::Style;

use crate::args::Output;
use crate::exit::{Exit, Failure, OrExit};
use crate::terminal::can_be_drawn_on;

/// Prints the result on stdout. It is not a failure if the reader closes the pipe (`| head`).
pub fn print(bytes: &[u8]) -> Result<(), Failure> {
    print_or(bytes, || "write it into files with -o DIR".to_owned())
}

/// Prints a result that is not saved, as JSON or as text.
pub fn print_result(
    output: Output,
    result: &impl Serialize,
    text: impl FnOnce() -> String,
) -> Result<(), Failure> {
    if output.json {
        return print(&json::of(result).or_exit(Exit::Failed)?);
    }
    match output.quiet {
        true => Ok(()),
        false => print(text().as_bytes()),
    }
}

/// [`print`], for a result that may have been saved in a directory.
pub fn print_saved(bytes: &[u8], saved: Option<&Path>) -> Result<(), Failure> {
    match saved {
        Some(dir) => print_or(bytes, || format!("it is saved in {}", dir.display())),
        None => print(bytes),
    }
}

fn print_or(bytes: &[u8], remedy: impl FnOnce() -> String) -> Result<(), Failure> {
    match io::stdout().write_all(bytes) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::failed(format!(
            "cannot print the result: {error}; {}",
            remedy()
        ))),
        _ => Ok(()),
    }
}

/// Colour on a terminal unless NO_COLOR says otherwise; the terminal's width.
pub fn style() -> Style {
    if !io::stdout().is_terminal() {
        return Style::PLAIN;
    }
    let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let colour = wanted && can_be_drawn_on(&io::stdout());
    let (_, columns) = console::Term::stdout().size();
    Style {
        colour,
        width: usize::from(columns),
    }
}
