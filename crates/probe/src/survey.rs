//! What this kernel allows the probe to do, found by trying everything once.

use std::collections::HashSet;
use std::io;

use libbpf_rs::{MapHandle, MapType, libbpf_sys};
use rustix::mm::ProtFlags;
use taillab_model::MiddleStamps;
use taillab_model::doctor::{Check, CheckState, Group, HookTrial, Survey};

use crate::hooks::{Candidate, Refusal, Stamp, Stamps};
use crate::object::{self, CheckedSpec};
use crate::ring::Mapping;
use crate::{Addresses, Devices, Disturbances, ProbeError, ProbeSpec, ServerProcesses, Transport};

/// Tries every hook of both transports, and the other features that the probe needs.
///
/// Every program is loaded and attached for a moment only, and watches no existing device.
///
/// # Errors
/// [`ProbeError`] if nothing can be tried: no privilege, no type information.
pub fn survey() -> Result<Survey, ProbeError> {
    object::check_kernel()?;
    let mut hooks = Vec::new();
    for (name, transport) in [("udp", Transport::Udp), ("tcp", Transport::Tcp)] {
        let checked = object::check(&nobody(transport))?;
        hooks.extend(trials(name, &checked.stamps, |programs| {
            attempt(&checked, programs)
        }));
    }
    Ok(Survey {
        features: vec![mapped_array(), read_in_place()],
        hooks,
    })
}

/// A server that cannot exist: inode numbers of namespaces begin at 0xf0000000 (`PROC_DYNAMIC_FIRST`).
fn nobody(transport: Transport) -> ProbeSpec {
    ProbeSpec {
        devices: Devices::all_in(1),
        queues: false,
        others: Vec::new(),
        served_ports: Vec::new(),
        transport,
        server_port: 9,
        addresses: Addresses::All,
        server: ServerProcesses::InNamespace,
        server_cpus: Vec::new(),
        generator_cpus: Vec::new(),
        stamps: MiddleStamps::All,
        disturbances: Disturbances::ALL,
        payload_bytes: 0,
        ring_bytes_per_cpu: 0,
    }
}

