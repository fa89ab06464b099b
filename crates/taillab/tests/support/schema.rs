//! What the commands print as JSON, and whether it obeys the schema of its kind.

use std::path::Path;

use serde_json::Value;

/// Where a value breaks `schemas/KIND.schema.json`.
pub fn complaints(kind: &str, value: &Value) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas");
    let schema = std::fs::read(folder.join(format!("{kind}.schema.json"))).unwrap();
    let schema: Value = serde_json::from_slice(&schema).unwrap();
    jsonschema::draft202012::meta::validate(&schema).unwrap();
    jsonschema::draft202012::new(&schema)
        .unwrap()
        .iter_errors(value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect()
}

/// The value, which must obey its schema.
#[track_caller]
pub fn valid(kind: &str, json: &[u8]) -> Value {
    let value: Value = serde_json::from_slice(json)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(json)));
    let complaints = complaints(kind, &value);
    assert!(complaints.is_empty(), "{complaints:?}\n{value:#}");
    value
}

/// The item of the list `key` that has this name.
pub fn by_name<'v>(value: &'v Value, key: &str, name: &str) -> &'v Value {
    let items = value[key].as_array().unwrap();
    (items.iter().find(|item| item["name"] == name))
        .unwrap_or_else(|| panic!("no {name} in {key}: {value:#}"))
}
