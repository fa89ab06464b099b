//! `taillab tune` where systemd runs the machine and owns its control groups: in a guest that
//! `make vm` boots with it.

use std::process::Command;

use crate::hardware::{Applied, Program, read, tune};
use crate::support::{live, must_be_in_a_guest, wait_for};

/// What a program of systemd prints.
fn said(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A service that sleeps, until the test ends.
struct Service {
    unit: &'static str,
    /// Its control group.
    folder: String,
    pid: String,
}

impl Service {
    fn start(unit: &'static str, slice: &str) -> Self {
        let (unit_is, slice_is) = (format!("--unit={unit}"), format!("--slice={slice}"));
        said("systemd-run", &[&unit_is, &slice_is, "sleep", "600"]);
        Self {
            unit,
            folder: format!("/sys/fs/cgroup/{slice}/{unit}"),
            pid: property(unit, "MainPID"),
        }
    }

    /// Where its process may run.
    fn cpus(&self) -> String {
        let status = read(&format!("/proc/{}/status", self.pid));
        let mut lines = status.lines();
        let cpus = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        cpus.unwrap().trim().to_owned()
    }

    fn effective(&self) -> String {
        read(&format!("{}/cpuset.cpus.effective", self.folder))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // the guest ends with the test
        let _ = Command::new("systemctl").args(["stop", self.unit]).status();
    }
}

fn property(unit: &str, name: &str) -> String {
    said(
        "systemctl",
        &["show", "--property", name, "--value", "--", unit],
    )
}

fn allowed(units: &[&str]) -> Vec<String> {
    let of = |unit: &&str| property(unit, "AllowedCPUs");
    units.iter().map(of).collect()
}

#[test]
fn systemd_gives_the_server_its_cpu_and_all_other_units_the_rest() {
    if !live("systemd_gives_the_server_its_cpu_and_all_other_units_the_rest") {
        return;
    }
    let is_systemd = read("/proc/1/comm") == "systemd";
    if !must_be_in_a_guest(is_systemd) || std::env::var_os("TAILLAB_GUEST").is_none() {
        // this machine's units belong to other people; without systemd, none may be planned
        let server = Program::start();
        let (code, value, said) = tune(&["plan", "dedicated-cpus", "-C", "1", "-p", &server.pid()]);
        assert_eq!(code, Some(0), "{said}");
        let changes = value["mitigations"][0]["changes"].to_string();
        assert!(is_systemd || !changes.contains("AllowedCPUs"), "{changes}");
        return;
    }
    let served = Service::start("taillab-served.service", "taillab.slice");
    let beside = Service::start("taillab-beside.service", "taillab.slice");
    let elsewhere = Service::start("taillab-elsewhere.service", "system.slice");
    let all = [&served, &beside, &elsewhere];
    let units = [
        served.unit,
        beside.unit,
        "system.slice",
        "init.scope",
        "taillab.slice",
    ];
    let before = (allowed(&units), all.map(Service::cpus));
    assert_eq!(before.1, ["0-3", "0-3", "0-3"]);
    let applied = Applied::new(&["dedicated-cpus", "-C", "1", "-p", &served.pid]);
    // as systemd writes ranges; the slice that the server is in gets no setting
    assert_eq!(allowed(&units), ["1", "0 2-3", "0 2-3", "0 2-3", ""]);
    // systemd answers before it has written all settings
    wait_for("the CPUs of the groups", || {
        (all.map(Service::cpus) == ["1", "0,2-3", "0,2-3"]).then_some(())
    });
    assert_eq!(served.effective(), "1");
    assert_eq!(beside.effective(), "0,2-3");
    assert_eq!(
        read("/sys/fs/cgroup/init.scope/cpuset.cpus.effective"),
        "0,2-3"
    );
    // what starts later is kept off too
    let late = Service::start("taillab-late.service", "system.slice");
    assert_eq!(late.cpus(), "0,2-3");
    let (code, verified, said) = tune(&["verify"]);
    assert_eq!(code, Some(0), "{verified}: {said}");
    applied.revert();
    assert_eq!(allowed(&units), before.0);
    wait_for("the CPUs that they had", || {
        (all.map(Service::cpus) == before.1 && late.cpus() == "0-3").then_some(())
    });
}
