//! A server whose workers wait for a lock: what its holder does, or waits for itself, is named.

use serde_json::Value;

use crate::support::{live, taillab};

const HOLDER: &str = "lock-holder";

/// What a run says of a server whose lock is held for 8 ms every 60 ms, while the holder does this.
fn held(does: &str) -> Value {
    let fault = format!("lock:60ms,8ms{does}");
    let place = tempfile::tempdir().unwrap();
    let mut run = taillab();
    run.args(["run", "null-rpc", "--json", "-R", "500", "-d", "2s"])
        .args(["--warmup", "300ms", "--pairs", "6", "--block", "60ms"])
        .args(["--server-arg", "--fault", "--server-arg", &fault])
        .arg("-o")
        .arg(place.path().join("run"));
    let output = run.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 4)), "{stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The culprits of this cause in which the holder has a part, and how often they delayed a request.
fn of_holder<'r>(result: &'r Value, cause: &str) -> Vec<(&'r Value, u64)> {
    let causes = result["causes"].as_array().unwrap().iter();
    let named = causes.filter(|it| it["cause"] == cause && it["culprit"]["name"] == HOLDER);
    named
        .map(|it| (&it["culprit"], it["events"].as_u64().unwrap()))
        .collect()
}

#[test]
fn who_a_lock_holder_waits_for_is_named() {
    if !live("who_a_lock_holder_waits_for_is_named") {
        return;
    }
    // about 33 holds: most of them keep a request waiting
    const OFTEN: u64 = 10;
    let sleeps = held("");
    let named = of_holder(&sleeps, "blocked_lock");
    assert!(named.iter().any(|(_, n)| *n >= OFTEN), "{sleeps:#}");
    assert_eq!(of_holder(&sleeps, "blocked_io"), []);

    let reads = held(",read");
    let named = of_holder(&reads, "blocked_io");
    let of_disk = |(culprit, n): &(&Value, u64)| {
        culprit["kind"] == "chain" && culprit["end"] == "pread64" && *n >= OFTEN
    };
    assert!(named.iter().any(of_disk), "{reads:#}");

    // it has the CPU of the workers, so that they wait for that, too
    let burns = held(",burn");
    let causes = ["own_threads", "blocked_lock"];
    let named: u64 = (causes.iter())
        .flat_map(|cause| of_holder(&burns, cause))
        .map(|(_, n)| n)
        .sum();
    assert!(named >= OFTEN, "{burns:#}");
    assert_eq!(of_holder(&burns, "blocked_io"), []);
}
