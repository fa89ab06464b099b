//! Colours and wrapping of text in a terminal.

use crate::document::Series;
use crate::figures;

pub(crate) use taillab_model::text::plain as clean;

/// How the terminal wants its text; the caller decides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Use colours: standard output is a terminal and `NO_COLOR` is not set.
    pub colour: bool,
    /// Columns of the terminal.
    pub width: usize,
}

impl Style {
    /// No colours, 80 columns: a file or a pipe.
    pub const PLAIN: Self = Self {
        colour: false,
        width: 80,
    };
}

/// Lines longer than this are hard to read, however wide the terminal is.
pub const WIDEST: usize = 110;
/// Columns before every line but the headings.
pub const INDENT: usize = 2;

/// The meaning of a piece of text, which decides its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// Nothing special.
    Plain,
    /// A heading or a name.
    Title,
    /// Less important than what is around it.
    Quiet,
    /// As it should be.
    Good,
    /// The reader should look at it.
    Notable,
    /// Wrong, or worse than it should be.
    Bad,
    /// Of the ideal queue.
    Ideal,
    /// Of the measured server.
    Measured,
    /// As the client saw it.
    Client,
    /// One of the causes in a figure, by its place among them.
    Cause(u8),
}

impl Ink {
    /// The colour of a view's figures and marks.
    pub const fn of(series: Series) -> Self {
        match series {
            Series::Ideal => Self::Ideal,
            Series::Measured => Self::Measured,
            Series::Client => Self::Client,
        }
    }

    /// The class of a view's line on the page.
    pub fn series_class(self) -> Option<&'static str> {
        let is_series = matches!(self, Self::Ideal | Self::Measured | Self::Client);
        is_series.then(|| self.class())
    }

    /// The class of a cell on the page.
    pub const fn class(self) -> &'static str {
        match self {
            Self::Title => "strong",
            Self::Good => "good",
            Self::Notable => "notable",
            Self::Bad => "bad",
            Self::Ideal => "ideal",
            Self::Measured => "measured",
            Self::Client => "client",
            Self::Plain | Self::Quiet | Self::Cause(_) => "",
        }
    }

    /// The SGR parameters of ECMA-48; the 16 basic colours follow the user's theme.
    const fn code(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Title => Some("1"),
            Self::Quiet => Some("2"),
            Self::Good => Some("32"),
            Self::Notable => Some("33"),
            Self::Bad => Some("1;31"),
            Self::Ideal => Some("34"),
            Self::Measured => Some("1;33"),
            Self::Client => Some("36"),
            Self::Cause(0) => Some("31"),
            Self::Cause(1) => Some("33"),
            Self::Cause(2) => Some("36"),
            Self::Cause(3) => Some("35"),
            Self::Cause(4) => Some("34"),
            Self::Cause(_) => Some("2"),
        }
    }
}

impl Style {
    /// The text in its colour, if colours are wanted.
    pub fn paint(self, ink: Ink, text: &str) -> String {
        match ink.code() {
            Some(code) if self.colour && !text.is_empty() => {
                format!("\u{1b}[{code}m{text}\u{1b}[0m")
            }
            _ => text.to_owned(),
        }
    }
}

/// The names grouped by their reason, in order of first occurrence.
pub fn by_reason<'a>(
    named: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Vec<(&'a str, Vec<&'a str>)> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for (reason, name) in named {
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, names)) => names.push(name),
            None => reasons.push((reason, vec![name])),
        }
    }
    reasons
}

/// Each value once, in order of first occurrence.
pub fn distinct<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    all.into_iter().fold(Vec::new(), |mut known, next| {
        if !known.contains(&next) {
            known.push(next);
        }
        known
    })
}

/// Columns that the text takes; every character that taillab prints takes one.
pub fn columns(text: &str) -> usize {
    text.chars().count()
}

/// The text broken between words, but not between a number and its unit, into lines of
/// at most `width` columns; a longer word gets a line to itself.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in figures::glued(text)
        .split(' ')
        .filter(|word| !word.is_empty())
    {
        if !line.is_empty() && columns(&line) + 1 + columns(word) > width {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if !line.is_empty() || lines.is_empty() {
        lines.push(line);
    }
    // a plain space, so that the output can be searched as it reads
    for line in &mut lines {
        *line = line.replace(figures::NO_BREAK_SPACE, " ");
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrapping_keeps_every_word_and_the_width() {
        let lines = wrap("a few words and aratherlongoneindeed in between", 12);
        assert_eq!(
            lines,
            ["a few words", "and", "aratherlongoneindeed", "in between"]
        );
        assert_eq!(wrap("", 10), [""]);
        assert_eq!(wrap("late by 12.5 µs", 12), ["late by", "12.5 µs"]);
    }
}
