//! The machine as it was when a result was made.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use taillab_model::doctor::FoundHazard;

use crate::activity::{self, Activity};
use crate::cgroup;
use crate::clock;
use crate::cpus::{self, CpuSet, Placement};
use crate::process::{Stat, numbers_in};
use crate::roots::{Roots, chosen, field, read_optional};

/// The input of a capture.
#[derive(Clone, Debug)]
pub struct CaptureSpec<'a> {
    /// Where /proc, /sys and /etc are.
    pub roots: &'a Roots,
    /// The CPUs of the measurement.
    pub placement: &'a Placement,
    /// The command line as typed.
    pub command_line: Vec<String>,
    /// Version of taillab.
    pub taillab_version: String,
    /// The server's program and version; `None` without a server.
    pub server: Option<ServerFacts>,
    /// Client and server share the loopback interface.
    pub loopback: bool,
    /// How long to watch who else is on the CPUs; zero leaves that out.
    pub observe: Duration,
}

/// Everything about the machine that a reader of a result may ask for. What a
/// machine does not tell is `None` or left out, never guessed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Version of taillab.
    pub taillab_version: String,
    /// The command line as typed.
    pub command_line: Vec<String>,
    /// When this was captured, in seconds since 1970 (UTC).
    pub captured_unix_s: u64,
    /// Name of the host.
    pub hostname: Option<String>,
    /// `PRETTY_NAME` of os-release(5).
    pub distribution: Option<String>,
    /// The kernel.
    pub kernel: Kernel,
    /// The processors.
    pub cpu: Cpu,
    /// Memory.
    pub memory: Memory,
    /// Whether and in what this machine is virtual.
    pub virtualization: Virtualization,
    /// Frequency and sleep states.
    pub power: Power,
    /// Scheduler and timekeeping settings.
    pub scheduling: Scheduling,
    /// Network settings below /proc/sys/net, by name (`core.rmem_max`).
    pub network: BTreeMap<String, String>,
    /// State of each CPU vulnerability's mitigation, by name.
    pub mitigations: BTreeMap<String, String>,
    /// Whether irqbalance runs; it moves interrupts while we measure.
    pub irqbalance_running: bool,
    /// Control groups of this process, as /proc/self/cgroup has them.
    pub cgroup: Vec<String>,
    /// The CPU time that control groups allow, as the kernel writes it (quota and
    /// period in µs); `None` without a limit.
    pub cpu_quota: Option<String>,
    /// Load average over 1, 5 and 15 minutes.
    pub load_average: Option<[f64; 3]>,
    /// The server's program and version; `None` without a server.
    pub server: Option<ServerFacts>,
    /// Who else was on the CPUs just before.
    pub activity: Option<Activity>,
    /// What may spoil the measurement, and the remedies.
    pub hazards: Vec<FoundHazard>,
}

/// The kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// `uname -r`.
    pub release: Option<String>,
    /// `uname -v`: build, preemption model.
    pub version: Option<String>,
    /// The boot command line.
    pub command_line: Option<String>,
    /// Whether the kernel describes its own types (BTF), which the probe needs.
    pub btf: bool,
    /// Lockdown mode (kernel_lockdown(7)).
    pub lockdown: Option<String>,
}

/// The processors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// Model name.
    pub model: Option<String>,
    /// Nominal or current frequency as /proc/cpuinfo has it, in MHz.
    pub mhz: Option<f64>,
    /// CPUs online.
    pub online: Option<CpuSet>,
    /// The number of CPUs online.
    pub online_count: Option<u32>,
    /// The server's.
    pub server: CpuSet,
    /// The load generator's.
    pub client: CpuSet,
    /// CPUs taken from the scheduler at boot (isolcpus).
    pub isolated: Option<String>,
    /// CPUs without a periodic tick (nohz_full).
    pub nohz_full: Option<String>,
    /// Whether cores run more than one thread.
    pub smt_active: Option<bool>,
    /// NUMA nodes.
    pub numa_nodes: Option<u32>,
}

/// Memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// All of it, in bytes.
    pub total_bytes: Option<u64>,
    /// Available without swapping, in bytes.
    pub available_bytes: Option<u64>,
    /// Swap space, in bytes.
    pub swap_total_bytes: Option<u64>,
    /// Transparent huge pages: the choice in force.
    pub transparent_hugepage: Option<String>,
    /// Their defragmentation: the choice in force.
    pub transparent_hugepage_defrag: Option<String>,
}

/// Whether and in what a machine is virtual.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Virtualization {
    /// The CPU says that a hypervisor is there.
    pub hypervisor_flag: Option<bool>,
    /// /sys/hypervisor/type (Xen).
    pub hypervisor_type: Option<String>,
    /// DMI system vendor and product.
    pub product: Option<String>,
}

/// Frequency and sleep states.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Power {
    /// Frequency governor of the server's first CPU.
    pub governor: Option<String>,
    /// Frequency driver.
    pub frequency_driver: Option<String>,
    /// Whether turbo frequencies are allowed.
    pub boost: Option<bool>,
    /// Idle driver.
    pub cpuidle_driver: Option<String>,
    /// Idle governor.
    pub cpuidle_governor: Option<String>,
    /// Names of the idle states of the server's first CPU.
    pub idle_states: Vec<String>,
}

/// Scheduler and timekeeping settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scheduling {
    /// Time that real-time threads may take of each period, in µs; −1: all of it.
    pub rt_runtime_us: Option<i64>,
    /// That period, in µs.
    pub rt_period_us: Option<i64>,
    /// Automatic NUMA balancing: 0 is off.
    pub numa_balancing: Option<i64>,
    /// Autogroup: 1 is on.
    pub autogroup: Option<i64>,
    /// Clock source in use.
    pub clocksource: Option<String>,
    /// Clock sources available.
    pub clocksources_available: Option<String>,
}

/// The server's program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerFacts {
    /// Its program as given.
    pub program: PathBuf,
    /// What it says of its version.
    pub version: Option<String>,
}

impl Environment {
    /// Reads all but the hazards; takes as long as [`CaptureSpec::observe`].
    pub(crate) fn read(spec: &CaptureSpec<'_>) -> Self {
        let Roots { proc, sys, etc } = spec.roots;
        let procs = |path: &str| read_optional(&proc.join(path));
        let Placement { server, client } = spec.placement;
        let watched: CpuSet = server.iter().chain(client.iter()).collect();
        Self {
            taillab_version: spec.taillab_version.clone(),
            command_line: spec.command_line.clone(),
            captured_unix_s: clock::unix_s(),
            hostname: procs("sys/kernel/hostname"),
            distribution: distribution(etc),
            kernel: Kernel {
                release: kernel_release(spec.roots),
                version: procs("sys/kernel/version"),
                command_line: procs("cmdline"),
                btf: sys.join("kernel/btf/vmlinux").exists(),
                lockdown: chosen(&sys.join("kernel/security/lockdown")),
            },
            cpu: Cpu::read(spec),
            memory: Memory::read(spec.roots),
            virtualization: Virtualization::read(spec.roots),
            power: Power::read(sys, server.first().unwrap_or(0)),
            scheduling: Scheduling::read(proc, sys),
            network: network(proc),
            mitigations: files_of(&sys.join("devices/system/cpu/vulnerabilities")),
            irqbalance_running: numbers_in(proc)
                .into_iter()
                .filter_map(|pid| Stat::of(spec.roots, pid))
                .any(|stat| stat.comm == "irqbalance"),
            cgroup: procs("self/cgroup")
                .map(|text| text.lines().map(str::to_owned).collect())
                .unwrap_or_default(),
            cpu_quota: cgroup::cpu_quota(spec.roots).map(|quota| quota.to_string()),
            load_average: procs("loadavg").and_then(|text| {
                let numbers = text.split_ascii_whitespace();
                let averages: Vec<f64> = numbers.map_while(|one| one.parse().ok()).collect();
                averages.first_chunk::<3>().copied()
            }),
            server: spec.server.clone(),
            activity: (!spec.observe.is_zero())
                .then(|| activity::observe(spec.roots, &watched, spec.observe)),
            hazards: Vec::new(),
        }
    }
}

