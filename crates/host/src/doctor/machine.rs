//! CPUs, the server's user and the programs that taillab starts.

use std::path::Path;

use taillab_model::doctor::{Check, CheckState, Group};

use crate::cpus::CpuSet;
use crate::programs;
use crate::roots::Roots;
use crate::user::User;

const GROUP: Group = Group::Machine;

pub(super) fn checks(roots: &Roots, usable: Option<&CpuSet>) -> Vec<Check> {
    let mut checks = vec![cpus(usable), user(roots)];
    checks.extend(["ip", "memcached", "nginx"].map(program));
    checks
}

fn cpus(usable: Option<&CpuSet>) -> Check {
    let (state, found) = match usable {
        None => (
            CheckState::Unknown,
            "the kernel does not say which may be used".to_owned(),
        ),
        Some(set) if set.len() < 2 => (
            CheckState::Missing,
            format!("only CPU {set} may be used; server and generator need one each"),
        ),
        Some(set) => {
            return Check::ok(GROUP, "CPUs", format!("{set} ({} usable)", set.len()));
        }
    };
    let remedy = "use a machine with two CPUs or more, or widen the affinity (taskset, cpuset)";
    Check::not_ok(GROUP, "CPUs", state, found, remedy)
}

fn user(roots: &Roots) -> Check {
    match User::find(roots, "nobody") {
        Ok(user) => Check::ok(
            GROUP,
            "server’s user",
            format!("{} (uid {})", user.name, user.uid),
        ),
        Err(_) => Check::not_ok(
            GROUP,
            "server’s user",
            CheckState::Warning,
            "there is no user nobody, which servers run as",
            "give another one: taillab run --server-user NAME …",
        ),
    }
}

fn program(name: &str) -> Check {
    match programs::find(Path::new(name)) {
        Ok(path) => Check::ok(GROUP, name, path.display().to_string()),
        Err(missing) => {
            let (state, lost) = match name {
                "ip" => (
                    CheckState::Missing,
                    "it makes the testbed’s network".to_owned(),
                ),
                _ => (CheckState::Warning, format!("no `taillab run {name}`")),
            };
            let found = format!("not installed: {lost}");
            let remedy = format!("sudo {}", missing.remedy);
            Check::not_ok(GROUP, name, state, found, remedy)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{of, tree};
    use super::*;

    #[test]
    fn one_cpu_is_too_few_and_none_is_unknown() {
        let (_folder, roots) = tree(&[("etc/passwd", "nobody:x:65534:65534::/:/x\n")]);
        let found = checks(&roots, Some(&CpuSet::single(3)));
        assert_eq!(of(&found, "CPUs").state, CheckState::Missing);
        assert!(of(&found, "CPUs").found.contains("only CPU 3"));
        assert_eq!(of(&found, "server’s user").found, "nobody (uid 65534)");
        let found = checks(&roots, None);
        assert_eq!(of(&found, "CPUs").state, CheckState::Unknown);
        let two: CpuSet = "0-1".parse().unwrap();
        assert_eq!(
            of(&checks(&roots, Some(&two)), "CPUs").state,
            CheckState::Ok
        );
    }

    #[test]
    fn a_machine_without_the_servers_user_says_how_to_do_without() {
        let (_folder, roots) = tree(&[]);
        let found = checks(&roots, None);
        let remedy = of(&found, "server’s user").remedy.as_ref().unwrap();
        assert!(remedy.contains("--server-user"), "{remedy}");
    }

    #[test]
    fn a_program_that_is_not_there_is_named_with_its_package() {
        assert_eq!(program("no-such-program").state, CheckState::Warning);
        assert_eq!(program("sh").state, CheckState::Ok);
    }
}
