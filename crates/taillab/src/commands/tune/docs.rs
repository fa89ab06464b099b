//! The table of mitigations in `docs/tune.md` agrees with the code.

use taillab_host::tune::MITIGATIONS;

use crate::documents::{cell, ensure_part};

fn table() -> String {
    let mut text = String::new();
    for row in MITIGATIONS {
        let causes: Vec<&str> = row.is.treats.iter().map(|cause| cause.key()).collect();
        text += &format!(
            "\n### {}\n{}\n\n| | |\n|---|---|\n",
            row.is.name, row.is.description
        );
        for (name, value) in [
            ("treats", causes.join(", ").as_str()),
            ("needs", row.needs),
            ("changes", row.interface),
            ("undo", row.undo),
            ("proof", row.proof),
            ("risk", row.is.cost),
            ("reference", row.reference),
        ] {
            text += &format!("| {name} | {} |\n", cell(value));
        }
    }
    text.push('\n');
    text
}

#[test]
fn the_table_of_mitigations_is_that_of_the_code() {
    ensure_part("docs/tune.md", "mitigations", &table());
}
