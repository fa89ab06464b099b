use super::*;

#[test]
fn a_lock_that_is_not_given_back_ends_with_a_line_that_names_its_holder() {
    let place = tempfile::tempdir().unwrap();
    let folder = JournalFolder::at(place.path());
    let held = folder.lock().unwrap();
    let said = folder.lock_within(Duration::from_millis(1));
    let said = said.unwrap_err().to_string();
    let named = format!("(pid {})", std::process::id());
    assert!(
        said.contains(&named) && said.contains("kill -CONT"),
        "{said}"
    );
    drop(held);
    // a test that forks at this moment has the lock, too, until its child is another program
    folder.lock_within(LOCK_PATIENCE).unwrap();
}

#[test]
fn a_folder_that_somebody_else_has_taken_is_not_the_only_one() {
    let place = tempfile::tempdir().unwrap();
    let uid = rustix::process::geteuid().as_raw();
    let for_all = place.path().join("tmp");
    fs::create_dir(&for_all).unwrap();
    let folder = |variables: &[(&str, &Path)]| {
        let variable = |name: &str| {
            let found = variables.iter().find(|(other, _)| *other == name);
            found.map(|(_, value)| value.as_os_str().to_owned())
        };
        JournalFolder::for_user(uid, for_all.clone(), variable).0
    };
    let first = for_all.join(format!("taillab-{uid}"));
    assert_eq!(folder(&[]), first);
    // a file or a link of anybody stands for a folder of somebody else
    std::os::unix::fs::symlink("/proc", &first).unwrap();
    assert_eq!(folder(&[]), for_all.join(format!("taillab-{uid}-1")));
    // what only this user can write comes before it
    let home = place.path().join("home");
    fs::create_dir(&home).unwrap();
    let state = home.join(".local/state/taillab/run");
    assert_eq!(folder(&[("HOME", &home)]), state);
    JournalFolder::at(&state).ensure().unwrap();
    let both: [(&str, &Path); 2] = [("HOME", &home), ("XDG_RUNTIME_DIR", &home)];
    assert_eq!(folder(&both), home.join("taillab"));
}
