//! Mitigations of `taillab tune` for hardware that few machines have. Where it exists (all of it does
//! in the guest of `make vm`), they take effect and are put back; elsewhere they are
//! refused.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;
use taillab_host::CpuSet;

use crate::support::{Guarded, live, must_be_in_a_guest, signal, taillab, wait_for};

pub(crate) fn read(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    text.trim().to_owned()
}

/// What is applied until it is reverted, which must succeed, or until the test has failed.
pub(crate) struct Applied {
    id: u64,
    is_held: bool,
}

impl Applied {
    pub(crate) fn new(args: &[&str]) -> Self {
        let (code, value, said) = tune(&[&["apply"], args, &["--yes"]].concat());
        assert_eq!(code, Some(0), "{args:?}: {said}");
        Self {
            id: value["applies"][0]["id"].as_u64().unwrap(),
            is_held: true,
        }
    }

    /// What `tune` says of it.
    pub(crate) fn of(&self, result: &Value) -> Value {
        let applies = result["applies"].as_array().unwrap();
        let own = applies.iter().find(|apply| apply["id"] == self.id);
        own.unwrap().clone()
    }

    /// Puts it back, and returns what `tune` says of it.
    pub(crate) fn revert(mut self) -> Value {
        self.is_held = false;
        let (code, value, said) = tune(&["revert", &self.id.to_string()]);
        assert_eq!(code, Some(0), "{value}: {said}");
        self.of(&value)
    }
}

impl Drop for Applied {
    fn drop(&mut self) {
        if self.is_held {
            let id = self.id.to_string();
            let _ = taillab().args(["tune", "revert", &id]).output();
        }
    }
}

/// `tune apply --hold`, from when it says that it holds until it is interrupted.
pub(crate) struct Holder(Guarded);

impl Holder {
    pub(crate) fn start(args: &[&str]) -> Self {
        let mut command = taillab();
        command
            .args(["tune", "apply", "--yes", "--hold"])
            .args(args);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut process = Guarded::spawn(command.stderr(Stdio::piped()));
        // the pipe stays open: it may say more
        let said = BufReader::new(process.stderr.as_mut().unwrap());
        let line = said.lines().next().unwrap().unwrap();
        assert!(line.contains("held until Ctrl-C"), "{line}");
        Self(process)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn interrupt(mut self) {
        signal(self.pid(), "INT");
        assert_eq!(self.0.wait().unwrap().code(), Some(130));
    }
}

pub(crate) fn tune(args: &[&str]) -> (Option<i32>, Value, String) {
    let output = taillab()
        .arg("tune")
        .args(args)
        .arg("--json")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let value = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    let said = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), value, said)
}

fn refused(args: &[&str], why: &str) {
    let (code, value, said) = tune(&[&["apply"], args, &["--yes"]].concat());
    assert_eq!((code, value), (Some(5), Value::Null), "{args:?}: {said}");
    assert!(said.contains(why) && said.lines().count() == 1, "{said}");
}

/// A program that ends with the test.
pub(crate) struct Program(Guarded);

impl Program {
    pub(crate) fn start() -> Self {
        Self(Guarded::spawn(Command::new("sleep").arg("600")))
    }

    pub(crate) fn pid(&self) -> String {
        self.0.id().to_string()
    }

    fn cpus(&self) -> String {
        let status = read(&format!("/proc/{}/status", self.pid()));
        let mut lines = status.lines();
        let cpus = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        cpus.unwrap().trim().to_owned()
    }

    fn groups(&self) -> String {
        read(&format!("/proc/{}/cgroup", self.pid()))
    }
}

#[test]
fn memory_is_not_balanced_between_nodes() {
    if !live("memory_is_not_balanced_between_nodes") {
        return;
    }
    if !must_be_in_a_guest(Path::new("/sys/devices/system/node/node1").exists()) {
        refused(&["numa"], "one NUMA node");
        return;
    }
    let balancing = || read("/proc/sys/kernel/numa_balancing");
    let before = balancing();
    assert_ne!(before, "0", "the kernel balances where there are two nodes");
    let applied = Applied::new(&["numa"]);
    assert_eq!(balancing(), "0");
    applied.revert();
    assert_eq!(balancing(), before);
}