fn attempt(checked: &CheckedSpec, programs: &[&'static str]) -> Result<(), Refusal> {
    object::try_load(checked, programs).map(drop)
}

/// Every candidate alone, then the best of each stamp together.
fn trials(
    transport: &str,
    stamps: &Stamps,
    mut attempt: impl FnMut(&[&'static str]) -> Result<(), Refusal>,
) -> Vec<HookTrial> {
    let mut trials = Vec::new();
    let mut together = Vec::new();
    for stamp in stamps {
        let mut served = false;
        for candidate in stamp.candidates {
            let refusal = attempt(candidate.programs).err();
            let used = refusal.is_none() && !served;
            if used {
                together.extend_from_slice(candidate.programs);
            }
            trials.push(trial(transport, stamp, candidate, refusal, used, served));
            served |= used;
        }
    }
    let mut seen = HashSet::new();
    together.retain(|program| seen.insert(*program));
    let refusal = (!together.is_empty())
        .then(|| attempt(&together).err())
        .flatten();
    trials.push(HookTrial {
        transport: transport.into(),
        stamp: "all".into(),
        hook: "together".into(),
        works: refusal.is_none() && !together.is_empty(),
        used: refusal.is_none() && !together.is_empty(),
        lost_precision: None,
        without: None,
        remedy: refusal.as_ref().map(|refusal| remedy("", refusal)),
        refusal: refusal.as_ref().map(in_words),
    });
    trials
}

fn trial(
    transport: &str,
    stamp: &Stamp,
    candidate: &Candidate,
    refusal: Option<Refusal>,
    used: bool,
    better_works: bool,
) -> HookTrial {
    HookTrial {
        transport: transport.into(),
        stamp: stamp.name.into(),
        hook: candidate.hook.into(),
        works: refusal.is_none(),
        used,
        lost_precision: candidate.lost_precision.map(Into::into),
        without: stamp.without.map(Into::into),
        remedy: (refusal.as_ref())
            .filter(|_| !better_works)
            .map(|refusal| remedy(candidate.hook, refusal)),
        refusal: refusal.as_ref().map(in_words),
    }
}

/// The kernel's answers that say something about a hook (`errno(3)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// There is no such function or tracepoint.
    Absent,
    /// A policy forbids it.
    Forbidden,
    /// The kernel cannot put a program there.
    Unsupported,
    /// No memory.
    Memory,
    /// Anything else.
    Other,
}

fn answer(refusal: &Refusal) -> Answer {
    if refusal.out_of_memory {
        return Answer::Memory;
    }
    match errno(&refusal.source) {
        // ENOENT, ESRCH: libbpf finds no such name in the kernel's types
        Some(2 | 3) => Answer::Absent,
        // EPERM
        Some(1) => Answer::Forbidden,
        // EBUSY, ENODEV, EOPNOTSUPP, and the kernel's own ENOTSUPP
        Some(16 | 19 | 95 | 524) => Answer::Unsupported,
        _ => Answer::Other,
    }
}

/// The error number, which libbpf-rs has turned into text.
fn errno(error: &io::Error) -> Option<i32> {
    error.raw_os_error().or_else(|| {
        let text = error.to_string();
        let (_, number) = text.rsplit_once("(os error ")?;
        number.split(')').next()?.parse().ok()
    })
}

fn in_words(refusal: &Refusal) -> String {
    let words = match answer(refusal) {
        Answer::Absent => "this kernel has no such hook",
        Answer::Forbidden => "the kernel forbids it",
        Answer::Unsupported => "the kernel cannot attach a program there",
        Answer::Memory => "there is not enough memory for it",
        Answer::Other => "the kernel refuses it",
    };
    let text = refusal.source.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    format!("{words} ({}: {text})", refusal.phase)
}

fn remedy(hook: &str, refusal: &Refusal) -> String {
    let (kind, name) = hook.split_once('/').unwrap_or((hook, ""));
    match (answer(refusal), kind, name) {
        (Answer::Memory, ..) => "free some memory and try again".into(),
        (Answer::Absent, _, "sk_data_ready" | "sock_recv_length") => {
            "boot Linux 6.3 or later, which has it".into()
        }
        (Answer::Absent, _, "tcp_sendmsg_locked") => {
            "boot Linux 6.16 or later, which has it".into()
        }
        // it is used together with io_uring_submit_req
        (Answer::Absent, _, "sys_enter") => {
            "boot Linux 6.4 or later, built with CONFIG_FTRACE_SYSCALLS=y".into()
        }
        (Answer::Absent, _, "sys_enter without io_uring" | "sys_exit") => {
            "boot a kernel built with CONFIG_FTRACE_SYSCALLS=y".into()
        }
        (Answer::Absent, "cgroup", _) => {
            "mount the cgroup tree: mkdir /run/cgroup2 && mount -t cgroup2 none /run/cgroup2; a \
             container has only a part of it, so run taillab outside"
                .into()
        }
        (Answer::Forbidden, "cgroup", _) => "give taillab CAP_NET_ADMIN too".into(),
        (Answer::Absent, "perf", _) => {
            "boot a kernel built with CONFIG_PERF_EVENTS=y, like those of distributions".into()
        }
        (Answer::Absent, "tp_btf", _) => {
            "boot a kernel built with CONFIG_TRACEPOINTS=y, like those of distributions".into()
        }
        (Answer::Forbidden, "fentry" | "fexit", _) => {
            "a policy of this kernel forbids fentry: boot a kernel without that policy (see \
             /sys/kernel/security/lsm and lockdown)"
                .into()
        }
        (Answer::Forbidden, ..) => {
            "boot without lockdown=confidentiality, and let no security module forbid eBPF".into()
        }
        (Answer::Unsupported, "fentry" | "fexit", _) => {
            "boot a kernel built with CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS=y".into()
        }
        _ => "please report it with your kernel's version (uname -rv)".into(),
    }
}

/// Checks that user space can map an eBPF array, as it maps the rings.
fn mapped_array() -> Check {
    const NAME: &str = "event rings";
    /// The default ring of one CPU, in 16-byte events.
    const SLOTS: u32 = 4 << 20 >> 4;
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
        map_flags: libbpf_sys::BPF_F_MMAPABLE,
        ..Default::default()
    };
    let made = MapHandle::create(MapType::Array, Some("trial"), 4, 16, SLOTS, &options)
        .map_err(|error| object::as_io(&error))
        .and_then(|map| Mapping::<[u64; 2]>::new(&map, SLOTS as usize, ProtFlags::READ));
    match made {
        Ok(_) => Check::ok(Group::Probe, NAME, "an array of 4 MiB made and mapped"),
        Err(error) => Check::not_ok(
            Group::Probe,
            NAME,
            CheckState::Missing,
            format!("an array of 4 MiB cannot be made and mapped ({error})"),
            "free memory, raise `ulimit -l` (kernels before 5.11), or use a smaller --ring-bytes",
        ),
    }
}

fn read_in_place() -> Check {
    const NAME: &str = "reading in place";
    if object::has_function("bpf_rdonly_cast") {
        Check::ok(Group::Probe, NAME, "kfunc bpf_rdonly_cast")
    } else {
        Check::not_ok(
            Group::Probe,
            NAME,
            CheckState::Warning,
            "no kfunc bpf_rdonly_cast: packet headers are copied, which takes about 40 ns more each",
            "boot Linux 6.2 or later, which has it",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hooks;

    fn udp() -> Vec<&'static Stamp> {
        hooks::stamps(&nobody(Transport::Udp))
    }

    fn refused(errno: i32) -> Refusal {
        Refusal {
            phase: "loading",
            out_of_memory: false,
            source: io::Error::from_raw_os_error(errno),
        }
    }

    fn survey_of(refused_programs: &[&str], errno: i32) -> Vec<HookTrial> {
        trials("udp", &udp(), |programs| {
            match programs.iter().any(|p| refused_programs.contains(p)) {
                true => Err(refused(errno)),
                false => Ok(()),
            }
        })
    }

    fn of<'t>(trials: &'t [HookTrial], stamp: &str) -> Vec<&'t HookTrial> {
        trials.iter().filter(|trial| trial.stamp == stamp).collect()
    }

    #[test]
    fn every_candidate_is_tried_and_the_best_that_works_is_used() {
        let all = survey_of(&[], 0);
        let candidates: usize = udp().iter().map(|stamp| stamp.candidates.len()).sum();
        assert_eq!(all.len(), candidates + 1);
        assert!(
            all.iter()
                .all(|trial| trial.works && trial.refusal.is_none())
        );
        let mut rest = all.iter();
        for stamp in udp() {
            let used: Vec<bool> = rest
                .by_ref()
                .take(stamp.candidates.len())
                .map(|trial| trial.used)
                .collect();
            assert!(used[0] && !used[1..].contains(&true), "{used:?}");
        }
    }

    #[test]
    fn a_refusal_that_matters_has_a_remedy_and_one_that_does_not_has_none() {
        // what Linux 6.1 lacks
        let old = survey_of(&["enqueued", "read_done"], 3);
        let t2 = of(&old, "T2");
        assert!(!t2[0].works && t2[1].used);
        assert!(t2[0].remedy.as_ref().unwrap().contains("6.3"), "{t2:?}");
        assert!(t2[0].refusal.as_ref().unwrap().contains("no such hook"));
        let no_fentry = survey_of(&["to_wake_reader", "enqueued_late"], 1);
        let t2 = of(&no_fentry, "T2");
        assert!(t2[0].used && !t2[1].works && t2[1].remedy.is_none());
        assert!(t2[1].refusal.as_ref().unwrap().contains("forbids"));
    }

    #[test]
    fn the_hooks_of_system_calls_name_what_the_kernel_must_be_built_with() {
        for hook in [
            "tp_btf/sys_enter",
            "tp_btf/sys_enter without io_uring",
            "tp_btf/sys_exit",
        ] {
            let known = (udp().iter())
                .flat_map(|stamp| stamp.candidates)
                .any(|candidate| candidate.hook == hook);
            let remedy = remedy(hook, &refused(2));
            assert!(
                known && remedy.contains("CONFIG_FTRACE_SYSCALLS"),
                "{hook}: {remedy}"
            );
            // since Linux 6.4, io_uring has a hook
            assert_eq!(
                remedy.contains("6.4"),
                hook.ends_with("sys_enter"),
                "{remedy}"
            );
        }
    }

    #[test]
    fn where_nothing_works_every_best_hook_says_what_to_do() {
        let everything: Vec<&str> = (udp().iter())
            .flat_map(|stamp| stamp.candidates)
            .flat_map(|candidate| candidate.programs.iter().copied())
            .collect();
        for errno in [1, 2, 16, 22, 524] {
            let none = survey_of(&everything, errno);
            assert!(none.iter().all(|trial| !trial.works && !trial.used));
            let said = none.iter().filter(|trial| trial.stamp != "all");
            assert!(said.clone().count() > 5);
            for trial in said {
                assert!(
                    trial.remedy.is_some() && trial.refusal.is_some(),
                    "{trial:?}"
                );
            }
        }
    }
}
