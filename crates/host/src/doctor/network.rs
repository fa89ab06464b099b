//! The testbed, made for real and removed again.

use std::io;

use taillab_model::doctor::{Check, CheckState, Group};

use super::privilege::Privileges;
use super::privilege::capability::{NET_ADMIN, SYS_ADMIN};
use crate::cpus::Placement;
use crate::netns::NetnsError;
use crate::sysfs::SysfsError;
use crate::testbed::{Testbed, TestbedError, TestbedSpec};
use crate::veth::VethError;

const GROUP: Group = Group::Network;
const NAMESPACES: &str = "network namespaces";
const VETH: &str = "veth";
const STEERING: &str = "receive steering";

pub(super) fn testbed(placement: &Placement, privileges: &Privileges) -> Vec<Check> {
    let spec = TestbedSpec {
        placement: placement.clone(),
    };
    judge(Testbed::veth(&spec).and_then(Testbed::remove), privileges)
}

/// The three checks: what was made up to the error, the error, and what was then not tried.
fn judge(outcome: Result<(), TestbedError>, privileges: &Privileges) -> Vec<Check> {
    let made = [
        Check::ok(GROUP, NAMESPACES, "two were made and removed"),
        Check::ok(GROUP, VETH, "a pair was made and removed"),
        Check::ok(
            GROUP,
            STEERING,
            "work was steered to the CPUs of a run (RPS)",
        ),
    ];
    let Err(error) = outcome else {
        return made.to_vec();
    };
    let (failed, (found, remedy)) = match &error {
        TestbedError::Namespace(refusal) | TestbedError::Veth(VethError::Namespace(refusal)) => {
            (0, namespace_refusal(refusal, privileges))
        }
        TestbedError::Veth(refusal) => (1, veth_refusal(refusal, privileges)),
        TestbedError::Steering { source, .. } => {
            let found = format!("no file to steer with ({source})");
            let remedy = "boot a kernel built with CONFIG_RPS=y, or use --testbed loopback";
            (2, (found, remedy.to_owned()))
        }
        TestbedError::SteeringDiffers {
            wanted, effective, ..
        } => {
            let found = format!("steered to CPU {wanted}, but the kernel uses {effective}");
            let remedy =
                "choose CPUs that isolcpus= and nohz_full= leave out: taillab run -C CPUS …";
            (2, (found, remedy.to_owned()))
        }
    };
    let names = [NAMESPACES, VETH, STEERING];
    let name = names[failed];
    let untried = names.into_iter().skip(failed + 1).map(|untried| {
        let found = format!("not tried: it needs {name}");
        Check::not_ok(GROUP, untried, CheckState::Unknown, found, remedy.as_str())
    });
    let untried: Vec<Check> = untried.collect();
    let failure = Check::not_ok(GROUP, name, CheckState::Missing, found, remedy.as_str());
    made.into_iter()
        .take(failed)
        .chain([failure])
        .chain(untried)
        .collect()
}

/// What was found, and its remedy.
fn namespace_refusal(refusal: &NetnsError, privileges: &Privileges) -> (String, String) {
    match refusal {
        NetnsError::NoPrivilege => (
            "none can be made without CAP_SYS_ADMIN".to_owned(),
            privileges.how_to_get(SYS_ADMIN),
        ),
        NetnsError::NoSupport => (
            "this kernel has none".to_owned(),
            "boot a kernel built with CONFIG_NET_NS=y, or use --testbed loopback".into(),
        ),
        NetnsError::System { source, .. } if source.kind() == io::ErrorKind::NotFound => (
            "one was made, but /proc does not show it".to_owned(),
            "sudo mount -t proc proc /proc".into(),
        ),
        NetnsError::System { source, .. } => (
            format!("one could not be made: {source}"),
            "raise user.max_net_namespaces (sysctl), or use --testbed loopback".into(),
        ),
    }
}

/// What was found, and its remedy.
fn veth_refusal(refusal: &VethError, privileges: &Privileges) -> (String, String) {
    match refusal {
        VethError::Missing(_) => (
            "not tried: it needs the program ip".to_owned(),
            "sudo apt-get install iproute2".to_owned(),
        ),
        VethError::Command { message, .. } if message.contains("not permitted") => (
            "a pair cannot be made without CAP_NET_ADMIN".to_owned(),
            privileges.how_to_get(NET_ADMIN),
        ),
        VethError::Command { message, .. } => (
            format!("no pair could be made ({message})"),
            "sudo modprobe veth, or use --testbed loopback".to_owned(),
        ),
        VethError::Sysfs(SysfsError::Open(source)) => (
            format!("its /sys cannot be opened ({source})"),
            privileges.how_to_get(SYS_ADMIN),
        ),
        other => (
            format!("no pair could be made ({other})"),
            "use --testbed loopback".to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{of, tree};
    use super::*;
    use crate::cpus::CpuSet;
    use crate::programs::MissingProgram;

    fn judged(error: TestbedError) -> Vec<Check> {
        let (_folder, roots) = tree(&[("proc/self/status", "Uid: 1 1 1 1\nCapEff: 0\n")]);
        judge(Err(error), &Privileges::read(&roots))
    }

    fn states(checks: &[Check]) -> [CheckState; 3] {
        [NAMESPACES, VETH, STEERING].map(|name| of(checks, name).state)
    }

    #[test]
    fn what_stands_in_the_way_is_named_and_what_comes_after_it_is_untried() {
        use CheckState::{Missing, Ok, Unknown};
        let no_right = judged(TestbedError::Namespace(NetnsError::NoPrivilege));
        assert_eq!(states(&no_right), [Missing, Unknown, Unknown]);
        assert!(
            no_right
                .iter()
                .all(|c| c.remedy.as_ref().unwrap().contains("sudo"))
        );
        let no_ip = judged(TestbedError::Veth(VethError::Missing(MissingProgram {
            program: "ip".into(),
            remedy: String::new(),
        })));
        assert_eq!(states(&no_ip), [Ok, Missing, Unknown]);
        assert_eq!(
            of(&no_right, VETH).found,
            "not tried: it needs network namespaces"
        );
        assert_eq!(of(&no_ip, STEERING).found, "not tried: it needs veth");
        assert!(
            of(&no_ip, VETH)
                .remedy
                .as_ref()
                .unwrap()
                .contains("iproute2")
        );
        let no_veth = judged(TestbedError::Veth(VethError::Command {
            command: String::new(),
            message: "Error: Unknown device type.".into(),
        }));
        assert!(
            of(&no_veth, VETH)
                .remedy
                .as_ref()
                .unwrap()
                .contains("modprobe veth")
        );
        let isolated = judged(TestbedError::SteeringDiffers {
            device: "veth".into(),
            wanted: CpuSet::single(1),
            effective: "0".into(),
        });
        assert_eq!(states(&isolated), [Ok, Ok, Missing]);
        let steering = of(&isolated, STEERING).remedy.as_ref().unwrap();
        assert!(steering.contains("isolcpus"), "{steering}");
        let limit = judged(TestbedError::Namespace(NetnsError::System {
            what: "make",
            source: io::Error::from_raw_os_error(28),
        }));
        assert!(
            of(&limit, NAMESPACES)
                .found
                .starts_with("one could not be made")
        );
    }
}
