//! After a SIGKILL: the next start finds what was left and ends it, and it does no
//! harm to runs that are alive.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::{
    Helper, Orphan, argument, eventually, is_gone, is_helper, tell, wait_for_death,
};
use crate::tune::Process;
use taillab_host::{JournalFolder, Roots};

/// The helper's part: a run that starts a server without a death signal (as if the
/// kernel had failed us) and tells its pid. The argument is the journal's folder and
/// whether the run still records the server that it has started.
fn run_until_killed() -> ! {
    let told = argument();
    let (folder, recorded) = told.rsplit_once(' ').unwrap();
    let roots = Roots::default();
    let mut journal = JournalFolder::at(folder).begin(&roots).unwrap();
    let (name, value) = journal.plan_server("sleep").unwrap();
    let mut server = Command::new("sleep")
        .arg("600")
        .env(name, value)
        .spawn()
        .unwrap();
    if recorded == "recorded" {
        journal.server_started(&roots, server.id()).unwrap();
    }
    tell(server.id());
    server.wait().unwrap(); // we are killed first
    wait_for_death();
}

fn start(test: &str, folder: &Path, recorded: &str) -> (Helper, Orphan) {
    let mut helper = Helper::start(test, &format!("{} {recorded}", folder.display()));
    let server = Orphan(helper.hear().parse().unwrap());
    (helper, server)
}

fn journals(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "lock")
        .collect();
    names.sort();
    names
}

#[test]
fn a_leftover_server_is_found_and_ended() {
    if is_helper() {
        run_until_killed();
    }
    for recorded in ["recorded", "unrecorded"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("taillab");
        let journals_of = JournalFolder::at(&path);
        let (helper, server) = start(
            "recovery::a_leftover_server_is_found_and_ended",
            &path,
            recorded,
        );
        let owner = helper.pid();
        // while the run lives, another start leaves it alone
        assert_eq!(journals_of.recover(&Roots::default()).unwrap(), []);
        assert!(!is_gone(server.0));
        helper.kill();
        assert!(
            !is_gone(server.0),
            "the simulation needs a server that survives"
        );
        let found = journals_of.recover(&Roots::default()).unwrap();
        let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
        let killed = format!("left by a run that was killed (pid {owner})");
        assert_eq!(
            lines,
            [format!("removed sleep (pid {}), {killed}", server.0)]
        );
        eventually("the server is gone", || is_gone(server.0));
        assert_eq!(journals(&path), [""; 0]);
        assert_eq!(journals_of.recover(&Roots::default()).unwrap(), []);
    }
}

#[test]
fn a_dead_run_beside_a_live_one() {
    if is_helper() {
        run_until_killed();
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("taillab");
    let name = "recovery::a_dead_run_beside_a_live_one";
    let (dead, left) = start(name, &path, "recorded");
    let (alive, used) = start(name, &path, "recorded");
    dead.kill();
    let found = JournalFolder::at(&path).recover(&Roots::default()).unwrap();
    assert_eq!(found.len(), 1);
    assert!(is_gone(left.0));
    assert!(!is_gone(used.0));
    alive.kill();
    assert_eq!(
        JournalFolder::at(&path)
            .recover(&Roots::default())
            .unwrap()
            .len(),
        1
    );
    assert!(is_gone(used.0));
}

#[test]
fn a_run_that_ends_in_order_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (roots, journals_of) = (Roots::default(), JournalFolder::at(folder.path().join("j")));
    let mut first = journals_of.begin(&roots).unwrap();
    let second = journals_of.begin(&roots).unwrap();
    first.plan_server("x").unwrap();
    assert_eq!(journals(journals_of.path()).len(), 4);
    first.finish().unwrap();
    second.finish().unwrap();
    assert_eq!(journals(journals_of.path()), [""; 0]);
}

/// The number and start time match, but they are of another boot: not ours to kill.
#[test]
fn a_journal_of_another_boot_kills_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("taillab");
    let (roots, journals_of) = (Roots::default(), JournalFolder::at(&path));
    let server = Process::sleeping();
    let mut journal = journals_of.begin(&roots).unwrap();
    journal.plan_server("sleep").unwrap();
    journal.server_started(&roots, server.pid()).unwrap();
    drop(journal);
    let file = path.join(
        journals(&path)
            .iter()
            .find(|name| name.ends_with(".json"))
            .unwrap(),
    );
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains(boot.trim()));
    fs::write(&file, text.replace(boot.trim(), "another-boot")).unwrap();
    assert_eq!(journals_of.recover(&roots).unwrap(), []);
    assert!(!is_gone(server.pid()));
    assert_eq!(journals(&path), [""; 0]);
}

#[test]
fn what_cannot_be_understood_is_reported_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("taillab");
    let (roots, journals_of) = (Roots::default(), JournalFolder::at(&path));
    drop(journals_of.begin(&roots).unwrap());
    let file = path.join(
        journals(&path)
            .iter()
            .find(|name| name.ends_with(".json"))
            .unwrap(),
    );
    for (text, reason) in [("{", "cannot understand it"), ("", "cannot understand it")] {
        fs::write(&file, text).unwrap();
        let found = journals_of.recover(&roots).unwrap();
        assert_eq!(found.len(), 1);
        assert!(found[0].to_string().contains(reason), "{}", found[0]);
    }
    assert_eq!(journals(&path).len(), 2);
}

#[test]
fn a_folder_open_to_others_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("taillab");
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
    let roots = Roots::default();
    let error = JournalFolder::at(&path)
        .begin(&roots)
        .unwrap_err()
        .to_string();
    assert!(error.contains("others have access"), "{error}");
    assert!(JournalFolder::at(&path).recover(&roots).is_err());
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let error = JournalFolder::at(&link)
        .begin(&roots)
        .unwrap_err()
        .to_string();
    assert!(error.contains("it is something else"), "{error}");
}
