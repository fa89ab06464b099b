//! `taillab noise` as root: a disturbance whose time is known is found under its name.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;

use crate::support::{
    Guarded, Meanwhile, first_unspoiled, for_everybody, live, must_be_in_a_guest, taillab, wait_for,
};

/// The thread that takes the CPU away, by the name that the kernel knows.
const HOG: &str = "known-hog";
/// The share of the hog's own CPU time that must be charged to it: interrupts during it are charged to
/// themselves.
const FOUND: f64 = 0.7;

fn ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// How a hog takes the CPU.
#[derive(Clone, Copy)]
struct Bursts {
    length: Duration,
    pause: Duration,
    /// Nothing else runs during one.
    whole: bool,
}

impl Bursts {
    const SHORT: Self = Self {
        length: Duration::from_millis(2),
        pause: Duration::from_millis(6),
        whole: false,
    };
    /// So long that the way into one and out of it is short beside it even where the CPU is emulated.
    const LONG: Self = Self {
        length: Duration::from_millis(20),
        pause: Duration::from_millis(60),
        whole: true,
    };
}

/// Takes this CPU in bursts until it is ended; gives (time, its own CPU time so far) after each burst.
fn hog(cpu: u32, bursts: Bursts) -> Meanwhile<Vec<(u64, u64)>> {
    Meanwhile::start(HOG, move |stop| {
        let mut set = rustix::thread::CpuSet::new();
        set.set(cpu as usize);
        rustix::thread::sched_setaffinity(None, &set).unwrap();
        if bursts.whole {
            taillab_host::process::set_fifo(0, 1).unwrap();
        }
        let mut seen = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let burst = Instant::now();
            while burst.elapsed() < bursts.length {}
            seen.push((ns(ClockId::Monotonic), ns(ClockId::ThreadCPUTime)));
            thread::sleep(bursts.pause);
        }
        seen
    })
}

