//! Which commands work here, and how well.

use std::collections::BTreeMap;

use taillab_model::doctor::{Check, CheckState, CommandVerdict, HookTrial};

use crate::instruments::INSTRUMENTS;

/// A verdict for each of these commands for which one is defined.
pub fn commands<'n>(
    names: impl Iterator<Item = &'n str>,
    checks: &[Check],
    hooks: &[HookTrial],
) -> Vec<CommandVerdict> {
    let facts = Facts { checks, hooks };
    names
        .filter_map(|name| match name {
            "run" => Some(facts.run()),
            "trace" => Some(facts.trace()),
            "load" => Some(facts.load()),
            name => {
                works_everywhere(name).then(|| works(name, "needs nothing of this machine".into()))
            }
        })
        .collect()
}

/// Whether a command needs nothing of the machine.
fn works_everywhere(name: &str) -> bool {
    let mut instruments = INSTRUMENTS.iter().filter(|one| one.works_everywhere);
    ["explain", "compare", "serve"].contains(&name) || instruments.any(|one| one.name == name)
}

/// What a server and its client in namespaces of their own need.
const TESTBED: [&str; 4] = ["ip", "network namespaces", "veth", "receive steering"];

struct Facts<'a> {
    checks: &'a [Check],
    hooks: &'a [HookTrial],
}

/// What keeps a command from working, and what to do.
struct Obstacle {
    why: String,
    remedy: Option<String>,
}

impl Facts<'_> {
    fn check(&self, name: &str) -> Option<&Check> {
        self.checks.iter().find(|check| check.name == name)
    }

    /// The first of these checks that failed.
    fn obstacle(&self, names: &[&str]) -> Option<Obstacle> {
        let bad = |state| matches!(state, CheckState::Missing | CheckState::Unknown);
        let check = (names.iter())
            .filter_map(|name| self.check(name))
            .find(|check| bad(check.state))?;
        Some(Obstacle {
            why: format!("{}: {}", check.name, check.found),
            remedy: check.remedy.clone(),
        })
    }

    /// Which transports can be traced, and with what loss of precision; or why none can.
    fn probe(&self) -> Result<String, Obstacle> {
        let general = [
            "architecture",
            "CAP_BPF",
            "CAP_PERFMON",
            "BTF",
            "event rings",
            "hooks",
        ];
        if let Some(obstacle) = self.obstacle(&general) {
            return Err(obstacle);
        }
        let mut obstacle = None;
        let mut watched = Vec::new();
        for (transport, name) in [("udp", "UDP"), ("tcp", "TCP")] {
            match self.transport(transport) {
                Ok(()) => watched.push(name),
                Err(found) => {
                    obstacle.get_or_insert(found);
                }
            }
        }
        match (watched.as_slice(), obstacle) {
            ([], Some(obstacle)) => Err(obstacle),
            (["UDP"], Some(other)) => Ok(format!("UDP only; TCP: {}", other.why)),
            (["TCP"], Some(other)) => Ok(format!("TCP only; UDP: {}", other.why)),
            _ => Ok(self.precision()),
        }
    }

    fn transport(&self, transport: &str) -> Result<(), Obstacle> {
        let mut stamps: BTreeMap<&str, (bool, Option<&HookTrial>)> = BTreeMap::new();
        for trial in self.hooks.iter().filter(|t| t.transport == transport) {
            let entry = stamps.entry(&trial.stamp).or_default();
            entry.0 |= trial.works || trial.without.is_some();
            entry.1.get_or_insert(trial);
        }
        if stamps.is_empty() {
            return Err(Obstacle {
                why: "no hook was tried".into(),
                remedy: None,
            });
        }
        match stamps.into_iter().find(|(_, (served, _))| !served) {
            None => Ok(()),
            Some((stamp, (_, best))) => Err(Obstacle {
                why: format!("no hook works for stamp {stamp}"),
                remedy: best.and_then(|trial| trial.remedy.clone()),
            }),
        }
    }

    /// What each stamp lacks.
    fn precision(&self) -> String {
        let mut lost: Vec<String> = Vec::new();
        for trial in self.hooks {
            let of_stamp =
                |t: &&HookTrial| t.transport == trial.transport && t.stamp == trial.stamp;
            let none = !self.hooks.iter().filter(of_stamp).any(|t| t.works);
            let lack = match (trial.used, none) {
                (true, _) => trial.lost_precision.as_ref(),
                (_, true) => trial.without.as_ref(),
                _ => None,
            };
            let Some(lack) = lack else { continue };
            let start = format!("{}: ", trial.stamp);
            // both transports say nearly the same: once for each stamp is enough
            if !lost.iter().any(|known| known.starts_with(&start)) {
                lost.push(start + lack);
            }
        }
        if lost.is_empty() {
            "UDP and TCP, every stamp at its best".into()
        } else {
            format!("UDP and TCP; {}", lost.join("; "))
        }
    }

    /// [`Self::probe`] for a command that needs these checks too.
    fn probe_with(&self, names: &[&str]) -> Result<String, Obstacle> {
        self.obstacle(names).map_or_else(|| self.probe(), Err)
    }

    fn run(&self) -> CommandVerdict {
        let precision = match self.probe_with(&["user namespace", "CPUs"]) {
            Ok(precision) => precision,
            Err(obstacle) => return fails("run", obstacle),
        };
        match self.obstacle(&TESTBED) {
            None => works("run", precision),
            Some(obstacle) => works(
                "run",
                format!(
                    "with --testbed loopback only ({}), where receive work is charged to the \
                     sender; {precision}",
                    obstacle.why
                ),
            ),
        }
    }

    fn trace(&self) -> CommandVerdict {
        match self.probe_with(&["user namespace"]) {
            Ok(precision) => works("trace", precision),
            Err(obstacle) => fails("trace", obstacle),
        }
    }

    fn load(&self) -> CommandVerdict {
        let has = |name: &str| self.check(name).is_some_and(|c| c.state == CheckState::Ok);
        let mut remark = if has("SO_TIMESTAMPING") {
            "the kernel can stamp what is sent and received".to_owned()
        } else {
            "stamps in user space only: the generator’s own delays count".to_owned()
        };
        if !has("CPUs") {
            remark += "; generator and server may share a CPU";
        }
        works("load", remark)
    }
}

