//! Where and how it was measured: the environment and the experiment.

use serde_json::Value;

use crate::checks;
use crate::document::Document;
use crate::markup::{Esc, Markup, put, put_details, section};
use crate::table::{Column, Table, cell};

pub(super) fn put(page: &mut Markup, document: &Document<'_>) {
    section(page, "how", "How it was measured", |page| {
        if let Some(environment) = document.environment {
            let columns = [Column::left("setting"), Column::left("value")];
            let mut table = Table::new("Host, kernel and settings", columns);
            add_value(&mut table, "", environment);
            put_details(page, "Environment", |page| table.put(page));
        }
        if let Some(toml) = document.experiment_toml {
            put_details(page, "Experiment", |page| {
                let toml = Esc(toml);
                put!(page, "<pre tabindex=\"0\"><code>{toml}</code></pre>\n");
            });
        }
        let hooks = checks::hooks_table(&document.report.server.matching.hooks);
        put_details(page, "Kernel hooks", |page| hooks.put(page));
    });
}

/// One row for each value that is not an object, named by its path.
fn add_value(table: &mut Table, path: &str, value: &Value) {
    let text = match value {
        Value::Object(members) => {
            for (name, member) in members {
                let path = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                add_value(table, &path, member);
            }
            return;
        }
        Value::Array(items) if items.iter().any(|item| item.is_object() || item.is_array()) => {
            for (i, item) in items.iter().enumerate() {
                add_value(table, &format!("{path}[{i}]"), item);
            }
            return;
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(scalar).collect();
            items.join(", ")
        }
        other => scalar(other),
    };
    table.row([cell(path), cell(text)]);
}

fn scalar(value: &Value) -> String {
    match value {
        Value::Null => "unknown".to_owned(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
