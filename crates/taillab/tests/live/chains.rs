//! A server whose workers wait for a lock: what its holder does, or waits for itself, is named.

use serde_json::Value;

use crate::support::{first_unspoiled, live, taillab};

const HOLDER: &str = "lock-holder";

/// What a run says of a server whose lock is held for 8 ms every 60 ms, while the holder does this; `None` if it held the
/// lock for so long that the server seemed to have stopped.
fn held(does: &str) -> Option<Value> {
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
    if output.status.code() == Some(1) && stderr.contains("stopped answering during calibration") {
        return None;
    }
    assert!(matches!(output.status.code(), Some(0 | 4)), "{stderr}");
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

/// How many reads the disks of this machine have served, and what they took together in milliseconds
/// (`/proc/diskstats`).
fn reads() -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/diskstats").unwrap();
    let rows = text.lines().map(|row| row.split_whitespace().collect());
    rows.fold((0, 0), |(all, ms), row: Vec<&str>| {
        let number = |place: usize| row[place].parse::<u64>().unwrap();
        (all + number(3), ms + number(6))
    })
}

/// What spoils an attempt: a read took so long that the holder had the lock nearly all the time.
fn was_slow(before: (u64, u64)) -> Option<String> {
    const SLOW_MS: u64 = 20;
    let now = reads();
    let (all, ms) = (now.0 - before.0, now.1 - before.1);
    (ms >= SLOW_MS * all.max(1)).then(|| format!("{all} reads took {ms} ms"))
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
    let answers = "the server answers";
    let sleeps = held("").expect(answers);
    let named = of_holder(&sleeps, "blocked_lock");
    assert!(named.iter().any(|(_, n)| *n >= OFTEN), "{sleeps:#}");
    assert_eq!(of_holder(&sleeps, "blocked_io"), []);

    let of_disk = |(culprit, n): &(&Value, u64)| {
        culprit["kind"] == "chain" && culprit["end"] == "pread64" && *n >= OFTEN
    };
    let is_named = |result: &Value| of_holder(result, "blocked_io").iter().any(of_disk);
    let attempt = |_| {
        let before = reads();
        (held(",read"), was_slow(before))
    };
    let (result, _) = first_unspoiled(4, attempt, |(result, slow)| {
        slow.clone()
            .filter(|_| !result.as_ref().is_some_and(is_named))
    });
    let result = result.expect(answers);
    assert!(is_named(&result), "{result:#}");

    // it has the CPU of the workers, so that they wait for that, too
    let burns = held(",burn").expect(answers);
    let causes = ["own_threads", "blocked_lock"];
    let named: u64 = (causes.iter())
        .flat_map(|cause| of_holder(&burns, cause))
        .map(|(_, n)| n)
        .sum();
    assert!(named >= OFTEN, "{burns:#}");
    assert_eq!(of_holder(&burns, "blocked_io"), []);
}