fn works(name: &str, remark: String) -> CommandVerdict {
    CommandVerdict {
        name: name.into(),
        works: true,
        remark,
        remedy: None,
    }
}

fn fails(name: &str, obstacle: Obstacle) -> CommandVerdict {
    CommandVerdict {
        name: name.into(),
        works: false,
        remark: obstacle.why,
        remedy: obstacle.remedy,
    }
}

#[cfg(test)]
mod tests {
    use taillab_model::doctor::Group;

    use super::*;

    fn hook(transport: &str, stamp: &str, works: bool) -> HookTrial {
        HookTrial {
            transport: transport.into(),
            stamp: stamp.into(),
            hook: "tp_btf/x".into(),
            works,
            used: works,
            lost_precision: (stamp == "T4").then(|| "a little early".into()),
            without: (stamp == "T2").then(|| "no T2".into()),
            refusal: (!works).then(|| "no".into()),
            remedy: (!works).then(|| "another kernel".into()),
        }
    }

    fn hooks(broken: &[(&str, &str)]) -> Vec<HookTrial> {
        let mut all = Vec::new();
        for transport in ["udp", "tcp"] {
            for stamp in ["T1", "T2", "T4", "all"] {
                all.push(hook(
                    transport,
                    stamp,
                    !broken.contains(&(transport, stamp)),
                ));
            }
        }
        all
    }

    fn run(checks: &[Check], hooks: &[HookTrial]) -> CommandVerdict {
        let mut all = commands(["run", "man"].into_iter(), checks, hooks);
        assert_eq!(all.len(), 1);
        all.remove(0)
    }

    fn missing(name: &str) -> Check {
        Check::not_ok(
            Group::Kernel,
            name,
            CheckState::Missing,
            "not there",
            "get it",
        )
    }

    #[test]
    fn what_works_says_with_what_precision() {
        let all = run(&[], &hooks(&[]));
        assert!(all.works);
        assert_eq!(all.remark, "UDP and TCP; T4: a little early");
        let no_t2 = run(&[], &hooks(&[("udp", "T2"), ("tcp", "T2")]));
        assert!(
            no_t2.works && no_t2.remark.contains("T2: no T2"),
            "{no_t2:?}"
        );
    }

    #[test]
    fn a_stamp_without_any_hook_ends_its_transport_and_both_end_the_run() {
        let tcp = run(&[], &hooks(&[("udp", "T1")]));
        assert!(tcp.works && tcp.remark.starts_with("TCP only"), "{tcp:?}");
        let none = run(&[], &hooks(&[("udp", "T1"), ("tcp", "all")]));
        assert!(!none.works);
        assert_eq!(none.remedy.as_deref(), Some("another kernel"));
        assert!(!run(&[], &[]).works);
    }

    #[test]
    fn what_is_missing_is_named_and_a_testbed_can_be_done_without() {
        for name in [
            "CAP_BPF",
            "CAP_PERFMON",
            "BTF",
            "CPUs",
            "hooks",
            "user namespace",
        ] {
            let verdict = run(&[missing(name)], &hooks(&[]));
            assert!(
                !verdict.works && verdict.remark.starts_with(name),
                "{verdict:?}"
            );
            assert_eq!(verdict.remedy.as_deref(), Some("get it"));
        }
        let loopback = run(&[missing("veth")], &hooks(&[]));
        assert!(loopback.works && loopback.remark.contains("--testbed loopback"));
        let names = ["trace", "explain"].into_iter();
        let both = commands(names, &[missing("veth")], &hooks(&[]));
        assert!(both.iter().all(|command| command.works), "{both:?}");
    }

    #[test]
    fn the_generator_works_everywhere_and_says_what_it_lacks() {
        let names = ["load", "compare", "trace"].into_iter();
        let all = commands(names, &[missing("SO_TIMESTAMPING")], &[]);
        assert!(all[0].works && all[0].remark.contains("user space only"));
        assert!(all[1].works && !all[2].works);
    }
}
