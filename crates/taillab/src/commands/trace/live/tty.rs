//! The terminal while it is a screen.

use std::io::{self, IsTerminal, Write};

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};
use taillab_console::exit::Failure;
use taillab_console::terminal::can_be_drawn_on;

/// A second screen next to the shell's, without a cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// To the upper left corner.
const HOME: &str = "\x1b[H";
/// Clears the line to its end. It comes before the text: after a text that fills the line it would erase
/// the last character.
const CLEAR_LINE: &str = "\x1b[K";

/// The terminal, restored when this is dropped.
pub struct Tty {
    /// How standard input was set; `None` where it is not a terminal.
    before: Option<Termios>,
}

/// Whether standard output is a terminal on which can be drawn.
pub fn is_there() -> bool {
    can_be_drawn_on(&io::stdout())
}

/// Ensures that there is a terminal to draw on.
///
/// # Errors
/// Standard output is not a terminal, or one that only prints lines
/// ([`Exit::Usage`](taillab_console::exit::Exit::Usage)).
pub fn ensure_there() -> Result<(), Failure> {
    if !io::stdout().is_terminal() {
        return Err(Failure::usage(
            "--live draws on a terminal, and standard output is not one: leave --live out, provide one \
             (`ssh -t`, `docker run -t`), or only serve its figures (--metrics)",
        ));
    }
    match is_there() {
        true => Ok(()),
        false => Err(Failure::usage(
            "--live draws on a terminal, and by its TERM this one only prints lines (dumb, or not set): leave --live \
             out, name what it is (TERM=xterm), or only serve its figures (--metrics)",
        )),
    }
}

impl Tty {
    /// Takes the terminal.
    pub fn take() -> Self {
        let before = tcgetattr(io::stdin()).ok();
        if let Some(before) = &before {
            // keys arrive one by one, without echo. Ctrl-C remains a signal; Ctrl-Z does not, because
            // a stopped recorder loses events
            let mut keys = before.clone();
            keys.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
            keys.special_codes[SpecialCodeIndex::VMIN] = 0;
            keys.special_codes[SpecialCodeIndex::VTIME] = 0;
            keys.special_codes[SpecialCodeIndex::VSUSP] = 0;
            // if this fails the terminal only echoes keys
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, &keys);
        }
        show(ENTER);
        Self { before }
    }

    /// Rows and columns, as they are now.
    pub fn size() -> (usize, usize) {
        let (rows, columns) = console::Term::stdout().size();
        (usize::from(rows), usize::from(columns))
    }

    /// Shows these lines and nothing else.
    pub fn draw(&self, lines: &[String], rows: usize) {
        show(&frame(lines, rows));
    }

    /// Whether the key is among those pressed since the last call.
    pub fn pressed(&self, key: u8) -> bool {
        let mut keys = [0; 64];
        self.before.is_some()
            && matches!(rustix::io::read(io::stdin(), &mut keys), Ok(n) if keys[..n].contains(&key))
    }
}

impl Drop for Tty {
    fn drop(&mut self) {
        show(LEAVE);
        if let Some(before) = &self.before {
            let _ = tcsetattr(io::stdin(), OptionalActions::Flush, before);
        }
    }
}

fn frame(lines: &[String], rows: usize) -> String {
    let mut text = HOME.to_owned();
    for row in 0..rows.max(lines.len()) {
        if row > 0 {
            text.push_str("\r\n");
        }
        text.push_str(CLEAR_LINE);
        text.push_str(lines.get(row).map_or("", String::as_str));
    }
    text
}

fn show(text: &str) {
    let mut out = io::stdout().lock();
    // if the terminal is gone, the recording goes on
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_emptied_before_it_is_written_and_none_is_scrolled_away() {
        let text = frame(&["ab".to_owned(), "c".to_owned()], 4);
        assert_eq!(text, "\x1b[H\x1b[Kab\r\n\x1b[Kc\r\n\x1b[K\r\n\x1b[K");
    }
}
