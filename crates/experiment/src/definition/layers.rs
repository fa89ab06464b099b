//! The layers of an experiment: TOML tables, one over the other.

use std::path::Path;

use taillab_console::exit::Failure;

/// A flag of the command line that was given: its key in the experiment and its value.
pub type Override = (&'static str, toml::Value);

/// The experiment file as a table.
pub(super) fn read(path: &Path) -> Result<toml::Table, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::usage(format!(
            "cannot read the experiment file {}: {error}",
            path.display()
        ))
    })?;
    text.parse()
        .map_err(|error| Failure::usage(at_line(path, &text, &error)))
}

/// A TOML error in one line, without the excerpt.
pub(super) fn one_line(error: &toml::de::Error) -> String {
    error.message().trim_end().replace('\n', ", ")
}

/// A TOML syntax error with its file and line.
fn at_line(path: &Path, text: &str, error: &toml::de::Error) -> String {
    let line = error
        .span()
        .map_or(1, |span| text[..span.start].matches('\n').count() + 1);
    format!(
        "{}, line {line}: not valid TOML: {}",
        path.display(),
        one_line(error)
    )
}

/// `FILE, line 7: ` if the file sets this key (`section.key`), `FILE: ` if a default or a flag does, and
/// nothing without a file.
pub(super) fn whence(file: Option<&Path>, key: &str) -> String {
    let Some(path) = file else {
        return String::new();
    };
    let text = std::fs::read_to_string(path).unwrap_or_default();
    match line_of(&text, key) {
        Some(line) => format!("{}, line {line}: ", path.display()),
        None => format!("{}: ", path.display()),
    }
}

/// The line, from 1, that sets `section.key`, or that begins the section `key`.
fn line_of(text: &str, key: &str) -> Option<usize> {
    let (wanted, key) = key.rsplit_once('.').unwrap_or(("", key));
    let mut section = "";
    for (place, line) in text.lines().map(str::trim).enumerate() {
        let is_it = match line.strip_prefix('[') {
            Some(name) => {
                section = name.split(']').next().unwrap_or(name).trim();
                wanted.is_empty() && section == key
            }
            None => {
                let name = line.split_once('=').map(|(name, _)| name.trim());
                section == wanted && name.is_some_and(|name| name.trim_matches('"') == key)
            }
        };
        if is_it {
            return Some(place + 1);
        }
    }
    None
}

/// Puts `layer` over `table`, table by table.
pub fn overlay(table: &mut toml::Table, layer: toml::Table) {
    for (key, value) in layer {
        match (table.get_mut(&key), value) {
            (Some(toml::Value::Table(below)), toml::Value::Table(above)) => overlay(below, above),
            (_, value) => {
                table.insert(key, value);
            }
        }
    }
}

/// Removes `section.key` from `table`.
pub(super) fn remove(table: &mut toml::Table, section: &str, key: &str) {
    if let Some(toml::Value::Table(section)) = table.get_mut(section) {
        section.remove(key);
    }
}

/// Sets `section.key` in `table`.
pub(super) fn set(table: &mut toml::Table, path: &str, value: toml::Value) {
    let (section, key) = path.split_once('.').expect("a flag's key has a section");
    let mut layer = toml::Table::new();
    layer.insert(key.to_owned(), value);
    let mut outer = toml::Table::new();
    outer.insert(section.to_owned(), toml::Value::Table(layer));
    overlay(table, outer);
}

/// Whether `section.key` is given, whatever its value.
pub(super) fn has(table: &toml::Table, section: &str, key: &str) -> bool {
    (table.get(section)).is_some_and(|section| section.get(key).is_some())
}

/// The value at `section.key`, where it is one of a `T`'s names.
pub(super) fn name<T: serde::de::DeserializeOwned>(
    table: &toml::Table,
    section: &str,
    key: &str,
) -> Option<T> {
    table.get(section)?.get(key)?.clone().try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_in_its_section() {
        let text = "# rate = 1\n[server]\nrate = 2\n\n[workload]\n\"rate\" = 3\n[odd]\n";
        assert_eq!(line_of(text, "workload.rate"), Some(6));
        assert_eq!(line_of(text, "server.rate"), Some(3));
        assert_eq!(line_of(text, "odd"), Some(7));
        assert_eq!(line_of(text, "workload.seed"), None);
    }
}