#[test]
fn the_governor_that_saves_nothing_rules_and_goes() {
    if !live("the_governor_that_saves_nothing_rules_and_goes") {
        return;
    }
    let policy = "/sys/devices/system/cpu/cpufreq/policy1";
    if !must_be_in_a_guest(Path::new(policy).exists()) {
        refused(&["governor", "-C", "1"], "no cpufreq");
        return;
    }
    let file = format!("{policy}/scaling_governor");
    let _found = Found::at(&file);
    let other = "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor";
    let of_other = read(other);
    // so that there is something to change
    let available = read(&format!("{policy}/scaling_available_governors"));
    let saving = available.split(' ').find(|name| *name != "performance");
    let saving = saving.unwrap();
    fs::write(&file, saving).unwrap();
    let applied = Applied::new(&["governor", "-C", "1"]);
    assert_eq!(read(&file), "performance");
    assert_eq!(read(other), of_other);
    applied.revert();
    assert_eq!(read(&file), saving);
}

/// What a file of the kernel held, which it holds again when this is dropped.
struct Found {
    file: String,
    text: String,
}

impl Found {
    fn at(file: &str) -> Self {
        let (file, text) = (file.to_owned(), read(file));
        Self { file, text }
    }
}

impl Drop for Found {
    fn drop(&mut self) {
        let _ = fs::write(&self.file, &self.text);
    }
}

/// How often CPU 1 has entered each idle state, the shallowest first.
fn idle_entries() -> Vec<u64> {
    let of = |state: u32| {
        let path = format!("/sys/devices/system/cpu/cpu1/cpuidle/state{state}/usage");
        fs::read_to_string(path).ok()?.trim().parse().ok()
    };
    (0..).map_while(of).collect()
}

/// How often it has entered one of the others.
fn deep_entries() -> u64 {
    idle_entries()[1..].iter().sum()
}

fn sleeps_deeply() {
    let start = deep_entries();
    wait_for("CPU 1 in a deep state", || {
        (deep_entries() > start).then_some(())
    });
}

fn does_not_sleep_deeply() {
    // whatever runs there ends the idle state that it is in
    let mut command = Command::new("taskset");
    let status = command.args(["-c", "1", "true"]).status().unwrap();
    assert!(status.success());
    let start = deep_entries();
    sleep(Duration::from_secs(1));
    assert_eq!(deep_entries(), start, "it sleeps all the same");
}

#[test]
fn no_cpu_sleeps_deeply_while_a_process_holds_the_latency() {
    if !live("no_cpu_sleeps_deeply_while_a_process_holds_the_latency") {
        return;
    }
    // elsewhere others may keep the CPU awake, and `tune::what_is_held_…` holds it
    if std::env::var_os("TAILLAB_GUEST").is_none() {
        let (code, _, said) = tune(&["apply", "cpu-dma-latency", "--yes"]);
        assert_eq!(code, Some(2), "{said}");
        return;
    }
    sleeps_deeply();
    let holder = Holder::start(&["cpu-dma-latency"]);
    does_not_sleep_deeply();
    holder.interrupt();
    sleeps_deeply();
}

#[test]
fn a_partition_is_isolated_by_control_groups_v2() {
    if !live("a_partition_is_isolated_by_control_groups_v2") {
        return;
    }
    let (server, other) = (Program::start(), Program::start());
    let before = (server.cpus(), other.cpus(), server.groups(), other.groups());
    let root = "/sys/fs/cgroup";
    let is_v2 = fs::read_to_string(format!("{root}/cgroup.subtree_control"))
        .is_ok_and(|all| all.split(' ').any(|name| name.trim() == "cpuset"));
    let is_v2 = must_be_in_a_guest(is_v2);
    let isolated = || read(&format!("{root}/cpuset.cpus.isolated"));
    let applied = Applied::new(&["dedicated-cpus", "-C", "1", "-p", &server.pid()]);
    assert_eq!(server.cpus(), "1");
    let left: CpuSet = other.cpus().parse().unwrap();
    assert!(!left.contains(1), "{left}");
    if is_v2 {
        assert_eq!(isolated(), "1");
        // a new program does not get an isolated CPU by default
        let late = Program::start();
        assert_ne!(late.cpus(), before.0);
    }
    applied.revert();
    let after = (server.cpus(), other.cpus(), server.groups(), other.groups());
    assert_eq!(after, before);
    if is_v2 {
        assert_eq!(isolated(), "");
    }
}

