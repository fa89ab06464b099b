//! `taillab compare --again`: both experiments of saved runs are started in turn.

use std::path::Path;

use serde_json::Value;

use crate::support::{Machine, live, on_a_steady_machine, schema, taillab};

/// A short run of the built-in server, saved there; each request is this much work.
fn run(work: &str, out: &Path) {
    let output = on_a_steady_machine(|number| {
        let mut run = taillab();
        run.args(["run", "null-rpc", "-q", "-R", "300", "-d", "300ms"])
            .args(["--warmup", "100ms", "--pairs", "6", "--block", "60ms"])
            .args(["--service", work])
            .arg("-o")
            .arg(format!("{}-{number}", out.display()));
        let output = run.output().unwrap();
        if output.status.success() {
            std::fs::rename(format!("{}-{number}", out.display()), out).unwrap();
        }
        output
    });
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn what_makes_each_start_slower_is_found_in_starts_in_turn() {
    const STARTS: usize = 6;
    if !live("what_makes_each_start_slower_is_found_in_starts_in_turn") {
        return;
    }
    let machine = Machine::now();
    let place = tempfile::tempdir().unwrap();
    let [before, after] = ["before", "after"].map(|name| place.path().join(name));
    run("none", &before);
    run("spin:exponential:400us", &after);
    let starts = |number| place.path().join(format!("starts-{number}"));
    let mut last = 0;
    let output = on_a_steady_machine(|number| {
        last = number;
        let mut compare = taillab();
        compare.arg("compare").args([&before, &after]);
        compare.args(["--again", "6", "--json", "-o"]);
        compare.arg(starts(number)).output().unwrap()
    });
    let result: Value = schema::valid("compare", &output.stdout);
    let at = result["starts"]["quantiles"].as_array().unwrap().iter();
    let median = at.clone().find(|at| at["q"] == 0.5).unwrap();
    assert_eq!(median["is_higher"], true, "{median}");
    assert_eq!(median["is_lower"], false, "{median}");
    let ratio = |key: &str| median[key].as_f64().unwrap();
    assert!(ratio("lo") > 1.5 && ratio("ratio") > 3.0, "{median}");
    for (name, times) in [("before", "before_ns"), ("after", "after_ns")] {
        assert_eq!(median[times].as_array().unwrap().len(), STARTS);
        for start in 1..=STARTS {
            let saved = starts(last).join(format!("{name}-{start}/summary.json"));
            assert!(saved.is_file(), "{}", saved.display());
        }
    }
    machine.assert_unchanged();
}
