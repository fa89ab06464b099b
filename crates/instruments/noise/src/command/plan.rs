//! What is to be measured, and why it may not be possible here.

use taillab_console::exit::Failure;
use taillab_console::fail::host;
use taillab_experiment::noise::Phase;
use taillab_host::environment::{Virtualization, governor};
use taillab_host::noise::{NoiseError, Policy, RtThrottle, tsc};
use taillab_host::{CpuSet, Roots, cpus};
use taillab_model::Nanos;
use taillab_model::noise::{LoopKind, ReadStyle};

use crate::args::{LoopName, NoiseArgs, StyleName};

/// The largest threshold that the loops in the kernel support.
const KERNEL_THRESHOLD: Nanos = Nanos::new(4_096);

/// All phases, and what they do to the machine.
#[derive(Debug)]
pub struct NoisePlan {
    pub phases: Vec<Phase>,
    /// What the loops hold while they run, in sentences for the result.
    pub held: Vec<String>,
    pub notes: Vec<String>,
    /// The CPUs that this process may use.
    pub usable: CpuSet,
}

/// Plans the phases, and refuses what cannot be measured here.
pub fn plan(args: &NoiseArgs, roots: &Roots) -> Result<NoisePlan, Failure> {
    tsc::check(roots).map_err(host)?;
    let usable = cpus::usable(args.cpus.as_ref()).map_err(host)?;
    let chosen = choose(args.cpus.as_ref(), &usable, roots)?;
    let phases = phases(args, &chosen)?;
    let real_time = phases.iter().any(|phase| phase.policy.is_real_time());
    let throttle = RtThrottle::read(roots);
    if real_time {
        let all = chosen == usable;
        let unlimited = throttle.is_some_and(|throttle| !throttle.is_active());
        if all && unlimited {
            return Err(host(NoiseError::WouldHang));
        }
        // now rather than after the first phase
        try_policy(&phases)?;
    }
    let mut notes = notes(roots, &chosen, real_time, throttle);
    notes.extend(own_noise(&phases, &usable));
    Ok(NoisePlan {
        held: held(&phases),
        notes,
        usable,
        phases,
    })
}

fn choose(wanted: Option<&CpuSet>, usable: &CpuSet, roots: &Roots) -> Result<CpuSet, Failure> {
    let Some(wanted) = wanted else {
        return Ok(usable.clone());
    };
    if let Some(online) = cpus::online(roots) {
        let offline = wanted.difference(&online);
        if !offline.is_empty() {
            return Err(host(NoiseError::Offline { offline, online }));
        }
    }
    let unusable = wanted.difference(usable);
    if !unusable.is_empty() {
        let usable = usable.clone();
        return Err(host(cpus::CpuError::Unusable { unusable, usable }));
    }
    Ok(wanted.clone())
}

fn phases(args: &NoiseArgs, chosen: &CpuSet) -> Result<Vec<Phase>, Failure> {
    let phases = asked(args, chosen);
    let in_kernel = phases.iter().any(|phase| phase.kind != LoopKind::User);
    if in_kernel && args.threshold > KERNEL_THRESHOLD {
        return Err(Failure::usage(format!(
            "the loops in the kernel support a threshold of at most {KERNEL_THRESHOLD}: give \
             --threshold 4us or less, or run only loops in user space"
        )));
    }
    Ok(phases)
}

