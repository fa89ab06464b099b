//! The JSON Schemas in `schemas/`, made from the types that are written as JSON.
//!
//! `cargo test -p taillab schemas` compares them. A file that is out of date is written anew and
//! the test fails this once, so that the difference is looked at before it is committed.

use std::fs;
use std::path::Path;

use schemars::generate::SchemaSettings;
use schemars::transform::transform_subschemas;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Value, json};
use taillab_experiment::serve::OutputLine;
use taillab_model::compare::Comparison;
use taillab_model::doctor::Diagnosis;
use taillab_model::load_result::LoadReport;
use taillab_model::summary::Report;
use taillab_model::tune::TuneResult;
use taillab_testkit::causes::BenchResult;

use crate::instruments::INSTRUMENTS;

/// Name, description and schema of each output.
fn schemas() -> Vec<(&'static str, &'static str, Schema)> {
    let of_instruments = INSTRUMENTS.iter().map(|instrument| {
        let output = instrument.output;
        (instrument.name, output.description, finished(output.schema))
    });
    let mut schemas = vec![
        (
            "report",
            "The output of `taillab run`, `trace` and `explain` with `--json`, and `summary.json`. \
             Of a run `load`, `client_minus_server`, `calibration` and `scheduled` are there.",
            of::<Report>(),
        ),
        (
            "load",
            "The output of `taillab load --json`, and `result.json`. `generator.mode` says how requests \
             were sent: one load by a schedule is in `load`, several are in `generator.steps`, a \
             closed loop is in `generator.closed_loop`.",
            without_server(of::<LoadReport>()),
        ),
        (
            "compare",
            "The output of `taillab compare --json`.",
            of::<Comparison>(),
        ),
        (
            "serve",
            "A line of `taillab serve --json`: the first when requests are accepted, the second \
             at the end.",
            of::<OutputLine>(),
        ),
        (
            "doctor",
            "The output of `taillab doctor --json`.",
            of::<Diagnosis>(),
        ),
        (
            "tune",
            "The output of `taillab tune list`, `plan`, `apply`, `status`, `verify` and `revert` with `--json`.",
            of::<TuneResult>(),
        ),
        (
            "bench-causes",
            "The output of `taillab-testkit causes --json`, and `causes.json`.",
            of::<BenchResult>(),
        ),
    ];
    schemas.extend(of_instruments);
    schemas
}

/// The schema of what `T` is written as: closed, with descriptions for people who read no Rust.
fn of<T: JsonSchema>() -> Schema {
    finished(SchemaGenerator::into_root_schema_for::<T>)
}

fn finished(schema: impl Fn(SchemaGenerator) -> Schema) -> Schema {
    let generator = SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator();
    let mut schema = schema(generator);
    inline_variants(&mut schema);
    finish(&mut schema);
    schema
}

/// The schema of a report of `load`, without what only other commands' reports have.
fn without_server(mut schema: Schema) -> Schema {
    let object = schema.ensure_object();
    object.remove("allOf");
    let properties = object["properties"].as_object_mut().unwrap();
    properties.remove("client_minus_server");
    properties.remove("calibration");
    properties.remove("scheduled");
    properties["command"] = json!({"description": "The command that wrote this.", "const": "load"});
    schema
}

/// Puts a type that is one of several flattened variants where it is used: as a part of another
/// object it must not refuse that one's keys.
fn inline_variants(root: &mut Schema) {
    let definitions = root.get("$defs").cloned().unwrap_or_default();
    if root.get("properties").is_none() {
        return;
    }
    for variant in variants(root) {
        let reference = variant["$ref"].as_str().unwrap_or_default();
        if let Some(definition) = definitions.get(reference.trim_start_matches("#/$defs/")) {
            *variant = definition.clone();
        }
    }
}

fn variants(schema: &mut Schema) -> Vec<&mut Value> {
    let object = schema.ensure_object().iter_mut();
    let lists = object.filter(|(key, _)| matches!(key.as_str(), "oneOf" | "anyOf"));
    let lists = lists.filter_map(|(_, list)| list.as_array_mut());
    lists.flatten().collect()
}