/// A network device with interrupts of its own, and their numbers.
fn device_with_interrupts() -> Option<(String, Vec<String>)> {
    let names = |folder: &str| -> Vec<String> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().into_string().unwrap());
        names.collect()
    };
    names("/sys/class/net").into_iter().find_map(|device| {
        let numbers = names(&format!("/sys/class/net/{device}/device/../msi_irqs"));
        (numbers.len() > 1).then_some((device, numbers))
    })
}

/// How often each CPU has had these interrupts.
fn interrupts(numbers: &[String]) -> Vec<u64> {
    let table = read("/proc/interrupts");
    let cpus = table.lines().next().unwrap().split_whitespace().count();
    let mut counts = vec![0; cpus];
    for line in table.lines().skip(1) {
        let (name, rest) = line.split_once(':').unwrap();
        if numbers.iter().any(|number| number == name.trim()) {
            let of_cpus = rest.split_whitespace().take(cpus);
            for (count, text) in counts.iter_mut().zip(of_cpus) {
                *count += text.parse::<u64>().unwrap();
            }
        }
    }
    counts
}

/// Pages of a process's own memory on each node.
fn pages(pid: &str) -> [u64; 2] {
    let mut pages = [0; 2];
    let maps = fs::read_to_string(format!("/proc/{pid}/numa_maps")).unwrap_or_default();
    for line in maps.lines().filter(|line| line.contains(" anon=")) {
        for (node, count) in pages.iter_mut().enumerate() {
            let field = format!("N{node}=");
            let found = line.split(' ').find_map(|word| word.strip_prefix(&field));
            *count += found.map_or(0, |number| number.parse::<u64>().unwrap());
        }
    }
    pages
}

#[test]
fn a_servers_memory_is_moved_to_the_node_of_its_cpus_and_bound_to_it() {
    if !live("a_servers_memory_is_moved_to_the_node_of_its_cpus_and_bound_to_it") {
        return;
    }
    let many = Path::new("/sys/devices/system/node/node1").exists();
    if !must_be_in_a_guest(many) || std::env::var_os("TAILLAB_GUEST").is_none() {
        // where there are more nodes, they belong to other people's processes
        if !many {
            refused(&["numa", "-p", &Program::start().pid()], "one NUMA node");
        }
        return;
    }
    let fill = "x=$(head -c 4000000 /dev/zero | tr '\\0' x); sleep 600; :";
    let mut command = Command::new("taskset");
    command.args(["-c", "2-3", "sh", "-c", fill]);
    let server = Program(Guarded::spawn(&mut command));
    let pid = server.pid();
    // it is on the second node
    wait_for("the server's memory", || {
        let [first, second] = pages(&pid);
        (second > 900 && second > 2 * first).then_some(())
    });
    let allowed = || {
        let status = read(&format!("/proc/{pid}/status"));
        let mut lines = status.lines();
        let nodes = lines.find_map(|line| line.strip_prefix("Mems_allowed_list:"));
        nodes.unwrap().trim().to_owned()
    };
    let migrated = || {
        let counts = read("/proc/vmstat");
        let mut lines = counts.lines();
        let count = lines.find_map(|line| line.strip_prefix("pgmigrate_success "));
        count.unwrap().parse::<u64>().unwrap()
    };
    let before = (allowed(), server.groups());
    let count = migrated();
    let applied = Applied::new(&["numa", "-p", &pid, "-C", "0"]);
    assert_eq!(allowed(), "0");
    // the kernel moves it in the background
    wait_for("its memory on the first node", || {
        let [first, second] = pages(&pid);
        (second == 0 && first > 900).then_some(())
    });
    assert!(migrated() >= count + 900, "the kernel counts what it moves");
    applied.revert();
    assert_eq!((allowed(), server.groups()), before);
}