/// The phases that the command line asks for.
fn asked(args: &NoiseArgs, chosen: &CpuSet) -> Vec<Phase> {
    let style = match args.style {
        StyleName::Single => ReadStyle::Single,
        StyleName::Double => ReadStyle::Double,
    };
    let plain = Phase {
        step: String::new(),
        kind: LoopKind::User,
        style,
        cpus: Some(chosen.clone()),
        policy: args.policy,
        threshold: args.threshold,
        length: args.duration,
        interrupts_away: false,
    };
    if args.improve {
        return improvements(&plain, chosen, args.move_interrupts);
    }
    if args.by_cpus {
        let numbers: Vec<u32> = chosen.iter().collect();
        let step = |n: usize| Phase {
            step: match n {
                1 => "1 CPU busy".to_owned(),
                n => format!("{n} CPUs busy"),
            },
            cpus: Some(numbers[..n].iter().copied().collect()),
            ..plain.clone()
        };
        // doubled each time: on a machine with many CPUs, all numbers would take too long
        let all = numbers.len();
        let tried = (1..=all).filter(|n| n.is_power_of_two() || *n == all);
        return tried.map(step).collect();
    }
    let mut kinds: Vec<LoopKind> = Vec::new();
    for name in &args.loops {
        kinds.extend_from_slice(match name {
            LoopName::User => &[LoopKind::User],
            LoopName::Kernel => &[LoopKind::Kernel],
            LoopName::Masked => &[LoopKind::Masked],
            LoopName::All => &[LoopKind::User, LoopKind::Kernel, LoopKind::Masked],
        });
    }
    (kinds.into_iter())
        .map(|kind| Phase {
            kind,
            ..plain.clone()
        })
        .collect()
}

/// The paper's list, from nothing to everything.
fn improvements(plain: &Phase, chosen: &CpuSet, move_interrupts: bool) -> Vec<Phase> {
    let one = chosen.first().map(CpuSet::single);
    let fifo = match plain.policy {
        Policy::Other => Policy::Fifo(80),
        fifo => fifo,
    };
    let step = |step: &str, cpus: Option<&CpuSet>, policy| Phase {
        step: step.to_owned(),
        kind: LoopKind::User,
        style: ReadStyle::Single,
        cpus: cpus.cloned(),
        policy,
        ..plain.clone()
    };
    let pinned = one.as_ref();
    let mut steps = vec![
        step("as it comes", None, Policy::Other),
        step("real time", None, fifo),
        step("pinned", pinned, Policy::Other),
        step("pinned, real time", pinned, fifo),
        Phase {
            style: ReadStyle::Double,
            ..step("pinned, real time, double read", pinned, fifo)
        },
    ];
    if move_interrupts {
        steps.push(Phase {
            interrupts_away: true,
            ..step("pinned, real time, interrupts away", pinned, fifo)
        });
    }
    steps.push(Phase {
        kind: LoopKind::Masked,
        ..step("interrupts off", pinned, Policy::Other)
    });
    steps
}

fn try_policy(phases: &[Phase]) -> Result<(), Failure> {
    for phase in phases {
        let policy = phase.policy;
        let tried = std::thread::spawn(move || policy.apply()).join();
        tried.unwrap_or(Ok(())).map_err(host)?;
    }
    Ok(())
}

fn held(phases: &[Phase]) -> Vec<String> {
    let mut held = Vec::new();
    let fifo = (phases.iter()).find(|phase| phase.policy.is_real_time());
    if let Some(phase) = fifo {
        held.push(format!(
            "SCHED_FIFO ({}) for its own loops, while they ran",
            phase.policy
        ));
    }
    if phases.iter().any(|phase| phase.kind == LoopKind::Masked) {
        held.push("interrupts off on the measured CPUs, for at most 500 µs at a time".to_owned());
    }
    if phases.iter().any(|phase| phase.kind == LoopKind::Kernel) {
        held.push("the measured CPUs from other threads, for up to 50 ms at a time".to_owned());
    }
    held
}

/// Where a phase measures every CPU, our own work is part of the noise.
fn own_noise(phases: &[Phase], usable: &CpuSet) -> Option<String> {
    let leaves_none = |phase: &Phase| phase.cpus.as_ref() == Some(usable);
    phases.iter().any(leaves_none).then(|| {
        "all CPUs that taillab may use were measured at once, so its own thread, which collects the \
         gaps four times a second, ran on them too (as a cause it is marked as taillab's own): leave \
         a CPU out (-C) to keep it off the others"
            .to_owned()
    })
}

