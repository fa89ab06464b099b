//! `taillab run --fix` as root: it finds what we do to the server, keeps what helps, and leaves
//! nothing changed.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::support::{
    Canary, Guarded, Machine, analyses_without_root, first_unspoiled, free_port, live,
    on_a_steady_machine, signal, taillab, wait_for, wait_within,
};
use crate::trace::rig::{Running, result};

/// A short run, at a rate at which short blocks have enough requests. t is given: the calibration has the
/// disturbance too.
const FIX: [&str; 16] = [
    "run",
    "memcached",
    "--json",
    "-R",
    "8000",
    "-d",
    "2s",
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
struct Burners(Vec<Guarded>);

impl Burners {
    fn start() -> Self {
        Self::of(&["sh", "-c", "while :; do :; done"])
    }

    /// Programs that may use it but only sleep.
    fn asleep() -> Self {
        Self::of(&["sleep", "100000"])
    }

    fn of(program: &[&str]) -> Self {
        let burner = || {
            let mut command = Command::new("taskset");
            Guarded::spawn(command.args(["-c", "0"]).args(program))
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
        let of = |child: &Guarded| {
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

/// The applies that `taillab tune status` knows.
fn applies() -> Vec<Value> {
    let output = taillab()
        .args(["tune", "status", "--json"])
        .output()
        .unwrap();
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    status["applies"].as_array().unwrap().clone()
}

/// Checks that a command that tried changes has ended as it should and put all of them back.
fn ended_and_left_nothing(
    output: &Output,
    (burners, before): (&Burners, &[String]),
    machine: &Machine,
) {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(matches!(output.status.code(), Some(0 | 4)), "{stderr}");
    assert_eq!(burners.scheduling(), before, "left changed");
    assert_eq!(applies(), Vec::<Value>::new(), "left in the journal");
    machine.assert_unchanged();
}

fn fixes_of(result: &Value) -> Vec<Value> {
    result["fixes"].as_array().unwrap().clone()
}

/// Says so if the control "improved", by chance. Then nothing may be tried.
fn too_noisy(fixes: &[Value]) -> Option<String> {
    let (control, others) = fixes.split_first().unwrap();
    assert_eq!(control["mitigation"], "control");
    assert_ne!(control["outcome"], "kept", "{control:#}");
    let reason = control["reason"].as_str().unwrap();
    let is_noisy = reason.starts_with("nothing was changed and yet");
    if is_noisy {
        assert!(others.iter().all(|fix| fix["pairs"] == 0), "{others:#?}");
    }
    is_noisy.then(|| reason.to_owned())
}

/// Says so if the machine was so slow that there was no time for a trial after the control or, where nothing that helps
/// was found, for all of them.
fn ran_out(fixes: &[Value], hides: bool) -> Option<String> {
    let mut reasons = fixes.iter().filter_map(|fix| fix["reason"].as_str());
    let spent =
        reasons.find(|reason| reason.starts_with("not tried: the budget was already spent"));
    let is_untried = fixes[1..].iter().all(|fix| fix["pairs"] == 0);
    spent.filter(|_| hides || is_untried).map(str::to_owned)
}

/// How often the machine may spoil a run. By design the control "improves" in about one of twenty.
const ATTEMPTS: usize = 5;

/// If the machine stands still for this long, it holds up 2 % of the requests of a block of 60 ms, with a change
/// or without: the p99 is theirs.
const STANDSTILL: Duration = Duration::from_micros(1_200);

/// What spoils a run: what the program says, or that the machine stood still for so long that it `hides` what
/// the program should have found.
fn spoiled(fixes: &[Value], hides: bool, still: Duration) -> Option<String> {
    let stood_still = || {
        let reasons = fixes
            .iter()
            .map(|fix| format!("{}: {}", fix["mitigation"], fix["reason"]));
        let reasons: Vec<String> = reasons.collect();
        (hides && still > STANDSTILL).then(|| format!("it stood still for {still:?}: {reasons:#?}"))
    };
    too_noisy(fixes)
        .or_else(|| ran_out(fixes, hides))
        .or_else(stood_still)
}

/// The budget of an attempt; after the first one it is twice as much.
fn budget(attempt: usize, seconds: u32) -> String {
    format!("{}s", if attempt == 0 { seconds } else { 2 * seconds })
}

/// A run that the machine did not spoil: in it, `decided` finds a decision.
fn on_an_even_machine<T>(
    attempts: usize,
    mut run: impl FnMut(usize) -> (Vec<Value>, T),
    decided: impl Fn(&[Value]) -> bool,
) -> (Vec<Value>, T) {
    let attempt = |number| {
        let canary = Canary::start();
        let (fixes, other) = run(number);
        (fixes, other, canary.end())
    };
    let (fixes, other, still) = first_unspoiled(attempts, attempt, |(fixes, _, still)| {
        spoiled(fixes, !decided(fixes), *still)
    });
    assert!(
        decided(&fixes),
        "nothing is decided ({still:?}): {fixes:#?}"
    );
    (fixes, other)
}

/// The first fix that was kept of those that treat other threads on the server's CPU. That one was refused decides nothing
/// where the machine stood still.
fn kept_against_others(fixes: &[Value]) -> Option<&Value> {
    fixes.iter().find(|fix| {
        let name = fix["mitigation"].as_str().unwrap();
        fix["outcome"] == "kept" && AGAINST_OTHERS.contains(&name)
    })
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
    let run = |attempt: usize| {
        let mut dir = PathBuf::new();
        let output = on_a_steady_machine(|again| {
            dir = place.path().join(format!("run-{attempt}-{again}"));
            taillab()
                .args(FIX)
                // for the control and the best forecast alone: further trials would each need stronger proof
                .args(["--fix-budget", "18s", "-o"])
                .arg(&dir)
                .output()
                .unwrap()
        });
        ended_and_left_nothing(&output, (&burners, &before), &machine);
        (fixes_of(&result(&output)), dir)
    };
    // the proof allows one bad pair of nine, so the machine spoils many attempts
    let (fixes, dir) = on_an_even_machine(8, run, |fixes| kept_against_others(fixes).is_some());
    let first = kept_against_others(&fixes);
    let first = first.unwrap_or_else(|| panic!("nothing helps against other threads: {fixes:#?}"));
    // stalls of the machine may hide it in what was measured; then a second look decides
    let at = first["decided_at"].as_f64().unwrap();
    let by = first["decided_by"].as_str().unwrap();
    let mut ratios = first[by].as_array().unwrap().iter();
    let decided = ratios
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
    for fix in &fixes {
        assert!(!fix["reason"].as_str().unwrap().is_empty(), "{fix:#}");
    }
    let page = fs::read_to_string(dir.join("report.html")).unwrap();
    assert!(page.contains("What was tried"));
}

/// Waits until a command has a change in the journal; `false` if it ends before that.
fn with_a_change(child: &mut Child) -> bool {
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
}

/// The trials need root's rights, and what reads a recording must not have them.
#[test]
fn what_chooses_the_fixes_is_analysed_without_root() {
    if !live("what_chooses_the_fixes_is_analysed_without_root") {
        return;
    }
    let mut command = taillab();
    command.args(FIX).arg("--no-save");
    assert!(
        analyses_without_root(&mut command),
        "the recording was analysed as root"
    );
}

#[test]
fn a_trial_that_is_killed_is_undone_by_a_revert() {
    if !live("a_trial_that_is_killed_is_undone_by_a_revert") {
        return;
    }
    let machine = Machine::now();
    let burners = Burners::start();
    let before = burners.scheduling();
    let place = tempfile::tempdir().unwrap();
    // all combinations have no control before the first change, which may find the machine too uneven
    let mut command = taillab();
    command
        .args(FIX)
        .args(["--factorial", "nice,slice", "-o"])
        .arg(place.path().join("run"));
    let mut child = Guarded::spawn(command.stdout(Stdio::null()).stderr(Stdio::null()));
    assert!(with_a_change(&mut child), "it ended without a change");
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
    machine.assert_unchanged();
}

/// memcached on CPU 0, together with programs that take as much of it as they get. Clients on CPU 1 send
/// 8,000 requests a second, over so many connections that hardly ever two wait on the same one.
struct Disturbed {
    server: Running,
    _clients: Running,
    burners: Burners,
    before: Vec<String>,
}

impl Disturbed {
    fn start() -> Self {
        let port = free_port();
        let line = format!("taskset -c 0 memcached -u root -l 127.0.0.1 -p {port} -t 1");
        let server = Running::program(&line).listening(&format!("127.0.0.1:{port}"));
        let line = format!(
            "taskset -c 1 {} load memcached+tcp://127.0.0.1:{port} -R 8000 -d 600s -c 500 --warmup 100ms \
             --wait hybrid --json -q --floor off",
            env!("CARGO_BIN_EXE_taillab")
        );
        let clients = Running::program(&line).connected(500);
        let burners = Burners::start();
        Self {
            server,
            _clients: clients,
            before: burners.scheduling(),
            burners,
        }
    }

    /// `trace --fix` of it.
    fn trace(&self) -> Command {
        let mut command = taillab();
        command
            .args([
                "trace",
                "--json",
                "--no-save",
                "-C",
                "0",
                "-d",
                "2s",
                "--fix",
            ])
            .args(["-p", &self.server.pid().to_string()]);
        command
    }

    fn is_as_it_was(&self) {
        assert_eq!(self.burners.scheduling(), self.before, "left changed");
        assert_eq!(applies(), Vec::<Value>::new(), "left in the journal");
    }
}

/// Whether p99 is clearly less with it, or it was kept. Against two programs that take all they get, real time or a better
/// niceness takes most of it away. A stall in a few blocks decides p99 over all of them, and hardly that of a typical pair.
fn helps(fix: &Value) -> bool {
    let p99 = |list: &str| {
        let mut ratios = fix[list].as_array().into_iter().flatten();
        let at = ratios.find(|at| at["q"].as_f64() == Some(0.99));
        at.and_then(|at| at["value"].as_f64())
    };
    fix["outcome"] == "kept"
        || p99("measured").is_some_and(|ratio| ratio < 0.9)
        || p99("typical").is_some_and(|ratio| ratio < 0.5)
}

#[test]
fn a_live_server_is_treated_in_blocks_and_left_as_it_was() {
    if !live("a_live_server_is_treated_in_blocks_and_left_as_it_was") {
        return;
    }
    let disturbed = Disturbed::start();
    // nobody can be asked here
    let refused = disturbed.trace().stdin(Stdio::null()).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--yes"));
    assert!(
        analyses_without_root(disturbed.trace().arg("--yes")),
        "the recording was analysed as root"
    );
    disturbed.is_as_it_was();

    let run = |attempt| {
        let output = disturbed
            .trace()
            .args(["--yes", "--fix-budget", &budget(attempt, 16)])
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(0 | 4)), "{stderr}");
        disturbed.is_as_it_was();
        (fixes_of(&result(&output)), ())
    };
    let (fixes, ()) = on_an_even_machine(ATTEMPTS, run, |fixes| fixes[1..].iter().any(helps));
    let tried = fixes[1..]
        .iter()
        .filter(|fix| fix["pairs"].as_u64() > Some(0));
    for fix in tried {
        assert!(fix["throughput"].is_null(), "{fix:#}");
        assert!(!fix["measured"].as_array().unwrap().is_empty(), "{fix:#}");
    }
    assert!(fixes[1..].iter().any(helps), "{fixes:#?}");
}

#[test]
fn ctrl_c_puts_the_change_of_a_live_server_back() {
    if !live("ctrl_c_puts_the_change_of_a_live_server_back") {
        return;
    }
    let disturbed = Disturbed::start();
    let place = tempfile::tempdir().unwrap();
    let printed = place.path().join("printed");
    let begun = |attempt| {
        let canary = Canary::start();
        let mut command = disturbed.trace();
        command
            // enough for the control and the trial that is interrupted
            .args(["--yes", "--fix-budget", &budget(attempt, 16)])
            .stdout(fs::File::create(&printed).unwrap())
            .stderr(Stdio::null());
        let mut child = Guarded::spawn(&mut command);
        if with_a_change(&mut child) {
            return Ok(child);
        }
        let result: Value = serde_json::from_slice(&fs::read(&printed).unwrap()).unwrap();
        Err((fixes_of(&result), canary.end()))
    };
    let begun = first_unspoiled(ATTEMPTS, begun, |begun| {
        let (fixes, still) = begun.as_ref().err()?;
        // a stall may have made the whole tail of the measurement, which no change treats
        let is_untried = fixes[1..].iter().all(|fix| fix["pairs"] == 0);
        spoiled(fixes, is_untried, *still)
    });
    let mut child = begun.unwrap_or_else(|without| panic!("nothing is tried: {without:#?}"));
    signal(child.id(), "INT");
    let ended = child.wait().unwrap();
    assert_eq!(ended.code(), Some(130));
    disturbed.is_as_it_was();
    // what was finished is shown, and the verdict says that the rest is missing
    let result: Value = serde_json::from_slice(&fs::read(&printed).unwrap()).unwrap();
    assert_eq!(fixes_of(&result)[0]["mitigation"], "control");
    let warnings = result["verdict"]["warnings"].as_array().unwrap();
    let is_told = warnings
        .iter()
        .any(|warning| warning["key"] == "fix_partial");
    assert!(is_told, "{result:#}");
}

#[test]
fn all_combinations_give_effects_and_interactions() {
    if !live("all_combinations_give_effects_and_interactions") {
        return;
    }
    let machine = Machine::now();
    // they must stay as they are; how much a change helps does not matter here
    let burners = Burners::asleep();
    let before = burners.scheduling();
    let place = tempfile::tempdir().unwrap();
    let output = on_a_steady_machine(|attempt| {
        taillab()
            .args(FIX)
            // no more than the fewest rounds need
            .args(["--factorial", "nice,slice"])
            .args(["--fix-budget", "13s", "-o"])
            .arg(place.path().join(format!("run-{attempt}")))
            .output()
            .unwrap()
    });
    ended_and_left_nothing(&output, (&burners, &before), &machine);
    let result = result(&output);
    assert!(result.get("fixes").is_none(), "{result:#}");
    let factorial = &result["factorial"];
    assert!(factorial["rounds"].as_u64().unwrap() >= 5);
    let cells = factorial["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 4);
    // the quantiles that every combination supports, with what the machine left of its 10,000 requests
    let supported = cells
        .iter()
        .map(|cell| cell["at"].as_array().unwrap().len());
    let supported = supported.min().unwrap();
    assert!(supported >= 1, "{factorial:#}");
    let effects = factorial["effects"].as_array().unwrap();
    let of = |place: usize| effects[place]["of"].as_array().unwrap().len();
    assert_eq!((effects.len(), of(0), of(1), of(2)), (3, 1, 1, 2));
    for effect in effects {
        let at = effect["at"].as_array().unwrap();
        assert_eq!(at.len(), supported, "{effect:#}");
        for ratio in at {
            let end = |name: &str| ratio[name].as_f64().unwrap();
            assert!(
                end("lo") <= end("value") && end("value") <= end("hi"),
                "{ratio}"
            );
        }
    }
}
