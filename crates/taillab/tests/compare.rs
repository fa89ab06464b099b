//! `taillab compare`: two saved results side by side.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn taillab(args: &[&str]) -> Output {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("taillab"));
    command.args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The result of a golden recording, saved in `folder`.
fn result_of(recording: &str, folder: &Path) -> PathBuf {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../analysis/tests/golden");
    let (file, place) = (golden.join(recording), folder.join(recording));
    let [file, out] = [&file, &place].map(|path| path.to_str().unwrap());
    let output = taillab(&["explain", file, "-q", "-o", out]);
    assert!(
        place.join("summary.json").is_file(),
        "{}",
        text(&output.stderr)
    );
    place
}

#[test]
fn two_results_are_compared_percentile_by_percentile() {
    let folder = tempfile::tempdir().unwrap();
    let results = ["memcached_5k_per_s.tlc", "memcached_90_percent.tlc"];
    let [calm, busy] = results.map(|recording| result_of(recording, folder.path()));
    let [calm, busy] = [&calm, &busy].map(|path| path.to_str().unwrap());
    let json = taillab(&["compare", calm, busy, "--json"]);
    let comparison: Value = serde_json::from_slice(&json.stdout).unwrap();
    let median = &comparison["quantiles"][0];
    let number = |key: &str| median[key].as_f64().unwrap();
    assert!(number("lo") > 1.0 && number("ratio") > 1.0, "{median}");
    assert!(number("lo") <= number("ratio") && number("ratio") <= number("hi"));

    let shown = text(&taillab(&["compare", calm, busy]).stdout);
    assert!(shown.contains("Higher than before: p50"), "{shown}");
    assert!(shown.contains("the loads differ"), "{shown}");
    assert!(shown.contains("two single measurements"), "{shown}");
    assert!(shown.lines().count() <= 45, "{shown}");
    // a path is not broken
    let mut lines = shown.lines().filter(|line| !line.contains("golden"));
    assert!(lines.all(|line| line.chars().count() <= 80), "{shown}");

    // with itself, and with limits
    let itself = taillab(&["compare", calm, calm, "--assert", "p50<=150%"]);
    let shown = text(&itself.stdout);
    assert!(
        shown.contains("No difference can be seen at p50"),
        "{shown}"
    );
    assert!(shown.contains("pass, 100 % of what it was"), "{shown}");
    let worse = taillab(&["compare", calm, busy, "--assert", "p50<=110%"]);
    assert_eq!(worse.status.code(), Some(3), "{}", text(&worse.stdout));
}

#[test]
fn what_is_no_result_is_named_with_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().to_str().unwrap();
    let output = taillab(&["compare", empty, empty]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.contains("summary.json") && said.contains("has saved"),
        "{said}"
    );
}

/// Each start runs a server from a file that somebody else may have written.
#[test]
fn a_file_whose_server_runs_as_root_is_warned_of_before_it_is_started() {
    let folder = tempfile::tempdir().unwrap();
    let result = result_of("memcached_5k_per_s.tlc", folder.path());
    let experiment = "[server]\nkind = \"memcached\"\nprogram = \"/nonexistent/mine\"\nuser = \"root\"\n\n\
                      [workload]\nrate_per_s = 1000.0\n";
    std::fs::write(result.join("experiment.toml"), experiment).unwrap();
    let [result, out] =
        [result, folder.path().join("again")].map(|path| path.display().to_string());
    let started = taillab(&["compare", &result, &result, "--again", "6", "-o", &out]);
    let said = text(&started.stderr);
    assert_ne!(started.status.code(), Some(0), "{said}");
    let warnings = said
        .lines()
        .filter(|line| line.contains("all the rights of root"));
    assert_eq!(warnings.count(), 1, "{said}");
    assert!(said.contains("/nonexistent/mine"), "{said}");
}

/// What was not measured by `run` cannot be started again, and too few starts prove nothing.
#[test]
fn what_cannot_be_started_again_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let result = result_of("memcached_5k_per_s.tlc", folder.path());
    let result = result.to_str().unwrap();
    let few = taillab(&["compare", result, result, "--again", "5"]);
    assert_eq!(few.status.code(), Some(2));
    assert!(text(&few.stderr).contains("at least 6 starts"));
    let traced = taillab(&["compare", result, result, "--again", "6"]);
    assert_eq!(traced.status.code(), Some(1));
    let said = text(&traced.stderr);
    assert!(said.contains("has no experiment.toml"), "{said}");
    // nothing was made
    assert!(!Path::new("taillab-again").exists());
    let alone = taillab(&["compare", result, result, "-o", "x"]);
    assert_eq!(alone.status.code(), Some(2));
}
