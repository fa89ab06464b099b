//! The table of mitigations in `docs/tune.md` agrees with the code.

use std::fs;
use std::path::Path;

use taillab_host::tune::MITIGATIONS;

const BEGIN: &str =
    "<!-- mitigations: written by `cargo test --workspace --bin taillab tune` -->\n";
const END: &str = "<!-- end of mitigations -->";

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
            text += &format!(
                "| {name} | {} |\n",
                value.replace('|', "\\|").replace('*', "\\*")
            );
        }
    }
    text.push('\n');
    text
}

#[test]
fn the_table_of_mitigations_is_that_of_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tune.md");
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let wanted = format!("{before}{BEGIN}{}{END}{after}", table());
    if text != wanted {
        fs::write(&path, &wanted).unwrap();
        panic!(
            "docs/tune.md was out of date and is written anew: look at the difference, and commit it"
        );
    }
}