fn notes(
    roots: &Roots,
    chosen: &CpuSet,
    real_time: bool,
    throttle: Option<RtThrottle>,
) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(name) = Virtualization::read(roots).hypervisor() {
        notes.push(format!(
            "this kernel runs in a virtual machine ({name}): its loop in user space is the paper's \
             row \"TSC - From VM User Space\", and time lost while nothing ran here went to the \
             hypervisor or the host"
        ));
    }
    if let Some(throttle) = throttle
        && let Some(runtime_us) = throttle.runtime_us
        && throttle.is_active()
        && real_time
    {
        notes.push(format!(
            "RT throttling is active (kernel.sched_rt_runtime_us {runtime_us} of {} µs): a \
             real-time loop that never sleeps is held back when ordinary threads wait, and these \
             gaps come from the setting, not from the machine",
            throttle.period_us
        ));
    }
    for (name, meaning) in [
        (
            "isolated",
            "isolated (isolcpus): ordinary threads run there only if they are pinned to it, so these \
             figures are the best of this machine, not its usual ones",
        ),
        (
            "nohz_full",
            "without a tick while one thread runs (nohz_full): the tick is missing from its figures",
        ),
    ] {
        let there = cpus::listed(roots, name)
            .map(|cpus| cpus.intersection(chosen))
            .filter(|cpus| !cpus.is_empty());
        if let Some(cpus) = there {
            notes.push(format!("CPU {cpus} is {meaning}"));
        }
    }
    if let Some(governor) = governor(&roots.sys, chosen.first().unwrap_or(0))
        && governor != "performance"
    {
        notes.push(format!(
            "the CPU's frequency may change (governor {governor}): the counter's does not, but a turn \
             of the loop takes longer at a lower frequency"
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command, FromArgMatches};
    use taillab_console::exit::Exit;

    use super::*;

    fn parsed(words: &[&str]) -> Result<NoiseArgs, clap::Error> {
        let command = NoiseArgs::augment_args(Command::new("noise"));
        let matches = command.try_get_matches_from(["noise"].iter().chain(words))?;
        NoiseArgs::from_arg_matches(&matches)
    }

    fn args(words: &[&str]) -> NoiseArgs {
        parsed(words).unwrap()
    }

    fn planned(words: &[&str]) -> Vec<Phase> {
        let cpus = "0-2".parse().unwrap();
        phases(&args(words), &cpus).unwrap()
    }

    #[test]
    fn all_loops_run_one_after_the_other_on_all_cpus() {
        let phases = planned(&["--loops", "all", "-d", "3s"]);
        let kinds: Vec<LoopKind> = phases.iter().map(|phase| phase.kind).collect();
        assert_eq!(kinds, [LoopKind::User, LoopKind::Kernel, LoopKind::Masked]);
        assert!(
            phases
                .iter()
                .all(|phase| phase.length == Nanos::from_secs(3)
                    && phase.cpus.as_ref().is_some_and(|cpus| cpus.len() == 3))
        );
    }

    #[test]
    fn cpus_are_loaded_one_after_the_other() {
        let phases = planned(&["--by-cpus"]);
        let busy = phases
            .iter()
            .map(|p| p.cpus.as_ref().map_or(0, CpuSet::len));
        assert_eq!(busy.collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(phases[2].step, "3 CPUs busy");
    }

    #[test]
    fn on_many_cpus_the_number_of_loaded_ones_doubles() {
        let cpus = "0-11,16-27".parse().unwrap();
        let phases = phases(&args(&["--by-cpus"]), &cpus).unwrap();
        let busy = phases
            .iter()
            .map(|p| p.cpus.as_ref().map_or(0, CpuSet::len));
        assert_eq!(busy.collect::<Vec<_>>(), [1, 2, 4, 8, 16, 24]);
    }

    #[test]
    fn the_improvements_begin_with_nothing() {
        let phases = planned(&["--improve"]);
        assert_eq!(
            (phases[0].cpus.as_ref(), phases[0].policy),
            (None, Policy::Other)
        );
        assert_eq!(phases[3].policy, Policy::Fifo(80));
        assert!(phases.iter().any(|phase| phase.kind == LoopKind::Masked));
    }

    #[test]
    fn where_every_cpu_is_measured_our_own_work_is_said() {
        let said = |words: &[&str], usable: &str| {
            own_noise(&planned(words), &usable.parse().unwrap()).is_some()
        };
        assert!(said(&[], "0-2") && said(&["--by-cpus"], "0-2"));
        assert!(!said(&["--improve"], "0-2") && !said(&[], "0-3"));
    }

    #[test]
    fn interrupts_are_moved_only_when_told_so() {
        let away = |words: &[&str]| planned(words).iter().filter(|p| p.interrupts_away).count();
        assert_eq!(away(&["--improve"]), 0);
        assert_eq!(away(&["--improve", "--move-interrupts"]), 1);
        assert!(parsed(&["--move-interrupts"]).is_err());
    }

    /// What is said about CPU 1 of a machine with these files.
    fn said(real_time: bool, files: &[(&str, &str)]) -> String {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let roots = Roots::below(folder.path());
        let throttle = RtThrottle::read(&roots);
        notes(&roots, &CpuSet::single(1), real_time, throttle).join("\n")
    }

    #[test]
    fn a_machine_without_anything_special_has_no_notes() {
        let files = [
            ("sys/devices/system/cpu/isolated", "\n"),
            (
                "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor",
                "performance\n",
            ),
            ("proc/cpuinfo", "flags\t\t: fpu tsc\n"),
        ];
        assert_eq!(said(true, &files), "");
    }

    #[test]
    fn isolated_cpus_and_those_without_a_tick_are_named() {
        let cpu = "sys/devices/system/cpu";
        let isolated = (format!("{cpu}/isolated"), format!("{cpu}/nohz_full"));
        let of = |cpus| said(false, &[(&isolated.0, cpus), (&isolated.1, cpus)]);
        let both = of("1-3\n");
        assert!(
            both.contains("CPU 1 is isolated") && both.contains("nohz_full"),
            "{both}"
        );
        assert_eq!(of("2-3\n"), "");
    }

    #[test]
    fn throttling_is_said_where_it_is_active_and_matters() {
        let of = |runtime, real_time| {
            let files = [
                ("proc/sys/kernel/sched_rt_runtime_us", runtime),
                ("proc/sys/kernel/sched_rt_period_us", "1000000\n"),
            ];
            said(real_time, &files)
        };
        let active = of("950000\n", true);
        assert!(active.contains("RT throttling is active"), "{active}");
        assert!(active.contains("950000 of 1000000 µs"), "{active}");
        assert_eq!(of("950000\n", false), "");
        assert_eq!(of("-1\n", true), "");
    }

    #[test]
    fn a_frequency_that_may_change_is_said() {
        let file = "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor";
        let changing = said(false, &[(file, "schedutil\n")]);
        assert!(changing.contains("governor schedutil"), "{changing}");
    }

    #[test]
    fn in_a_virtual_machine_the_loop_is_the_virtual_machines() {
        let flags = [("proc/cpuinfo", "flags\t\t: fpu tsc hypervisor\n")];
        let guest = said(false, &flags);
        assert!(guest.contains("From VM User Space"), "{guest}");
    }

    #[test]
    fn a_cpu_that_is_not_there_is_refused_with_those_that_are() {
        let folder = tempfile::tempdir().unwrap();
        let online = folder.path().join("sys/devices/system/cpu/online");
        std::fs::create_dir_all(online.parent().unwrap()).unwrap();
        std::fs::write(online, "0-1\n").unwrap();
        let roots = Roots::below(folder.path());
        let usable: CpuSet = "0-1".parse().unwrap();
        let refused = choose(Some(&"1-3".parse().unwrap()), &usable, &roots).unwrap_err();
        assert_eq!(refused.exit, Exit::Usage);
        assert!(refused.message.contains("2-3") && refused.message.contains("0-1"));
    }

    #[test]
    fn a_threshold_that_the_kernel_loops_cannot_keep_is_refused() {
        let cpus = "0".parse().unwrap();
        let wanted = args(&["--loops", "user,kernel", "--threshold", "10us"]);
        assert!(phases(&wanted, &cpus).is_err());
        // its last step is such a loop
        let improve = args(&["--improve", "--threshold", "10us"]);
        assert!(phases(&improve, &cpus).is_err());
        assert!(phases(&args(&["--threshold", "10us"]), &cpus).is_ok());
    }
}
