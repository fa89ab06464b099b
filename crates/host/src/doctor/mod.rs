//! What this machine and this user allow, and what may spoil a measurement: facts are read,
//! features are tried. Every trial is undone before it returns.

mod kernel;
mod machine;
mod needs;
mod network;
mod privilege;
mod trials;

use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use taillab_model::doctor::{Check, FoundHazard};

use crate::cpus::{self, CpuSet, Placement, RequestedCpus};
use crate::environment::CaptureSpec;
use crate::hazard;
use crate::roots::Roots;

pub use self::needs::{Needs, RUN, TESTKIT, TRACE};
pub use self::privilege::capability;
use self::privilege::{Limits, Privileges};

/// All checks of the machine, group by group in the order of [`Group`](taillab_model::doctor::Group). `commands` are
/// those that need or can use capabilities, by their names.
pub fn checks(roots: &Roots, commands: &[(&str, Needs)]) -> Vec<Check> {
    let privileges = Privileges::read(roots);
    let limits = Limits {
        memlock: getrlimit(Resource::Memlock).current,
        files: getrlimit(Resource::Nofile).maximum,
    };
    let mut checks = privilege::checks(roots, &privileges, limits);
    checks.push(needs::check(&privileges, commands));
    checks.extend(kernel::checks(roots, std::env::consts::ARCH));
    checks.extend(trials::of_kernel(roots, &privileges));
    checks.extend(network::testbed(&placement(roots), &privileges));
    checks.extend(trials::of_network(&privileges));
    checks.extend(machine::checks(roots, cpus::allowed().ok().as_ref()));
    checks
}

/// What may spoil a measurement here. Watches the machine for `observe` to see other loads.
pub fn hazards(roots: &Roots, observe: Duration) -> Vec<FoundHazard> {
    let placement = placement(roots);
    let environment = hazard::capture_environment(&CaptureSpec {
        roots,
        placement: &placement,
        command_line: Vec::new(),
        taillab_version: String::new(),
        server: None,
        loopback: false,
        observe,
    });
    hazard::for_doctor(roots, &environment, cpus::allowed().ok().as_ref())
}

/// Where `taillab run` would put server and generator.
fn placement(roots: &Roots) -> Placement {
    Placement::choose(roots, RequestedCpus::default()).unwrap_or_else(|_| {
        let all = cpus::allowed().unwrap_or_else(|_| CpuSet::single(0));
        Placement {
            server: all.clone(),
            client: all,
        }
    })
}

#[cfg(test)]
mod tests {
    use taillab_model::doctor::CheckState;

    use super::*;
    pub(super) use crate::roots::testing::tree;

    pub(super) fn of<'c>(checks: &'c [Check], name: &str) -> &'c Check {
        (checks.iter().find(|check| check.name == name))
            .unwrap_or_else(|| panic!("no {name} in {checks:?}"))
    }

    #[test]
    fn whatever_is_not_well_says_what_to_do_even_where_nothing_can_be_read() {
        let (_folder, nothing) = tree(&[]);
        let commands = [("run", RUN), ("trace", TRACE)];
        let own = checks(&Roots::default(), &commands);
        for check in checks(&nothing, &commands).iter().chain(&own) {
            let well = check.state == CheckState::Ok;
            assert_eq!(check.remedy.is_none(), well, "{check:?}");
            assert!(!check.found.is_empty() && !check.found.contains('\n'));
        }
        assert!(own.len() > 20, "{own:?}");
        for hazard in hazards(&nothing, Duration::ZERO) {
            assert!(hazard.remedy.is_some(), "{hazard:?}");
        }
    }
}