/// Closes objects to unknown keys, and takes Rust's notation out of the descriptions.
fn finish(schema: &mut Schema) {
    transform_subschemas(&mut finish, schema);
    let Some(object) = schema.as_object_mut() else {
        return;
    };
    if let Some(Value::String(text)) = object.get_mut("description") {
        *text = without_rust(text);
    }
    if object.get("type") != Some(&json!("object")) || !object.contains_key("properties") {
        return;
    }
    let mut variants = variants(schema);
    for variant in &mut variants {
        if let Some(variant) = variant.as_object_mut() {
            variant.remove("additionalProperties");
        }
    }
    let key = match variants.is_empty() {
        true => "additionalProperties",
        // this one sees the keys of the variants too
        false => "unevaluatedProperties",
    };
    schema.insert(key.to_owned(), json!(false));
}

fn without_rust(text: &str) -> String {
    let paragraphs = text.split("\n\n").map(|lines| lines.replace('\n', " "));
    let text = paragraphs.collect::<Vec<_>>().join("\n\n");
    (text.replace("[`", "`").replace("`]", "`")).replace("`None`", "`null`")
}

#[test]
fn the_schemas_are_those_of_the_types() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas");
    let mut changed = Vec::new();
    for (name, description, mut schema) in schemas() {
        schema.insert("title".into(), format!("taillab {name}").into());
        schema.insert("description".into(), description.into());
        let id = format!("urn:taillab:schema:{name}");
        schema.insert("$id".into(), id.into());
        let mut text = serde_json::to_string_pretty(&schema).unwrap();
        text.push('\n');
        let file = folder.join(format!("{name}.schema.json"));
        if fs::read_to_string(&file).ok().as_deref() != Some(&text) {
            fs::write(&file, &text).unwrap();
            changed.push(name);
        }
    }
    assert!(
        changed.is_empty(),
        "the schemas of {} were out of date and are written anew: look at the difference, and \
         commit it",
        changed.join(", ")
    );
}

/// Every schema is one, every key says what it is, lengths of time name their unit, and nothing
/// takes unknown keys.
#[test]
fn every_key_is_described() {
    fn visit(path: &str, node: &Value, root: &Value, wrong: &mut Vec<String>) {
        let closed = ["additionalProperties", "unevaluatedProperties"];
        let properties = node.get("properties").and_then(Value::as_object);
        let is_object = node["type"] == "object" && properties.is_some();
        // a variant of a flattened object is closed by that
        let is_variant = path.ends_with('|');
        if is_object && !is_variant && closed.iter().all(|key| node[key] != json!(false)) {
            wrong.push(format!("{path}: takes unknown keys"));
        }
        for (name, property) in properties.into_iter().flatten().filter(|_| is_object) {
            let path = format!("{path}/{name}");
            let is_tag = property.get("const").is_some();
            if property["description"].as_str().is_none_or(str::is_empty) && !is_tag {
                wrong.push(format!("{path}: is not described"));
            }
            let text = text_of(property, root);
            if name.ends_with("_ns") && !text.contains("nanoseconds") {
                wrong.push(format!("{path}: has no unit"));
            }
            visit(&path, property, root, wrong);
        }
        for key in ["items", "oneOf", "anyOf"] {
            match &node[key] {
                Value::Array(variants) => variants
                    .iter()
                    .for_each(|variant| visit(&format!("{path}|"), variant, root, wrong)),
                Value::Object(_) => visit(&format!("{path}[]"), &node[key], root, wrong),
                _ => {}
            }
        }
    }
    /// All descriptions of a value, of those that it refers to as well.
    fn text_of(node: &Value, root: &Value) -> String {
        let mut text = node["description"].as_str().unwrap_or_default().to_owned();
        if let Some(name) = node["$ref"].as_str() {
            let definition = &root["$defs"][name.trim_start_matches("#/$defs/")];
            text += &text_of(definition, root);
        }
        let parts = ["anyOf", "prefixItems"].into_iter();
        for part in parts.filter_map(|key| node[key].as_array()).flatten() {
            text += &text_of(part, root);
        }
        if node["items"].is_object() {
            text += &text_of(&node["items"], root);
        }
        text
    }
    for (name, _, schema) in schemas() {
        let schema = Value::from(schema);
        assert!(jsonschema::draft202012::meta::is_valid(&schema), "{name}");
        let mut wrong = Vec::new();
        visit(name, &schema, &schema, &mut wrong);
        let definitions = schema["$defs"].as_object();
        for (name, definition) in definitions.into_iter().flatten() {
            if definition["description"].as_str().is_none_or(str::is_empty) {
                wrong.push(format!("{name}: is not described"));
            }
            visit(name, definition, &schema, &mut wrong);
        }
        assert_eq!(wrong, [""; 0], "{name}");
    }
}
