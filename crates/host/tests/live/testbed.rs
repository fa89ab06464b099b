//! Live tests of the testbed: packets cross it, its receive work lands where it should, and
//! nothing of it is left.

use std::collections::BTreeSet;
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::common::{Helper, eventually, is_helper, live, tell, wait_for_death};
use taillab_host::cpus::pin_current_thread;
use taillab_host::{CpuSet, NetNamespace, Placement, RequestedCpus, Roots, Testbed, TestbedSpec};

fn spec() -> TestbedSpec {
    TestbedSpec {
        placement: Placement::choose(&Roots::default(), RequestedCpus::default()).unwrap(),
    }
}

/// What this host shows of interfaces and mounts.
fn visible_state() -> Vec<BTreeSet<String>> {
    let names = |text: &str| -> BTreeSet<String> {
        text.lines()
            .filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned()))
            .collect()
    };
    let links = Command::new("ip").args(["-o", "link"]).output().unwrap();
    let links = String::from_utf8(links.stdout).unwrap();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    vec![
        names(&fs::read_to_string("/proc/net/dev").unwrap()),
        // index and name, without the state, which may change by itself
        links
            .lines()
            .map(|line| line.split(": ").take(2).collect::<Vec<_>>().join(" "))
            .collect(),
        mounts.lines().map(str::to_owned).collect(),
    ]
}

/// Processes that are in a namespace or hold a descriptor of it, and mounts of it.
fn holders(inode: u64) -> Vec<String> {
    let target = format!("net:[{inode}]");
    let mut found = Vec::new();
    for process in fs::read_dir("/proc").unwrap().filter_map(Result::ok) {
        let links = ["task", "fd"].into_iter().flat_map(|folder| {
            fs::read_dir(process.path().join(folder))
                .into_iter()
                .flatten()
                .filter_map(Result::ok)
        });
        for link in links {
            let path = link.path();
            for path in [path.join("ns/net"), path] {
                if fs::read_link(&path).is_ok_and(|to| to.to_str() == Some(&target)) {
                    found.push(path.display().to_string());
                }
            }
        }
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    found.extend(
        mounts
            .lines()
            .filter(|line| line.contains(&target))
            .map(str::to_owned),
    );
    found
}

/// (received, sent) packets of an interface of the calling thread's namespace.
fn packets(device: &str) -> Option<(u64, u64)> {
    let text = fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix(&format!("{device}:")))?;
    let fields: Vec<u64> = line
        .split_whitespace()
        .map(|x| x.parse().unwrap())
        .collect();
    Some((fields[1], fields[9]))
}

fn socket(namespace: &NetNamespace, at: std::net::IpAddr) -> UdpSocket {
    let socket = namespace
        .run(|| UdpSocket::bind(SocketAddr::new(at, 0)).unwrap())
        .unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    socket
}

#[test]
fn packets_cross_the_veth_and_nothing_else_does() {
    if !live("packets_cross_the_veth_and_nothing_else_does") {
        return;
    }
    let before = visible_state();
    let testbed = Testbed::veth(&spec()).unwrap();
    let (server_ns, client_ns) = (
        testbed.server_namespace().unwrap(),
        testbed.client_namespace().unwrap(),
    );
    let inodes = [server_ns.inode(), client_ns.inode()];
    let server = socket(server_ns, testbed.server_address());
    let client = socket(client_ns, testbed.client_address());
    let to = server.local_addr().unwrap();
    let rounds = 500_u64;
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = [0; 2048];
            for _ in 0..rounds {
                let (n, from) = server.recv_from(&mut buffer).unwrap();
                assert_eq!(from.ip(), testbed.client_address());
                server.send_to(&buffer[..n], from).unwrap();
            }
        });
        for round in 0..rounds {
            let mut buffer = [0; 2048];
            client.send_to(&round.to_le_bytes(), to).unwrap();
            let (n, from) = client.recv_from(&mut buffer).unwrap();
            assert_eq!((&buffer[..n], from), (&round.to_le_bytes()[..], to));
        }
    });
    // to the packet: no address resolution, no IPv6, no multicast
    assert_eq!(
        server_ns.run(|| packets("tl-server")).unwrap(),
        Some((rounds, rounds))
    );
    assert_eq!(
        client_ns.run(|| packets("tl-client")).unwrap(),
        Some((rounds, rounds))
    );

    // an unnamed testbed shows nowhere, not even while it is there
    assert_eq!(visible_state(), before);
    assert!(holders(inodes[0]).iter().any(|path| path.contains("/fd/")));
    drop((server, client));
    testbed.remove().unwrap();
    assert_eq!(visible_state(), before);
    for inode in inodes {
        assert_eq!(holders(inode), [""; 0]);
    }
}

