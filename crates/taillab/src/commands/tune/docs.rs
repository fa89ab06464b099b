//! The table of mitigations in `docs/tune.md` agrees with the code.

use std::collections::BTreeSet;

use taillab_host::tune::{Evidence, MITIGATIONS};

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
            ("evidence", row.evidence.to_string().as_str()),
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

/// A trial is evidence where it kept the mitigation, and the page of the trials says which these are.
#[test]
fn what_is_called_kept_or_not_yet_seen_to_win_is_so_in_the_trials() {
    const PAGE: &str = include_str!("../../../../../docs/benchmarks.md");
    let (_, trials) = PAGE.split_once("\n## Fixes, tried\n").unwrap();
    let trials = trials.split("\n## ").next().unwrap_or_default();
    let rows = trials.lines().filter_map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let trial = *cells.get(1)?;
        // the first trial of a preset is named behind it, and later ones build on others
        let trial = trial.split(": ").last()?.split(',').next()?;
        cells[cells.len() - 2].starts_with("kept").then_some(trial)
    });
    let kept: BTreeSet<&str> = rows.collect();
    assert!(kept.contains("rt-priority"), "{kept:?}");
    for row in MITIGATIONS {
        let is_kept = kept.contains(row.is.name);
        match row.evidence {
            Evidence::Paper(_) => {}
            Evidence::Trial => assert!(is_kept, "{}", row.is.name),
            Evidence::Documented => assert!(!is_kept, "{}: say so", row.is.name),
        }
    }
}
