//! What this machine and this user allow, and what may spoil a measurement: facts are read,
//! abilities are tried. Every trial is undone before it returns.

mod hazards;
mod kernel;
mod machine;
mod network;
mod privilege;
mod trials;

use std::io;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use taillab_model::doctor::{Check, CheckState, FoundHazard, Group};

use crate::cpus::{self, CpuSet, Placement};
use crate::environment::{CaptureSpec, Environment};
use crate::roots::Roots;

use self::privilege::Privileges;

/// What a reader without privilege does first.
const SUDO: &str = "run it as root: sudo taillab …";

/// What the process was given by who started it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limits {
    /// Bytes it may lock; `None`: no limit.
    memlock: Option<u64>,
    /// Files it may open, at most; `None`: no limit.
    files: Option<u64>,
}

/// What is known of the machine, the order of the groups being that of [`Group`].
pub fn checks(roots: &Roots) -> Vec<Check> {
    let privileges = Privileges::read(roots);
    let limits = Limits {
        memlock: getrlimit(Resource::Memlock).current,
        files: getrlimit(Resource::Nofile).maximum,
    };
    let mut checks = privilege::checks(roots, &privileges, limits);
    checks.extend(kernel::checks(roots, std::env::consts::ARCH));
    checks.extend(trials::of_kernel(roots, &privileges));
    checks.extend(network::testbed(&placement(roots), &privileges));
    checks.extend(trials::of_network(&privileges));
    checks.extend(machine::checks(roots, cpus::allowed().ok().as_ref()));
    checks
}

/// What may spoil a measurement here; watches for other loads for `observe`.
pub fn hazards(roots: &Roots, observe: Duration) -> Vec<FoundHazard> {
    let placement = placement(roots);
    let environment = Environment::capture(&CaptureSpec {
        roots,
        placement: &placement,
        command_line: Vec::new(),
        taillab_version: String::new(),
        server: None,
        observe,
    });
    hazards::of(roots, &environment, cpus::allowed().ok().as_ref())
}

/// Where `taillab run` would put server and generator.
fn placement(roots: &Roots) -> Placement {
    Placement::choose(roots, None, None).unwrap_or_else(|_| {
        let all = cpus::allowed().unwrap_or_else(|_| CpuSet::single(0));
        Placement {
            server: all.clone(),
            client: all,
        }
    })
}

/// The outcome of a trial whose failure has a `remedy`; the main commands work without it.
fn tried(
    group: Group,
    name: &str,
    outcome: &io::Result<()>,
    works: &str,
    lost: &str,
    remedy: impl FnOnce(rustix::io::Errno) -> String,
) -> Check {
    match outcome {
        Ok(()) => Check::ok(group, name, works),
        Err(error) => {
            let errno = rustix::io::Errno::from_io_error(error).unwrap_or(rustix::io::Errno::IO);
            let text = error.to_string();
            let answer = text.split(" (os error").next().unwrap_or(&text);
            let found = format!("refused ({answer}): {lost}");
            Check::not_ok(group, name, CheckState::Warning, found, remedy(errno))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    pub(super) use crate::roots::testing::tree;

    pub(super) fn of<'c>(checks: &'c [Check], name: &str) -> &'c Check {
        (checks.iter().find(|check| check.name == name))
            .unwrap_or_else(|| panic!("no {name} in {checks:?}"))
    }

    #[test]
    fn whatever_is_not_well_says_what_to_do_even_where_nothing_can_be_read() {
        let (_folder, nothing) = tree(&[]);
        let own = checks(&Roots::default());
        for check in checks(&nothing).iter().chain(&own) {
            let well = check.state == CheckState::Ok;
            assert_eq!(check.remedy.is_none(), well, "{check:?}");
            assert!(!check.found.is_empty() && !check.found.contains('\n'));
        }
        assert!(own.len() > 20, "{own:?}");
        for hazard in hazards(&nothing, Duration::ZERO) {
            assert!(hazard.remedy.is_some(), "{hazard:?}");
        }
    }

    #[test]
    fn a_refused_trial_names_the_kernels_answer_and_what_is_lost() {
        let refused = Err(io::Error::from_raw_os_error(1));
        let check = tried(Group::Kernel, "x", &refused, "", "no more x", |errno| {
            format!("{errno:?}")
        });
        assert_eq!(check.found, "refused (Operation not permitted): no more x");
        assert_eq!(check.state, CheckState::Warning);
        assert!(check.remedy.is_some());
    }
}