/// `uname -r`.
pub fn kernel_release(roots: &Roots) -> Option<String> {
    read_optional(&roots.proc.join("sys/kernel/osrelease"))
}

/// The frequency governor of a CPU.
pub fn governor(sys: &Path, cpu: u32) -> Option<String> {
    let path = format!("devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
    read_optional(&sys.join(path))
}

impl Cpu {
    fn read(spec: &CaptureSpec<'_>) -> Self {
        let roots = spec.roots;
        let info = fs::read_to_string(roots.proc.join("cpuinfo")).unwrap_or_default();
        let online = cpus::online(roots);
        let cpu = |path: &str| read_optional(&roots.sys.join("devices/system/cpu").join(path));
        Self {
            model: field(&info, &["model name", "Model", "cpu model", "machine"]),
            mhz: field(&info, &["cpu MHz"]).and_then(|mhz| mhz.parse().ok()),
            online_count: online.as_ref().map(|set| set.len() as u32),
            online,
            server: spec.placement.server.clone(),
            client: spec.placement.client.clone(),
            isolated: cpu("isolated"),
            nohz_full: cpu("nohz_full").filter(|list| list != "(null)"),
            smt_active: cpu("smt/active").map(|active| active == "1"),
            numa_nodes: read_optional(&roots.sys.join("devices/system/node/online"))
                .and_then(|list| Some(list.parse::<CpuSet>().ok()?.len() as u32)),
        }
    }
}

impl Memory {
    /// What the kernel says now.
    pub fn read(Roots { proc, sys, .. }: &Roots) -> Self {
        let info = fs::read_to_string(proc.join("meminfo")).unwrap_or_default();
        let bytes = |name: &str| {
            let kib: u64 = field(&info, &[name])?.strip_suffix(" kB")?.parse().ok()?;
            Some(kib * 1024)
        };
        let pages = sys.join("kernel/mm/transparent_hugepage");
        Self {
            total_bytes: bytes("MemTotal"),
            available_bytes: bytes("MemAvailable"),
            swap_total_bytes: bytes("SwapTotal"),
            transparent_hugepage: chosen(&pages.join("enabled")),
            transparent_hugepage_defrag: chosen(&pages.join("defrag")),
        }
    }
}

impl Virtualization {
    /// The hypervisor's name, if this is a virtual machine. The product alone does not tell: a real
    /// machine has one too.
    pub fn hypervisor(&self) -> Option<String> {
        let is_virtual = self.hypervisor_flag == Some(true) || self.hypervisor_type.is_some();
        let name = self.product.as_ref().or(self.hypervisor_type.as_ref());
        is_virtual.then(|| name.map_or("a hypervisor", String::as_str).to_owned())
    }

    /// Reads it from /proc and /sys.
    pub fn read(Roots { proc, sys, .. }: &Roots) -> Self {
        let info = fs::read_to_string(proc.join("cpuinfo")).unwrap_or_default();
        let dmi = |name: &str| read_optional(&sys.join("class/dmi/id").join(name));
        let product: Vec<String> = [dmi("sys_vendor"), dmi("product_name")]
            .into_iter()
            .flatten()
            .collect();
        Self {
            // only x86 has the flag
            hypervisor_flag: field(&info, &["flags"]).map(|flags| {
                flags
                    .split_ascii_whitespace()
                    .any(|flag| flag == "hypervisor")
            }),
            hypervisor_type: read_optional(&sys.join("hypervisor/type")),
            product: (!product.is_empty()).then(|| product.join(" ")),
        }
    }
}

impl Power {
    fn read(sys: &Path, server_cpu: u32) -> Self {
        let all = sys.join("devices/system/cpu");
        let cpu = all.join(format!("cpu{server_cpu}"));
        let boost = read_optional(&all.join("cpufreq/boost")).map(|on| on == "1");
        let no_turbo = read_optional(&all.join("intel_pstate/no_turbo")).map(|off| off == "0");
        let idle_state =
            |number: u32| read_optional(&cpu.join(format!("cpuidle/state{number}/name")));
        Self {
            governor: governor(sys, server_cpu),
            frequency_driver: read_optional(&cpu.join("cpufreq/scaling_driver")),
            boost: boost.or(no_turbo),
            cpuidle_driver: read_optional(&all.join("cpuidle/current_driver")),
            cpuidle_governor: read_optional(&all.join("cpuidle/current_governor"))
                .or_else(|| read_optional(&all.join("cpuidle/current_governor_ro"))),
            idle_states: (0..).map_while(idle_state).collect(),
        }
    }
}

impl Scheduling {
    fn read(proc: &Path, sys: &Path) -> Self {
        let number = |name: &str| {
            read_optional(&proc.join("sys/kernel").join(name))?
                .parse()
                .ok()
        };
        let clock = sys.join("devices/system/clocksource/clocksource0");
        Self {
            rt_runtime_us: number("sched_rt_runtime_us"),
            rt_period_us: number("sched_rt_period_us"),
            numa_balancing: number("numa_balancing"),
            autogroup: number("sched_autogroup_enabled"),
            clocksource: read_optional(&clock.join("current_clocksource")),
            clocksources_available: read_optional(&clock.join("available_clocksource")),
        }
    }
}

/// Network settings that change latency, of the namespace we are in.
const NETWORK: [&str; 16] = [
    "core/busy_poll",
    "core/busy_read",
    "core/default_qdisc",
    "core/dev_weight",
    "core/netdev_budget",
    "core/netdev_budget_usecs",
    "core/netdev_max_backlog",
    "core/rmem_default",
    "core/rmem_max",
    "core/rps_sock_flow_entries",
    "core/skb_defer_max",
    "core/wmem_default",
    "core/wmem_max",
    "ipv4/udp_early_demux",
    "ipv4/udp_mem",
    "ipv4/udp_rmem_min",
];

fn network(proc: &Path) -> BTreeMap<String, String> {
    let value = |name: &&str| {
        let text = read_optional(&proc.join("sys/net").join(name))?;
        Some((name.replace('/', "."), text.replace('\t', " ")))
    };
    NETWORK.iter().filter_map(value).collect()
}

/// Every readable file of a folder, by name.
fn files_of(folder: &Path) -> BTreeMap<String, String> {
    fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            Some((
                path.file_name()?.to_str()?.to_owned(),
                read_optional(&path)?,
            ))
        })
        .collect()
}

