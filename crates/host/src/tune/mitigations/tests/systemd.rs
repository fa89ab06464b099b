//! Where systemd owns the control groups.

use super::*;

/// A machine that systemd runs, with a stand-in for systemctl that keeps each unit's CPUs in a file.
#[test]
fn where_systemd_owns_the_groups_it_is_asked_for_their_cpus() {
    let systemd = STAT.replace("4711 (server)", "1 (systemd)");
    let mut machine = MACHINE.to_vec();
    machine.extend([
        ("proc/1/stat", systemd.as_str()),
        ("proc/4711/cgroup", "0::/web.slice/web.service/workers\n"),
        ("sys/fs/cgroup/cgroup.controllers", "cpuset cpu memory\n"),
        ("sys/fs/cgroup/init.scope/cgroup.procs", "1\n"),
        ("sys/fs/cgroup/user.slice/cgroup.procs", "\n"),
        ("sys/fs/cgroup/web.slice/other.service/cgroup.procs", "\n"),
        (
            "sys/fs/cgroup/web.slice/web.service/workers/cgroup.procs",
            "4711\n",
        ),
        ("proc/units/init.scope", ""),
        ("proc/units/user.slice", "0-3"),
        ("proc/units/other.service", ""),
        ("proc/units/web.service", ""),
        (
            "run/systemd/system.control/user.slice.d/50-AllowedCPUs.conf",
            "[Slice]\n",
        ),
    ]);
    let (folder, roots) = tree(&machine);
    let at_run_time = folder.path().join("run/systemd/system.control");
    let set_at_run_time = || {
        let mut units: Vec<_> = (fs::read_dir(&at_run_time).unwrap())
            .map(|unit| unit.unwrap().file_name())
            .collect();
        units.sort();
        units
    };
    let programs = folder.path().join("usr/bin");
    fs::create_dir_all(&programs).unwrap();
    let stand_in = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/systemctl.sh");
    std::os::unix::fs::symlink(stand_in, programs.join("systemctl")).unwrap();
    let units = || -> BTreeMap<PathBuf, String> {
        let all = files(folder.path()).into_iter();
        all.filter(|(path, _)| path.starts_with(roots.proc.join("units")))
            .collect()
    };
    let before = units();
    let tuner = tuner(&roots, folder.path());
    let plan = tuner.plan(&["dedicated-cpus"], &scope()).unwrap();
    tuner.apply(&plan, false, &mut |_| {}).unwrap();
    let now: Vec<String> = units().into_values().collect();
    // init.scope, other.service, user.slice, web.service: as systemd writes ranges
    assert_eq!(now, ["0-1 4-7", "0-1 4-7", "0-1 4-7", "2-3"]);
    assert!(tuner.status().unwrap()[0].holds());
    assert_eq!(set_at_run_time().len(), 4);
    tuner.revert(RevertSelection::All, &mut |_| {}).unwrap();
    assert_eq!(units(), before);
    // what somebody else has set at run time stays, and nothing of ours does
    assert_eq!(set_at_run_time(), ["user.slice.d"]);
    // one that systemd does not know: nothing is applied
    fs::remove_file(roots.proc.join("units/other.service")).unwrap();
    let before = units();
    let error = tuner
        .apply(&plan, false, &mut |_| {})
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("other.service") && error.contains("not loaded"),
        "{error}"
    );
    assert_eq!(units(), before);
}