#[test]
fn the_device_is_the_one_the_kernel_knows() {
    if !live("the_device_is_the_one_the_kernel_knows") {
        return;
    }
    let (first, second) = (
        Testbed::veth(&spec()).unwrap(),
        Testbed::veth(&spec()).unwrap(),
    );
    let mut devices = BTreeSet::new();
    for testbed in [&first, &second] {
        for (device, namespace, name) in [
            (
                testbed.server_device(),
                testbed.server_namespace().unwrap(),
                "tl-server",
            ),
            (
                testbed.client_device(),
                testbed.client_namespace().unwrap(),
                "tl-client",
            ),
        ] {
            let show = || {
                Command::new("ip")
                    .args(["-o", "link", "show", "dev", name])
                    .output()
                    .unwrap()
            };
            let text = String::from_utf8(namespace.run(show).unwrap().stdout).unwrap();
            let index: u32 = text.split(':').next().unwrap().parse().unwrap();
            let link = namespace
                .run(|| fs::read_link("/proc/thread-self/ns/net").unwrap())
                .unwrap();
            assert_eq!(index, device.ifindex);
            assert_eq!(
                link.to_str().unwrap(),
                format!("net:[{}]", device.netns_inode)
            );
            devices.insert(index);
        }
    }
    assert_eq!(
        devices.len(),
        4,
        "every end has an index of its own: {devices:?}"
    );
    first.remove().unwrap();
    second.remove().unwrap();
}

/// How often another CPU has handed packets to this one for its receive softirq
/// (`/proc/net/softnet_stat`: field 10, received_rps; the CPU is field 13).
fn handed_to(cpu: u32) -> u64 {
    let text = fs::read_to_string("/proc/net/softnet_stat").unwrap();
    for line in text.lines() {
        let fields: Vec<u64> = line
            .split_whitespace()
            .map(|x| u64::from_str_radix(x, 16).unwrap())
            .collect();
        if fields.get(12) == Some(&u64::from(cpu)) {
            return fields[9];
        }
    }
    panic!("CPU {cpu} is not in /proc/net/softnet_stat");
}

/// One-way traffic from a sender on one CPU: without steering that CPU receives it
/// too, and nothing is handed over.
#[test]
fn receive_work_runs_where_the_receiver_does() {
    if !live("receive_work_runs_where_the_receiver_does") {
        return;
    }
    let spec = spec();
    let testbed = Testbed::veth(&spec).unwrap();
    let server = socket(
        testbed.server_namespace().unwrap(),
        testbed.server_address(),
    );
    let client = socket(
        testbed.client_namespace().unwrap(),
        testbed.client_address(),
    );
    let Placement {
        server: server_cpus,
        client: client_cpus,
    } = &spec.placement;
    for (from, from_cpus, to, to_cpus) in [
        (&client, client_cpus, &server, server_cpus),
        (&server, server_cpus, &client, client_cpus),
    ] {
        let receiver = to_cpus.first().unwrap();
        let count = 1_000;
        let target = to.local_addr().unwrap();
        let before = handed_to(receiver);
        thread::scope(|scope| {
            let (seen, wait_seen) = mpsc::channel();
            scope.spawn(move || {
                pin_current_thread(to_cpus).unwrap();
                let mut buffer = [0; 64];
                for _ in 0..count {
                    to.recv(&mut buffer).unwrap();
                    seen.send(()).unwrap();
                }
            });
            scope.spawn(move || {
                pin_current_thread(from_cpus).unwrap();
                for _ in 0..count {
                    from.send_to(b"x", target).unwrap();
                    wait_seen.recv().unwrap(); // one at a time
                }
            });
        });
        let handed = handed_to(receiver) - before;
        // a packet that comes while the CPU is at work anyway needs no hand-over
        assert!(
            handed > count / 2,
            "CPU {receiver} was handed {handed} of {count} packets"
        );
    }
    testbed.remove().unwrap();
}