fn distribution(etc: &Path) -> Option<String> {
    let text = fs::read_to_string(etc.join("os-release")).ok()?;
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(value.trim_matches(['"', '\'']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capture(files: &[(&str, &str)]) -> Environment {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let placement = Placement {
            server: CpuSet::single(0),
            client: CpuSet::single(1),
        };
        Environment::read(&CaptureSpec {
            roots: &Roots::below(folder.path()),
            placement: &placement,
            command_line: vec!["taillab".into(), "run".into()],
            taillab_version: "1.2.3".into(),
            server: None,
            loopback: false,
            observe: Duration::ZERO,
        })
    }

    #[test]
    fn a_machine_that_tells_nothing_is_no_error() {
        let environment = capture(&[]);
        assert_eq!(environment.kernel.release, None);
        assert_eq!(environment.cpu.online_count, None);
        assert_eq!(environment.hazards, []);
        let json = serde_json::to_string(&environment).unwrap();
        assert_eq!(
            serde_json::from_str::<Environment>(&json).unwrap(),
            environment
        );
    }

    #[test]
    fn facts_are_read() {
        let cpu = "sys/devices/system/cpu";
        let environment = capture(&[
            ("proc/sys/kernel/osrelease", "6.18.0\n"),
            ("proc/sys/kernel/sched_rt_runtime_us", "950000\n"),
            ("proc/self/cgroup", "0::/box\n"),
            ("sys/fs/cgroup/box/cpu.max", "50000 100000\n"),
            (
                "proc/cpuinfo",
                "model name\t: Fast CPU\nflags\t\t: fpu hypervisor\n",
            ),
            (
                "proc/meminfo",
                "MemTotal:    2048 kB\nMemAvailable:  1024 kB\n",
            ),
            ("proc/loadavg", "0.50 0.25 0.10 1/100 4242\n"),
            ("proc/sys/net/ipv4/udp_mem", "1\t2\t3\n"),
            (
                "proc/77/stat",
                &format!("77 (irqbalance) S {}", "0 ".repeat(40)),
            ),
            (&format!("{cpu}/online"), "0-3\n"),
            (
                &format!("{cpu}/cpu0/cpufreq/scaling_governor"),
                "powersave\n",
            ),
            (&format!("{cpu}/cpu0/cpuidle/state1/name"), "C1\n"),
            (&format!("{cpu}/cpu0/cpuidle/state0/name"), "POLL\n"),
            (&format!("{cpu}/vulnerabilities/meltdown"), "Not affected\n"),
            (
                "sys/kernel/mm/transparent_hugepage/enabled",
                "always [madvise] never\n",
            ),
            (
                "sys/devices/system/clocksource/clocksource0/current_clocksource",
                "hpet\n",
            ),
            ("etc/os-release", "ID=x\nPRETTY_NAME=\"X Linux 1\"\n"),
        ]);
        assert_eq!(environment.kernel.release.as_deref(), Some("6.18.0"));
        assert_eq!(environment.distribution.as_deref(), Some("X Linux 1"));
        assert_eq!(environment.cpu.model.as_deref(), Some("Fast CPU"));
        assert_eq!(environment.cpu.online_count, Some(4));
        assert_eq!(environment.memory.total_bytes, Some(2 << 20));
        assert_eq!(
            environment.memory.transparent_hugepage.as_deref(),
            Some("madvise")
        );
        assert_eq!(environment.load_average, Some([0.5, 0.25, 0.1]));
        assert_eq!(environment.network["ipv4.udp_mem"], "1 2 3");
        assert_eq!(environment.mitigations["meltdown"], "Not affected");
        assert_eq!(environment.power.idle_states, ["POLL", "C1"]);
        assert_eq!(environment.power.governor.as_deref(), Some("powersave"));
        assert_eq!(environment.cgroup, ["0::/box"]);
        assert_eq!(environment.cpu_quota.as_deref(), Some("50000 100000"));
        assert!(environment.irqbalance_running);
        assert_eq!(environment.virtualization.hypervisor_flag, Some(true));
        assert_eq!(environment.scheduling.rt_runtime_us, Some(950_000));
        let clock = environment.scheduling.clocksource;
        assert_eq!(clock.as_deref(), Some("hpet"));
    }

    #[test]
    fn only_a_virtual_machine_has_a_hypervisor() {
        let machine = |flag, kind: Option<&str>, product: Option<&str>| Virtualization {
            hypervisor_flag: flag,
            hypervisor_type: kind.map(str::to_owned),
            product: product.map(str::to_owned),
        };
        let named = |flag, kind, product| machine(flag, kind, product).hypervisor();
        assert_eq!(named(Some(false), None, Some("Dell PowerEdge")), None);
        assert_eq!(named(None, None, None), None);
        let cloud = named(Some(true), None, Some("QEMU Standard PC"));
        assert_eq!(cloud.as_deref(), Some("QEMU Standard PC"));
        assert_eq!(named(None, Some("xen"), None).as_deref(), Some("xen"));
        let nameless = named(Some(true), None, None);
        assert_eq!(nameless.as_deref(), Some("a hypervisor"));
    }

    #[test]
    fn this_machine_tells_the_least_that_every_linux_does() {
        let allowed = cpus::allowed().unwrap();
        let cpu = CpuSet::single(allowed.first().unwrap());
        let environment = Environment::read(&CaptureSpec {
            roots: &Roots::default(),
            placement: &Placement {
                server: cpu.clone(),
                client: cpu,
            },
            command_line: Vec::new(),
            taillab_version: String::new(),
            server: Some(ServerFacts {
                program: "no-such-server".into(),
                version: None,
            }),
            loopback: false,
            observe: Duration::from_millis(50),
        });
        assert!(environment.kernel.release.is_some());
        assert!(environment.cpu.online_count.unwrap() >= 1);
        assert!(environment.memory.total_bytes.unwrap() > 0);
        assert!(environment.activity.unwrap().observed_s > 0.0);
        assert_eq!(environment.server.unwrap().version, None);
    }
}