fn noise(args: &[&str]) -> Value {
    let output = taillab()
        .args(["noise", "--json", "-q"])
        .args(args)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_thread_that_takes_the_cpu_is_named_with_the_time_it_took() {
    if !live("a_thread_that_takes_the_cpu_is_named_with_the_time_it_took") {
        return;
    }
    let cpu = last_cpu();
    let hog = hog(cpu, Bursts::SHORT);
    let result = noise(&["-d", "2s", "--cpus", &cpu.to_string()]);
    let seen = hog.end();
    let row = &result["rows"][0];
    let began = row["began_ns"].as_u64().unwrap();
    let ended = began + row["watched_ns"].as_u64().unwrap();
    let during: Vec<&(u64, u64)> = seen
        .iter()
        .filter(|(at, _)| (began..ended).contains(at))
        .collect();
    let (first, last) = (during.first().unwrap(), during.last().unwrap());
    let truth = (last.1 - first.1) as f64;
    let causes = row["causes"].as_array().unwrap();
    let is_hog = |cause: &&Value| {
        let culprit = cause["culprit"].as_str().unwrap_or_default();
        cause["cause"] == "thread" && culprit.starts_with(HOG)
    };
    let found: f64 = (causes.iter().filter(is_hog))
        .map(|cause| cause["stolen_ns"].as_f64().unwrap())
        .sum();
    // with the bursts at both ends of the window, however long the machine stood still in them
    let before = seen.iter().rev().find(|(at, _)| *at < began);
    let after = seen.iter().find(|(at, _)| *at >= ended).or(seen.last());
    let most = after.unwrap().1 - before.map_or(0, |(_, ran)| *ran);
    assert!(
        found >= FOUND * truth && found <= 1.1 * most as f64 + 20e6,
        "{found} ns of {truth} to {most} ns: {causes:#?}"
    );
    // every nanosecond of the gaps has exactly one cause
    let sum: f64 = causes
        .iter()
        .map(|cause| cause["share"].as_f64().unwrap())
        .sum();
    assert!((sum - 1.0).abs() < 1e-3, "{sum}");
}

/// The guest of `make vm` runs in QEMU, which emulates the counter as well.
#[test]
fn a_loop_in_a_guest_says_that_it_is_one() {
    if !live("a_loop_in_a_guest_says_that_it_is_one") {
        return;
    }
    let cpu = last_cpu().to_string();
    let output = taillab()
        .args(["noise", "--json", "-q", "-d", "500ms", "--cpus", &cpu])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if !must_be_in_a_guest(output.status.code() == Some(0)) {
        assert_eq!(output.status.code(), Some(5), "{said}");
        assert!(said.contains("time stamp counter"), "{said}");
        return;
    }
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let info = fs::read_to_string("/proc/cpuinfo").unwrap();
    let flags = info.lines().find(|line| line.starts_with("flags")).unwrap();
    let is_guest = must_be_in_a_guest(flags.split(' ').any(|flag| flag == "hypervisor"));
    assert_eq!(result["hypervisor"].is_string(), is_guest, "{said}");
    let row = &result["rows"][0];
    assert!(row["reads"]["count"].as_u64() > Some(1_000), "{row}");
    // time that nothing in the kernel took is the hypervisor's in a guest, and unexplained elsewhere
    let causes = row["causes"].as_array().unwrap().iter();
    let kinds: Vec<&str> = causes.filter_map(|cause| cause["cause"].as_str()).collect();
    let other = if is_guest {
        "unexplained"
    } else {
        "hypervisor"
    };
    assert!(!kinds.is_empty() && !kinds.contains(&other), "{kinds:?}");
}

#[test]
fn the_loops_in_the_kernel_run_and_without_interrupts_meet_none() {
    if !live("the_loops_in_the_kernel_run_and_without_interrupts_meet_none") {
        return;
    }
    let cpu = last_cpu().to_string();
    let result = noise(&["-d", "500ms", "--loops", "kernel,masked", "--cpus", &cpu]);
    let rows = result["rows"].as_array().unwrap();
    let of = |kind: &str| rows.iter().find(|row| row["loop"] == kind);
    assert!(of("kernel").is_some_and(|row| row["reads"]["count"].as_u64() > Some(1_000)));
    // a kernel before 6.12 cannot, and says so
    let Some(masked) = of("masked") else {
        let notes = result["notes"].to_string();
        assert!(notes.contains("bpf_local_irq_save"), "{notes}");
        return;
    };
    assert!(masked["reads"]["count"].as_u64() > Some(1_000));
    for cause in masked["causes"].as_array().unwrap() {
        let cause = cause["cause"].as_str().unwrap();
        assert!(["hypervisor", "unexplained"].contains(&cause), "{cause}");
    }
}

/// A control group of our own with a CPU quota; dropping it removes it.
struct Limited(PathBuf);

impl Limited {
    /// 20 ms of each 100 ms for all CPUs together: a loop on one of them needs five times that.
    fn new() -> Self {
        let mount = Path::new("/sys/fs/cgroup");
        let one = (["cpu", "cpu,cpuacct"]
            .map(|name| mount.join(name))
            .into_iter())
        .find(|path| path.join("cpu.cfs_quota_us").exists() || path.join("tasks").exists());
        let name = format!("taillab-test-{}", std::process::id());
        let (group, quota) = match one {
            Some(root) => (root.join(name), vec![("cpu.cfs_quota_us", "20000")]),
            None => {
                // it may be on already
                let _ = fs::write(mount.join("cgroup.subtree_control"), "+cpu");
                (mount.join(name), vec![("cpu.max", "20000 100000")])
            }
        };
        fs::create_dir(&group).unwrap();
        let limited = Self(group);
        for (file, text) in quota {
            fs::write(limited.0.join(file), text).unwrap();
        }
        limited
    }

    /// Moves a process into it.
    fn take_in(&self, pid: u32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        // its processes have ended, but the kernel may not be done with them
        let began = Instant::now();
        while fs::remove_dir(&self.0).is_err() && began.elapsed() < Duration::from_secs(30) {
            thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn a_quota_of_the_control_group_is_named_with_what_it_took() {
    if !live("a_quota_of_the_control_group_is_named_with_what_it_took") {
        return;
    }
    let group = Limited::new();
    // a shell that waits until it is in the group
    let mut shell = Command::new("sh")
        .args(["-c", "read go; exec \"$0\" noise --by-cpus --json -q -d 1s"])
        .arg(env!("CARGO_BIN_EXE_taillab"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    group.take_in(shell.id());
    shell.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let output = shell.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let quota = &result["quota"];
    assert_eq!(quota["quota_ns"], 20_000_000);
    assert_eq!(quota["period_ns"], 100_000_000);
    // by the kernel's own count, whatever else runs on this machine
    assert!(quota["throttled"].as_u64() > Some(3), "{quota}");
    let said = result["comparison"].to_string();
    assert!(
        said.contains("A quota of the control group allows 20.0 ms"),
        "{said}"
    );
}

#[test]
fn interrupts_that_are_moved_away_come_back() {
    if !live("interrupts_that_are_moved_away_come_back") {
        return;
    }
    let (before, cpu) = (placement(), last_cpu().to_string());
    let args = ["--improve", "--move-interrupts", "-d", "200ms", "--cpus"];
    let result = noise(&[&args[..], &[&cpu]].concat());
    assert_eq!(placement(), before);
    let (held, notes) = (result["held"].to_string(), result["notes"].to_string());
    // a machine without another CPU, or with irqbalance, says so
    assert!(
        held.contains("put back") || notes.contains("nothing was moved away"),
        "{held} {notes}"
    );
    let steps = result["rows"].as_array().unwrap();
    let away = |row: &&Value| row["step"] == "pinned, real time, interrupts away";
    assert_eq!(steps.iter().filter(away).count(), 1);
}

#[test]
fn what_a_killed_measurement_has_moved_away_comes_back_with_the_next_start() {
    if !live("what_a_killed_measurement_has_moved_away_comes_back_with_the_next_start") {
        return;
    }
    let (before, cpu) = (placement(), last_cpu().to_string());
    // they are away for a second, which this thread can only miss if it does not look for so long
    let attempt = |_| killed_while_away(&before, &cpu);
    let (was_killed, _) = first_unspoiled(ATTEMPTS, attempt, |(was_killed, blink)| {
        let is_missed = was_killed.is_none() && *blink > AWAY / 2;
        is_missed.then(|| format!("this thread did not look for {blink:?}"))
    });
    // a machine without another CPU, or with irqbalance, moves none
    if !was_killed.expect("what it moves is away while somebody looks") {
        return;
    }
    let next = taillab()
        .args(["noise", "-d", "100ms", "--no-causes", "--cpus", &cpu])
        .output()
        .unwrap();
    let said = String::from_utf8(next.stderr).unwrap();
    assert_eq!(next.status.code(), Some(0), "{said}");
    assert!(
        said.contains("put back what a command that was killed had changed"),
        "{said}"
    );
    assert_eq!(placement(), before);
}

/// How often a measurement is begun until it is killed in time.
const ATTEMPTS: usize = 5;

/// How long interrupts are away.
const AWAY: Duration = Duration::from_secs(1);

/// Kills a measurement while it has interrupts away from a CPU; `false` where it says that it moves none,
/// `None` if it has put them back before. And the longest time between two looks at them.
fn killed_while_away(before: &BTreeMap<PathBuf, String>, cpu: &str) -> (Option<bool>, Duration) {
    let mut command = taillab();
    command
        .args(["noise", "--improve", "--move-interrupts", "-q", "-d", "1s"])
        .args(["--cpus", cpu, "--json"]);
    let mut child = Guarded::spawn(command.stdout(Stdio::piped()));
    let (mut looked, mut blink) = (Instant::now(), Duration::ZERO);
    let mut are_moved = || {
        let are_moved = placement() != *before;
        blink = blink.max(looked.elapsed());
        looked = Instant::now();
        are_moved
    };
    let is_moved = wait_for("interrupts that are moved away", || {
        let ended = child.try_wait().unwrap().is_some();
        (ended || are_moved()).then_some(!ended)
    });
    if is_moved {
        child.kill().unwrap();
        child.wait().unwrap();
        return (are_moved().then_some(true), blink);
    }
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(placement(), *before);
    (
        said.contains("nothing was moved away").then_some(false),
        blink,
    )
}

/// Where each interrupt and each device's receive work may go.
fn placement() -> BTreeMap<PathBuf, String> {
    let below = |folder: &str, file: &str| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path().join(file)).collect()
    };
    let mut files = below("/proc/irq", "smp_affinity_list");
    files.push("/proc/irq/default_smp_affinity".into());
    for device in below("/sys/class/net", "queues") {
        files.extend(below(&device.to_string_lossy(), "rps_cpus"));
    }
    let read = |path: PathBuf| Some((path.clone(), fs::read_to_string(path).ok()?));
    files.into_iter().filter_map(read).collect()
}

#[test]
fn without_the_privilege_real_time_is_refused_and_the_rest_is_not() {
    if !live("without_the_privilege_real_time_is_refused_and_the_rest_is_not") {
        return;
    }
    let (_place, copy) = for_everybody();
    let nobody = |args: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--no-new-privs",
        ]);
        command.args([
            "--bounding-set=-all",
            "--inh-caps=-all",
            "prlimit",
            "--rtprio=0",
        ]);
        command
            .arg(&copy)
            .args(["noise", "-q", "--json", "-d", "100ms"])
            .args(args);
        command.output().unwrap()
    };
    let refused = nobody(&["--policy", "fifo:80"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(5), "{said}");
    assert!(
        said.contains("CAP_SYS_NICE") && said.contains("--policy other"),
        "{said}"
    );
    let other = nobody(&[]);
    let said = String::from_utf8_lossy(&other.stderr).into_owned();
    assert_eq!(other.status.code(), Some(0), "{said}");
    let result: Value = serde_json::from_slice(&other.stdout).unwrap();
    assert!(
        result["notes"]
            .to_string()
            .contains("no causes without privilege")
    );
}

/// The last CPU that may be used: the first has more to do.
fn last_cpu() -> u32 {
    let set = rustix::thread::sched_getaffinity(None).unwrap();
    (0..1_024).rev().find(|&cpu| set.is_set(cpu)).unwrap() as u32
}

/// The kernel's own meter of what takes time from a thread (rtla reads it too), in a tracing instance of
/// our own; dropping it ends it.
struct Osnoise {
    instance: PathBuf,
    /// The CPUs that it ran on before: all instances share this setting.
    cpus: String,
}

impl Osnoise {
    const CPUS: &str = "/sys/kernel/tracing/osnoise/cpus";

    /// Measures this CPU.
    fn on(cpu: u32) -> Self {
        // the file refuses a read whose buffer is smaller than all of it, even at its end
        let mut cpus = [0; 256];
        let length = fs::File::open(Self::CPUS).unwrap().read(&mut cpus).unwrap();
        let cpus = String::from_utf8(cpus[..length].to_vec()).unwrap();
        let name = format!("taillab-test-{}", std::process::id());
        let instance = Path::new("/sys/kernel/tracing/instances").join(name);
        fs::create_dir(&instance).unwrap();
        let meter = Self { instance, cpus };
        fs::write(Self::CPUS, cpu.to_string()).unwrap();
        let set = |file: &str, text: &str| fs::write(meter.instance.join(file), text).unwrap();
        set("events/osnoise/thread_noise/enable", "1");
        set("current_tracer", "osnoise");
        meter
    }

    /// Stops noting. The tracer stays: without it the instance would forget its notes.
    fn stop(&self) {
        fs::write(self.instance.join("tracing_on"), "0").unwrap();
    }

    fn trace(&self) -> String {
        fs::read_to_string(self.instance.join("trace")).unwrap()
    }
}

impl Drop for Osnoise {
    fn drop(&mut self) {
        let _ = fs::write(self.instance.join("current_tracer"), "nop");
        let _ = fs::write(Self::CPUS, self.cpus.trim());
        let _ = fs::remove_dir(&self.instance);
    }
}

/// The lengths of the intervals that the tracer says the hog took, in nanoseconds.
fn hog_in_osnoise(trace: &str) -> Vec<f64> {
    let of_hog = |line: &str| {
        let (_, said) = line.split_once("thread_noise:")?;
        let (_, length) = said.rsplit_once("duration ")?;
        let length = length.strip_suffix(" ns")?.parse().ok()?;
        said.trim_start().starts_with(HOG).then_some(length)
    };
    trace.lines().filter_map(of_hog).collect()
}

/// What the hog used between two times of the monotonic clock, by its own account: CPU time in nanoseconds,
/// bursts.
fn used(seen: &[(u64, u64)], from: u64, to: u64) -> (f64, f64) {
    let during = || seen.iter().filter(|(at, _)| (from..to).contains(at));
    let (first, last) = (during().next().unwrap(), during().next_back().unwrap());
    ((last.1 - first.1) as f64, during().count() as f64)
}

/// Our loop and the kernel's meter run one after the other on the same CPU, since each takes all of it.
/// Each is compared with what the hog used meanwhile: in an emulated guest the two periods differ in
/// everything else.
#[test]
fn the_kernels_own_meter_charges_a_thread_alike() {
    if !live("the_kernels_own_meter_charges_a_thread_alike")
        || !must_be_in_a_guest(Path::new(Osnoise::CPUS).exists())
    {
        return;
    }
    let cpu = last_cpu();
    let hog = hog(cpu, Bursts::LONG);
    let result = noise(&["-d", "3s", "--cpus", &cpu.to_string()]);
    let meter = Osnoise::on(cpu);
    wait_for("the first note", || {
        (!hog_in_osnoise(&meter.trace()).is_empty()).then_some(())
    });
    let from = ns(ClockId::Monotonic);
    let before = hog_in_osnoise(&meter.trace()).len();
    // about as long as the loop ran: until it has noted at least 0.3 s of the hog's time
    wait_for("the kernel's meter", || {
        let noted: f64 = hog_in_osnoise(&meter.trace()).iter().sum();
        (noted > 3e8).then_some(())
    });
    meter.stop();
    let to = ns(ClockId::Monotonic);
    let kernel = hog_in_osnoise(&meter.trace()).split_off(before);
    drop(meter);
    let seen = hog.end();

    let row = &result["rows"][0];
    let began = row["began_ns"].as_u64().unwrap();
    let ended = began + row["watched_ns"].as_u64().unwrap();
    let (mut stolen, mut gaps) = (0.0, 0.0);
    for cause in row["causes"].as_array().unwrap() {
        if cause["culprit"]
            .as_str()
            .unwrap_or_default()
            .starts_with(HOG)
        {
            stolen += cause["stolen_ns"].as_f64().unwrap();
            gaps += cause["gaps"].as_f64().unwrap();
        }
    }
    let ours = used(&seen, began, ended);
    let theirs = used(&seen, from, to);
    let time = (stolen / ours.0) / (kernel.iter().sum::<f64>() / theirs.0);
    let count = (gaps / ours.1) / (kernel.len() as f64 / theirs.1);
    let figures = format!(
        "time {time}, gaps {count}; {stolen} in {gaps} of {ours:?}, {kernel:?} of {theirs:?}"
    );
    assert!(
        (0.67..1.5).contains(&time) && (0.67..1.5).contains(&count),
        "{figures}"
    );
    println!("ours ÷ the kernel's meter: time {time:.2}, gaps {count:.2}");
}
