//! Journals of earlier versions, which name mitigations that there are no more.

use std::os::unix::fs::PermissionsExt;

use super::*;

/// What an earlier version wrote when it applied `timer-slack`, `memory-daemons`, `xps` and `coalescing`.
const JOURNAL: &str = r#"{"record":"head","version":1,"boot_id":"a-boot","owner":{"pid":7,"start_time_ticks":9},"is_held":false,"began_unix_s":1764000000,"began_ticks":200,"mitigations":["timer-slack","memory-daemons","xps","coalescing"]}
{"record":"intent","number":0,"old":"50000","change":{"mitigation":"timer-slack","setting":{"kind":"file","path":"/proc/4711/timerslack_ns","form":"text","namespace":null,"thread":{"pid":4711,"start_time_ticks":12345}},"new":"1","why":"server of server wakes up when its timer is due","optional":false}}
{"record":"intent","number":1,"old":"madvise","change":{"mitigation":"memory-daemons","setting":{"kind":"file","path":"/sys/kernel/mm/transparent_hugepage/enabled","form":"choice","namespace":null,"thread":null},"new":"never","why":"khugepaged copies pages in the background","optional":false}}
{"record":"intent","number":2,"old":"00000000","change":{"mitigation":"xps","setting":{"kind":"file","path":"/sys/class/net/eth0/queues/tx-0/xps_cpus","form":"cpu_mask","namespace":null,"thread":null},"new":"00000055","why":"CPU 0,2,4,6 sends by queue 0 of eth0, which no other uses","optional":false}}
{"record":"intent","number":3,"old":"3","change":{"mitigation":"coalescing","setting":{"kind":"ethtool","device":"nonesuch0","namespace":null,"parameter":"rx_usecs"},"new":"50","why":"nonesuch0 interrupts at most every 50 µs","optional":true}}
{"record":"complete"}
"#;

#[test]
fn what_removed_mitigations_have_changed_is_put_back() {
    let mut machine = MACHINE.to_vec();
    machine.extend([
        ("proc/4711/timerslack_ns", "1\n"),
        (
            "sys/kernel/mm/transparent_hugepage/enabled",
            "always madvise [never]\n",
        ),
        ("sys/class/net/eth0/queues/tx-0/xps_cpus", "00000055\n"),
    ]);
    let (folder, roots) = tree(&machine);
    let journals = folder.path().join("journal");
    JournalFolder::at(&journals).ensure().unwrap();
    let path = journals.join("000001.jsonl");
    fs::write(&path, JOURNAL).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let tuner = tuner(&roots, folder.path());
    let status = tuner.status().unwrap();
    assert!(status[0].holds(), "{status:?}");
    assert_eq!(status[0].mitigations[1], "memory-daemons");
    let reverted = tuner.revert(RevertSelection::All, &mut |_| {}).unwrap();
    assert!(reverted[0].is_done, "{reverted:?}");
    let states: Vec<&ChangeState> = (reverted[0].changes.iter())
        .map(|change| &change.state)
        .collect();
    // the last one first; its device is gone
    assert_eq!(
        states,
        [
            &ChangeState::Gone,
            &ChangeState::Restored,
            &ChangeState::Restored,
            &ChangeState::Restored,
        ]
    );
    let now = |path: &str| fs::read_to_string(folder.path().join(path)).unwrap();
    assert_eq!(now("proc/4711/timerslack_ns").trim(), "50000");
    assert_eq!(
        now("sys/kernel/mm/transparent_hugepage/enabled").trim(),
        "madvise"
    );
    assert_eq!(
        now("sys/class/net/eth0/queues/tx-0/xps_cpus").trim(),
        "00000000"
    );
    assert!(tuner.status().unwrap().is_empty());
}

#[test]
fn a_removed_mitigation_is_refused_with_its_advice() {
    let (folder, roots) = tree(MACHINE);
    let tuner = tuner(&roots, folder.path());
    for name in taillab_model::mitigation::advice() {
        let error = tuner.plan(&[name], &scope()).unwrap_err().to_string();
        assert!(
            error.contains(&format!("docs/advice.md#{name}")),
            "{name}: {error}"
        );
    }
}
