//! The parts of documents that say what the code declares: the columns of files, the settings of an experiment, the
//! mitigations. Such a part is between two comments with its name; where it is out of date, a test writes it anew.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;
use taillab_experiment::definition::Experiment;
use taillab_report::columns::TableText;
use taillab_report::load::LoadSeries;
use taillab_report::{load, requests};

use crate::instruments::INSTRUMENTS;

/// A file of the repository, by its path from there.
fn at(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

/// Fails where the part `name` of a document is not this text, and writes it, so that the difference is looked at before it
/// is committed.
pub fn ensure_part(document: &str, name: &str, text: &str) {
    let old = fs::read_to_string(at(document)).unwrap();
    let (begin, end) = (format!("<!-- {name}: "), format!("<!-- end of {name} -->"));
    let from = old.find(&begin).expect("the document has no such part");
    let from = from + old[from..].find('\n').unwrap() + 1;
    let to = old.find(&end).expect("the part has no end");
    ensure_file(document, &format!("{}{text}{}", &old[..from], &old[to..]));
}

/// The same for a whole file.
fn ensure_file(path: &str, text: &str) {
    let is_current = fs::read_to_string(at(path)).is_ok_and(|old| old == text);
    if !is_current {
        fs::write(at(path), text).unwrap();
        panic!("{path} was out of date and is written anew: look at the difference, and commit it");
    }
}

/// A text as a cell of a table.
pub fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('*', "\\*")
}

/// The files of columns of all commands.
fn tables() -> Vec<TableText> {
    let mut all = vec![requests::TABLE.text(), load::TABLE.text()];
    let instruments = INSTRUMENTS.iter();
    all.extend(instruments.flat_map(|instrument| (instrument.tables)()));
    all
}

#[test]
fn the_columns_of_files_are_those_of_the_code() {
    let mut text = String::new();
    for table in tables() {
        writeln!(text, "\n## {}", table.title).unwrap();
        if let Some(clock) = table.clock {
            writeln!(text, "Instants are of {clock}.\n").unwrap();
        }
        text += "| column | | |\n|---|---|---|\n";
        for column in table.columns {
            let always = if column.is_required { ", always" } else { "" };
            let (name, kind) = (column.name, column.kind);
            let description = cell(column.description);
            writeln!(text, "| `{name}` | {kind}{always} | {description} |").unwrap();
        }
    }
    text.push('\n');
    ensure_part("docs/columns.md", "columns", &text);
}

/// For the Python package, which reads some of them by name.
#[test]
fn the_columns_of_files_are_in_the_schemas() {
    let of_table = |table: TableText| {
        let columns = table.columns.into_iter();
        let columns = columns.map(|column| {
            json!({
                "name": column.name,
                "kind": column.kind,
                "unit": column.unit,
                "always": column.is_required,
                "description": column.description,
            })
        });
        json!({"file": table.title, "clock": table.clock, "columns": columns.collect::<Vec<_>>()})
    };
    let all: Vec<_> = tables().into_iter().map(of_table).collect();
    let mut text = serde_json::to_string_pretty(&all).unwrap();
    text.push('\n');
    ensure_file("schemas/columns.json", &text);
}

#[test]
fn the_times_of_the_client_are_those_of_the_code() {
    let mut text = "| term | key | meaning |\n|---|---|---|\n".to_owned();
    for series in LoadSeries::ALL {
        let (label, key, meaning) = (series.label(), series.key(), series.meaning());
        writeln!(text, "| **{label}** | `{key}` | {meaning} |").unwrap();
    }
    ensure_part("docs/glossary.md", "times", &text);
}

#[test]
fn the_settings_of_an_experiment_are_those_of_the_code() {
    let mut text = String::new();
    let mut section = "";
    for setting in Experiment::settings() {
        let (of, key) = setting.key.split_once('.').unwrap();
        if of != section {
            section = of;
            writeln!(text, "\n## `[{of}]`\n| key | option | |\n|---|---|---|").unwrap();
        }
        let option = setting.option();
        let option = option.map_or_else(String::new, |option| format!("`{option}`"));
        let about = cell(setting.text()).replace('<', "&lt;");
        writeln!(text, "| `{key}` | {option} | {about} |").unwrap();
    }
    text.push('\n');
    ensure_part("docs/experiment.md", "settings", &text);
}