#[test]
fn interrupts_stay_off_for_longer_while_a_server_polls() {
    if !live("interrupts_stay_off_for_longer_while_a_server_polls") {
        return;
    }
    let found = device_with_interrupts();
    if !must_be_in_a_guest(found.is_some()) || std::env::var_os("TAILLAB_GUEST").is_none() {
        // the loopback has no receive context
        let (code, value, said) = tune(&["plan", "irq-suspension", "--device", "lo"]);
        assert_eq!(code, Some(0), "{said}");
        assert!(
            !value.to_string().contains("irq-suspend-timeout("),
            "{value}"
        );
        return;
    }
    let (device, _) = found.unwrap();
    let ip = |state: &str| {
        let status = Command::new("ip")
            .args(["link", "set", &device, state])
            .status();
        assert!(status.unwrap().success());
    };
    ip("up");
    let deferred = format!("/sys/class/net/{device}/napi_defer_hard_irqs");
    let before = read(&deferred);
    // for each receive context: the old value and the state of its change
    let timeouts = |args: &[&str]| -> Vec<(Value, Value)> {
        let (code, value, said) = tune(args);
        assert_eq!(code, Some(0), "{said}");
        let rows = value["mitigations"][0]["changes"]
            .as_array()
            .unwrap()
            .iter();
        let of_napi = rows.filter(|row| {
            let setting = row["setting"].as_str().unwrap();
            setting.starts_with("irq-suspend-timeout(")
        });
        of_napi
            .map(|row| (row["old"].clone(), row["state"].clone()))
            .collect()
    };
    let plan = ["plan", "irq-suspension", "--device", &device];
    let planned = timeouts(&plan);
    assert!(!planned.is_empty(), "this kernel has the timeout");
    assert!(
        planned
            .iter()
            .all(|(old, state)| old == "0" && state == "planned")
    );
    let applied = Applied::new(&["irq-suspension", "--device", &device]);
    assert_eq!(read(&deferred), "2");
    let held = timeouts(&plan);
    assert_eq!(held.len(), planned.len());
    assert!(
        held.iter()
            .all(|(now, state)| now == "20000000" && state == "already_so")
    );
    applied.revert();
    assert_eq!(read(&deferred), before);
    assert_eq!(timeouts(&plan), planned);
    ip("down");
}

#[test]
fn a_devices_interrupts_leave_a_cpu() {
    if !live("a_devices_interrupts_leave_a_cpu") {
        return;
    }
    let found = device_with_interrupts();
    if !must_be_in_a_guest(found.is_some()) || std::env::var_os("TAILLAB_GUEST").is_none() {
        // a machine's own device carries other people's packets
        refused(
            &["irq-affinity", "--device", "lo", "-C", "0"],
            "no interrupts",
        );
        return;
    }
    let (device, numbers) = found.unwrap();
    let ip = |args: &[&str]| {
        let status = Command::new("ip").args(args).status().unwrap();
        assert!(status.success(), "{args:?}");
    };
    ip(&["address", "add", "10.0.2.15/24", "dev", &device]);
    ip(&["link", "set", &device, "up"]);
    let lists = || -> Vec<String> {
        let list = |number| fs::read_to_string(format!("/proc/irq/{number}/smp_affinity_list"));
        numbers.iter().map(|number| list(number).unwrap()).collect()
    };
    let before = lists();
    // QEMU answers at this address; the first packet after a change moves the interrupt
    let exchange = || {
        let output = Command::new("busybox")
            .args(["ping", "-q", "-c", "20", "-i", "0.02", "10.0.2.2"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    exchange();
    for cpu in ["0", "1"] {
        let applied = Applied::new(&["irq-affinity", "--device", &device, "-C", cpu]);
        // each of its queues moves with its own next interrupt
        let at = cpu.parse::<usize>().unwrap();
        let has_left = (0..20).any(|_| {
            let start = interrupts(&numbers);
            exchange();
            let end = interrupts(&numbers);
            assert!(end.iter().sum::<u64>() > start.iter().sum(), "{end:?}");
            end[at] == start[at]
        });
        assert!(has_left, "CPU {cpu} has some of them in all 20 exchanges");
        applied.revert();
        assert_eq!(lists(), before);
    }
    ip(&["link", "set", &device, "down"]);
    ip(&["address", "flush", "dev", &device]);
}