/// Waits, inside the client's namespace, for the client's end to vanish: it goes when
/// the kernel has destroyed the server's namespace and with it the other end.
fn watch_the_other_end_vanish(client_ns: impl AsFd + Send + 'static) -> thread::JoinHandle<()> {
    let (entered, wait_entered) = mpsc::channel();
    let watcher = thread::spawn(move || {
        let kind = rustix::thread::LinkNameSpaceType::Network;
        rustix::thread::move_into_link_name_space(client_ns.as_fd(), Some(kind)).unwrap();
        drop(client_ns);
        assert!(packets("tl-client").is_some());
        entered.send(()).unwrap();
        eventually("the veth pair is gone", || packets("tl-client").is_none());
    });
    wait_entered.recv().unwrap();
    watcher
}

#[test]
fn dropping_the_testbed_removes_it() {
    if !live("dropping_the_testbed_removes_it") {
        return;
    }
    let testbed = Testbed::veth(&spec()).unwrap();
    let client_ns = testbed
        .client_namespace()
        .unwrap()
        .as_fd()
        .try_clone_to_owned()
        .unwrap();
    let inode = testbed.server_device().netns_inode;
    let watcher = watch_the_other_end_vanish(client_ns);
    drop(testbed);
    watcher.join().unwrap();
    assert_eq!(holders(inode), [""; 0]);
}

#[test]
fn the_kernel_removes_the_testbed_of_a_killed_process() {
    if is_helper() {
        let testbed = Testbed::veth(&spec()).unwrap();
        let fd = testbed.client_namespace().unwrap().as_fd().as_raw_fd();
        tell(format!("{} {fd}", testbed.server_device().netns_inode));
        wait_for_death();
    }
    if !live("the_kernel_removes_the_testbed_of_a_killed_process") {
        return;
    }
    let before = visible_state();
    let mut helper = Helper::start(
        "testbed::the_kernel_removes_the_testbed_of_a_killed_process",
        "",
    );
    let told = helper.hear();
    let (inode, fd) = told.split_once(' ').unwrap();
    let inode: u64 = inode.parse().unwrap();
    assert_ne!(holders(inode), [""; 0]);
    let client_ns = fs::File::open(format!("/proc/{}/fd/{fd}", helper.pid())).unwrap();
    let watcher = watch_the_other_end_vanish(client_ns);
    helper.kill();
    watcher.join().unwrap();
    assert_eq!(holders(inode), [""; 0]);
    assert_eq!(visible_state(), before);
}

#[test]
fn steering_to_a_cpu_that_is_not_there_fails_clearly_and_leaves_nothing() {
    if !live("steering_to_a_cpu_that_is_not_there_fails_clearly_and_leaves_nothing") {
        return;
    }
    let before = visible_state();
    let mut spec = spec();
    spec.placement.server = CpuSet::single(taillab_host::cpus::MAX_CPUS - 1);
    let error = Testbed::veth(&spec).unwrap_err().to_string();
    assert!(
        error.contains("tl-server") && error.contains("steer"),
        "{error}"
    );
    assert_eq!(visible_state(), before);
}

#[test]
fn loopback_makes_nothing() {
    let testbed = Testbed::loopback().unwrap();
    assert!(testbed.server_address().is_loopback());
    assert!(testbed.server_namespace().is_none());
    assert_eq!(testbed.server_device().ifindex, 1);
    assert!(testbed.is_loopback());
    testbed.remove().unwrap();
}
