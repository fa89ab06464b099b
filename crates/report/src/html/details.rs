//! Where and how it was measured: the environment and the experiment.

use serde_json::Value;

use super::markup::{Esc, Markup, put};
use crate::Document;

pub(super) fn put(page: &mut Markup, document: &Document<'_>) {
    put!(
        page,
        "<section aria-labelledby=\"how\">\n<h2 id=\"how\">How it was measured</h2>\n"
    );
    if let Some(environment) = document.environment {
        put!(
            page,
            "<details>\n<summary>Environment</summary>\n\
             <div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Environment\">\n\
             <table class=\"facts\">\n\
             <caption class=\"unseen\">Host, kernel and settings</caption>\n<tbody>\n"
        );
        put_value(page, "", environment);
        put!(page, "</tbody>\n</table>\n</div>\n</details>\n");
    }
    if let Some(experiment_toml) = document.experiment_toml {
        put!(
            page,
            "<details>\n<summary>Experiment</summary>\n\
             <pre tabindex=\"0\"><code>{}</code></pre>\n</details>\n",
            Esc(experiment_toml)
        );
    }
    put!(
        page,
        "<details>\n<summary>Kernel hooks</summary>\n<table class=\"facts\">\n\
         <caption class=\"unseen\">The hook behind each stamp</caption>\n\
         <thead><tr><th scope=\"col\">stamp</th><th scope=\"col\">hook</th>\
         <th scope=\"col\">what it lacks</th></tr></thead>\n<tbody>\n",
    );
    for hook in &document.report.server.matching.hooks {
        put!(
            page,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td></tr>\n",
            Esc(&hook.stamp),
            Esc(&hook.hook),
            Esc(hook.lost_precision.as_deref().unwrap_or("nothing known"))
        );
    }
    put!(page, "</tbody>\n</table>\n</details>\n</section>\n");
}

/// One row for each value that is not an object, named by its path.
fn put_value(page: &mut Markup, path: &str, value: &Value) {
    let text = match value {
        Value::Object(members) => {
            for (name, member) in members {
                let path = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                put_value(page, &path, member);
            }
            return;
        }
        Value::Array(items) if items.iter().any(|item| item.is_object() || item.is_array()) => {
            for (i, item) in items.iter().enumerate() {
                put_value(page, &format!("{path}[{i}]"), item);
            }
            return;
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(scalar).collect();
            items.join(", ")
        }
        other => scalar(other),
    };
    put!(
        page,
        "<tr><th scope=\"row\">{}</th><td>{}</td></tr>\n",
        Esc(path),
        Esc(&text)
    );
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
