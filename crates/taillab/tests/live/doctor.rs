//! `taillab doctor` as root: every stamp has a hook, and nothing is left behind.

use crate::support::schema::{self, by_name};
use crate::support::{Machine, live, taillab};

/// What is pinned in bpffs: a program without a process lives only there.
fn pinned() -> usize {
    std::fs::read_dir("/sys/fs/bpf").map_or(0, Iterator::count)
}

#[test]
fn as_root_every_stamp_has_a_hook_and_nothing_is_left() {
    if !live("as_root_every_stamp_has_a_hook_and_nothing_is_left") {
        return;
    }
    let before = Machine::now();
    let pins = pinned();
    let output = taillab().args(["doctor", "--json"]).output().unwrap();
    let found = schema::valid("doctor", &output.stdout);
    assert_eq!(output.status.code(), Some(0), "{found:#}");
    assert_eq!(by_name(&found, "commands", "run")["works"], true);
    for transport in ["udp", "tcp"] {
        for stamp in ["T1", "T2", "T4", "T5", "T6", "switch", "all"] {
            let used = found["hooks"].as_array().unwrap().iter().filter(|hook| {
                hook["transport"] == transport && hook["stamp"] == stamp && hook["used"] == true
            });
            // a packet enters by one of several ways, which are all watched
            let used = used.count();
            let enough = if stamp == "T1" { used >= 1 } else { used == 1 };
            assert!(enough, "{transport} {stamp}: {used} in {found:#}");
        }
    }
    for check in [
        "network namespaces",
        "veth",
        "receive steering",
        "event rings",
    ] {
        assert_eq!(by_name(&found, "checks", check)["state"], "ok", "{found:#}");
    }
    before.assert_unchanged();
    assert_eq!(pinned(), pins);
}
