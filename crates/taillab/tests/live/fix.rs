//! `taillab run --fix` as root: it finds what we do to the server, keeps what helps, and leaves
//! nothing changed.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::support::{Machine, live, taillab, wait_for, wait_within};

/// A short run at a low rate whose fixes have time for a few mitigations. t is given: the
/// calibration has the disturbance too.
const FIX: [&str; 16] = [
    "run",
    "memcached",
    "--json",
    "-R",
    "2000",
    "-d",
    "3s",
    "--warmup",
    "300ms",
    "--pairs",
    "6",
    "--block",
    "60ms",
    "--service-time",
    "20us",
    "--fix",
];

/// Mitigations against other programs.
const AGAINST_OTHERS: [&str; 6] = [
    "rt-priority",
    "nice",
    "others-idle",
    "slice",
    "dedicated-cpus",
    "others-affinity",
];

/// Programs that use the server's CPU (0) as much as they get.
struct Burners(Vec<Child>);

impl Burners {
    fn start() -> Self {
        let burner = || {
            let mut command = Command::new("taskset");
            command.args(["-c", "0", "sh", "-c", "while :; do :; done"]);
            command.spawn().unwrap()
        };
        let burners = Self(vec![burner(), burner()]);
        wait_for("the burners", || {
            let all = burners.scheduling();
            all.iter().all(|one| one.ends_with("\t0")).then_some(())
        });
        burners
    }

    /// How each is scheduled and where it may run.
    fn scheduling(&self) -> Vec<String> {
        let of = |child: &Child| {
            let text = |file: &str| {
                fs::read_to_string(format!("/proc/{}/{file}", child.id())).unwrap_or_default()
            };
            let stat = text("stat");
            // after the name: the niceness is field 19, the priority and the policy 40 and 41
            let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
            let status = text("status");
            let cpus = status
                .lines()
                .find(|line| line.starts_with("Cpus_allowed_list"));
            format!(
                "nice {} priority {} policy {} {}",
                fields[16],
                fields[37],
                fields[38],
                cpus.unwrap_or_default()
            )
        };
        self.0.iter().map(of).collect()
    }
}

impl Drop for Burners {
    fn drop(&mut self) {
        for child in &mut self.0 {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

/// The applies that `taillab tune status` knows.
fn applies() -> Vec<Value> {
    let output = taillab()
        .args(["tune", "status", "--json"])
        .output()
        .unwrap();
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    status["applies"].as_array().unwrap().clone()
}

#[test]
fn what_disturbs_the_server_is_found_treated_and_put_back() {
    if !live("what_disturbs_the_server_is_found_treated_and_put_back") {
        return;
    }
    let machine = Machine::now();
    let burners = Burners::start();
    let before = burners.scheduling();
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("run");
    let output = taillab()
        .args(FIX)
        .args(["--fix-budget", "150s", "-o"])
        .arg(&dir)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 4)), "{stderr}");
    assert_eq!(burners.scheduling(), before, "left changed");
    assert_eq!(applies(), Vec::<Value>::new(), "left in the journal");
    assert_eq!(Machine::now(), machine);

    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let fixes = result["fixes"].as_array().unwrap();
    assert_eq!(fixes[0]["mitigation"], "control");
    assert_ne!(fixes[0]["outcome"], "kept", "{fixes:#?}");
    let kept: Vec<&Value> = fixes
        .iter()
        .filter(|fix| fix["outcome"] == "kept")
        .collect();
    assert!(!kept.is_empty(), "{fixes:#?}\n{stderr}");
    let first = kept[0];
    assert!(
        AGAINST_OTHERS.contains(&first["mitigation"].as_str().unwrap()),
        "{first:#}"
    );
    let at = first["decided_at"].as_f64().unwrap();
    let measured = first["measured"].as_array().unwrap();
    let decided = measured
        .iter()
        .find(|ratio| ratio["q"].as_f64() == Some(at))
        .unwrap();
    assert!(decided["value"].as_f64().unwrap() <= 0.95, "{decided}");
    assert!(decided["hi"].as_f64().unwrap() < 1.0, "{decided}");
    assert!(
        first["throughput"]["value"].as_f64().unwrap() > 0.0,
        "{first:#}"
    );
    // what is left to gain after that is little: not all of them help
    let others = fixes[1..].iter().filter(|fix| fix["outcome"] != "kept");
    assert!(others.count() > 0, "{fixes:#?}");
    for fix in fixes {
        assert!(!fix["reason"].as_str().unwrap().is_empty(), "{fix:#}");
    }
    let page = fs::read_to_string(dir.join("report.html")).unwrap();
    assert!(page.contains("What was tried"));
}

/// A `run --fix` that has a change in the journal; nothing if it ends without one.
fn fixing_with_a_change(dir: &Path) -> Option<Child> {
    let mut child = taillab()
        .args(FIX)
        .args(["--fix-budget", "600s", "-o"])
        .arg(dir)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // the measurement, its analysis and the control come before the first change
    let most = Duration::from_secs(600);
    wait_within(most, "a change in the journal, or the end", || {
        let held = applies();
        let is_held = held.iter().any(|apply| apply["held_by"] == child.id());
        match is_held {
            true => Some(true),
            false => child.try_wait().unwrap().map(|_| false),
        }
    })
    .then_some(child)
}

#[test]
fn a_trial_that_is_killed_is_undone_by_a_revert() {
    if !live("a_trial_that_is_killed_is_undone_by_a_revert") {
        return;
    }
    let burners = Burners::start();
    let before = burners.scheduling();
    let place = tempfile::tempdir().unwrap();
    // where the machine is so uneven that the control "improves", nothing is tried: another run then
    let mut child = (0..5)
        .find_map(|attempt| fixing_with_a_change(&place.path().join(format!("run-{attempt}"))))
        .expect("five runs tried nothing");
    child.kill().unwrap();
    child.wait().unwrap();
    let reverted = taillab().args(["tune", "revert"]).output().unwrap();
    assert_eq!(reverted.status.code(), Some(0), "{reverted:?}");
    assert_eq!(applies(), Vec::<Value>::new());
    assert_eq!(burners.scheduling(), before);
    // the namespaces of the run that was killed go with the next one
    let next = taillab()
        .args(["run", "memcached", "--server-program", "no-such-server"])
        .current_dir(place.path())
        .output()
        .unwrap();
    assert_eq!(next.status.code(), Some(1), "{next:?}");
}
