//! A screen: at most 45 lines of 80 columns, compared with a snapshot.

const LINES: usize = 45;
const COLUMNS: usize = 80;

/// Panics if it is larger.
pub(crate) fn is_one_screen(text: &str) {
    let lines = text.lines().count();
    assert!(lines <= LINES, "{lines} lines\n{text}");
    for line in text.lines() {
        let columns = line.chars().count();
        assert!(columns <= COLUMNS, "{columns} columns: {line}");
    }
}

macro_rules! one_screen {
    ($text:expr) => {{
        let text = $text;
        one_screen::is_one_screen(&text);
        insta::assert_snapshot!(text);
    }};
}
