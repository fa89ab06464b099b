//! Text that comes from outside: names of threads, answers of servers, lines of files.

/// Shown in the place of a character that a terminal would obey.
const REPLACEMENT: char = '\u{fffd}';

/// Whether a terminal obeys the character, or shows the text around it in another order: controls (C0, DEL and C1),
/// separators of lines, and the marks, embeddings, overrides and isolates of bidirectional text.
pub const fn is_obeyed(c: char) -> bool {
    matches!(
        c,
        '\0'..='\u{1f}'
            | '\u{7f}'..='\u{9f}'
            | '\u{61c}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
    )
}

/// The text as one line that a terminal only shows. A tab becomes a space.
pub fn plain(text: &str) -> String {
    let shown = |c: char| match c {
        '\t' => ' ',
        c if is_obeyed(c) => REPLACEMENT,
        c => c,
    };
    text.chars().map(shown).collect()
}

/// JSON whose strings a terminal only shows: what it would obey is escaped, which means the same to every reader.
///
/// Such characters occur in strings only, and JSON itself escapes those below a space.
pub fn escaped_json(json: String) -> String {
    let is_raw = |c: char| c > ' ' && is_obeyed(c);
    if !json.contains(is_raw) {
        return json;
    }
    let mut escaped = String::with_capacity(json.len() + 64);
    for c in json.chars() {
        match is_raw(c) {
            true => escaped.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An escape, DEL, a C1 introducer of sequences, and what turns text around.
    const HOSTILE: &str = "a\u{1b}[2J\u{7f}\u{9b}31m\u{61c}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202e}\u{2066}\u{2069}z";

    #[test]
    fn a_terminal_finds_nothing_to_obey() {
        let shown = plain(HOSTILE);
        assert!(!shown.contains(is_obeyed), "{shown:?}");
        assert_eq!(shown.chars().count(), HOSTILE.chars().count());
        assert_eq!(plain("two\tcolumns\n"), "two columns\u{fffd}");
        // letters of all languages, joiners of emoji, and marks above letters stay
        for harmless in ["µs · 日本 · שלום", "👩\u{200d}💻", "e\u{301}", "a\u{a0}b"] {
            assert_eq!(plain(harmless), harmless);
        }
    }

    #[test]
    fn escaped_json_says_the_same() {
        let value = serde_json::json!({ HOSTILE: [HOSTILE, "µs"] });
        let json = escaped_json(serde_json::to_string_pretty(&value).unwrap());
        let is_layout = |c: char| c == '\n';
        assert!(
            !json.contains(|c: char| is_obeyed(c) && !is_layout(c)),
            "{json:?}"
        );
        assert!(
            json.contains("\\u009b31m") && json.contains("\\u202e"),
            "{json}"
        );
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&json).unwrap(),
            value
        );
        let harmless = "{\n  \"µ\": 1\n}".to_owned();
        assert_eq!(escaped_json(harmless.clone()), harmless);
    }
}
