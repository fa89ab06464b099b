//! What the terminal of a stream can do.

use std::env;
use std::ffi::OsStr;
use std::io::IsTerminal;

/// Whether this stream goes to a terminal on which lines can be drawn again, in colour. By its `TERM` a terminal may
/// only print: the shell of an editor, or a serial console.
pub fn can_be_drawn_on(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && draws(env::var_os("TERM").as_deref())
}

/// Whether a terminal of this name obeys more than line ends.
fn draws(term: Option<&OsStr>) -> bool {
    term.is_some_and(|term| !term.is_empty() && term != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_that_only_prints_is_not_drawn_on() {
        for (term, can) in [
            (None, false),
            (Some(""), false),
            (Some("dumb"), false),
            (Some("xterm-256color"), true),
            (Some("linux"), true),
        ] {
            assert_eq!(draws(term.map(OsStr::new)), can, "{term:?}");
        }
    }
}
