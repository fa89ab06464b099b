//! `taillab doctor`: what this machine allows.

mod verdict;
mod waiting;

use std::time::Duration;

use clap::CommandFactory;
use taillab_console::args::Output;
use taillab_console::exit::{Exit, Failure};
use taillab_console::print::{print_result, style};
use taillab_host::{Roots, doctor};
use taillab_model::doctor::{Check, CheckState, Diagnosis, Group, SCHEMA_VERSION, Survey};
use taillab_probe::{ProbeError, survey};
use taillab_report::terminal::{self, Detail};

use crate::cli::{Cli, DoctorArgs};
use crate::instruments;

/// How long the machine is watched for other loads.
const OBSERVE: Duration = Duration::from_millis(500);

/// Looks, tries, and prints what it found.
pub fn run(args: &DoctorArgs) -> Result<Exit, Failure> {
    let output = args.common;
    let diagnosis = waiting::during(output.quiet || output.json, |step| diagnose(step));
    let detail = match (output.quiet, output.verbose) {
        (true, _) => Detail::Wrong,
        (false, 0) => Detail::Screen,
        (false, _) => Detail::All,
    };
    // what is wrong is printed even with -q
    let printed = Output {
        quiet: false,
        ..output
    };
    print_result(printed, &diagnosis, || {
        terminal::render_doctor(&diagnosis, detail, style())
    })?;
    let runs = |command: &&taillab_model::doctor::CommandVerdict| command.name == "run";
    let can_run = (diagnosis.commands.iter()).find(runs);
    Ok(if can_run.is_some_and(|run| run.works) {
        Exit::Ok
    } else {
        Exit::Unsupported
    })
}

fn diagnose(step: &dyn Fn(&'static str)) -> Diagnosis {
    let roots = Roots::default();
    // first, while nothing of ours disturbs the machine
    step("watching for other loads");
    let mut hazards = doctor::hazards(&roots, OBSERVE);
    step("trying what the kernel allows");
    let mut checks = doctor::checks(&roots, &instruments::needs());
    step("trying the probe's hooks");
    let Survey { features, hooks } = match survey() {
        Ok(survey) => survey,
        Err(error) => Survey {
            features: vec![no_survey(&error, &checks)],
            hooks: Vec::new(),
        },
    };
    checks.extend(features);
    if rustix::process::geteuid().is_root() {
        let remedies = (checks.iter_mut().map(|check| &mut check.remedy))
            .chain(hazards.iter_mut().map(|hazard| &mut hazard.remedy));
        remedies.flatten().for_each(without_sudo);
    }
    let commands = Cli::command();
    let names = commands.get_subcommands().map(|command| command.get_name());
    let commands = verdict::commands(names, &checks, &hooks);
    Diagnosis {
        schema_version: SCHEMA_VERSION,
        command: "doctor".into(),
        taillab_version: env!("CARGO_PKG_VERSION").into(),
        checks,
        hooks,
        hazards,
        commands,
    }
}

/// Root needs no sudo, and a container often has none.
fn without_sudo(remedy: &mut String) {
    *remedy = remedy.replace("sudo ", "");
}

/// Why no hook could be tried.
fn no_survey(error: &ProbeError, checks: &[Check]) -> Check {
    let remedy_of = |name: &str| {
        let check = checks.iter().find(|check| check.name == name)?;
        check.remedy.clone()
    };
    let (state, found, remedy) = match error {
        ProbeError::NoPrivilege => (
            CheckState::Unknown,
            "not tried: no privilege to load eBPF programs".to_owned(),
            (remedy_of("user namespace").or_else(|| remedy_of("CAP_BPF")))
                .or_else(|| remedy_of("CAP_PERFMON"))
                .unwrap_or_else(|| {
                    "start the container with --privileged, or let no security module forbid eBPF"
                        .into()
                }),
        ),
        ProbeError::NoBtf => (
            CheckState::Unknown,
            "not tried: the kernel’s types are not known".to_owned(),
            remedy_of("BTF").unwrap_or_else(|| "sudo mount -t sysfs sysfs /sys".into()),
        ),
        ProbeError::NotBuilt => (
            CheckState::Missing,
            "this taillab was built without its probe".to_owned(),
            "sudo apt-get install clang libelf-dev, and build it with the feature bpf".into(),
        ),
        other => (
            CheckState::Missing,
            other.to_string().lines().collect::<Vec<_>>().join(" "),
            "boot a kernel built with CONFIG_BPF_SYSCALL=y and CONFIG_BPF_JIT=y".into(),
        ),
    };
    Check::not_ok(Group::Probe, "hooks", state, found, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untried_hooks_point_to_the_obstacle() {
        let missing = |name: &str, remedy: &str| {
            Check::not_ok(Group::Privilege, name, CheckState::Missing, "x", remedy)
        };
        let checks = [missing("CAP_BPF", "sudo"), missing("BTF", "boot")];
        let remedy = |error| no_survey(&error, &checks).remedy;
        assert_eq!(remedy(ProbeError::NoPrivilege).as_deref(), Some("sudo"));
        assert_eq!(remedy(ProbeError::NoBtf).as_deref(), Some("boot"));
        assert!(remedy(ProbeError::NotBuilt).is_some_and(|r| r.contains("feature bpf")));
        // a container that has all capabilities, but may not use eBPF
        let refused = no_survey(&ProbeError::NoPrivilege, &[]);
        assert!(refused.remedy.is_some_and(|r| r.contains("--privileged")));
    }
}
