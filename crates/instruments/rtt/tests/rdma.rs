//! `taillab rtt` over RDMA: between two namespaces with soft RoCE where the kernel has it (as in the
//! guest of `make vm`), and refused elsewhere.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::support::{Guarded, Machine, live, must_be_in_a_guest, taillab, wait_for};

const PROTOCOLS: [&str; 3] = ["rdma-send", "rdma-read", "rdma-write"];

/// Whether there is soft RoCE.
fn soft_roce() -> bool {
    must_be_in_a_guest(Path::new("/sys/module/rdma_rxe").exists())
}

fn rtt(args: &[&str]) -> Output {
    taillab().arg("rtt").args(args).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn refused(args: &[&str], parts: &[&str]) {
    let output = rtt(args);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(5), "{args:?}: {said}");
    assert!(output.stdout.is_empty());
    assert_eq!(said.lines().count(), 1, "{said}");
    for part in parts {
        assert!(said.contains(part), "{args:?}: {said}");
    }
}

/// RDMA devices of ours.
fn devices() -> Vec<String> {
    let entries = fs::read_dir("/sys/class/infiniband").into_iter().flatten();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("taillab-")).collect()
}

#[test]
fn send_read_and_write_between_two_namespaces() {
    if !live("send_read_and_write_between_two_namespaces") {
        return;
    }
    if !soft_roce() {
        for protocol in PROTOCOLS {
            let args = ["--link", "veth", "--proto", protocol];
            refused(&args, &[protocol, "`modprobe rdma_rxe ib_uverbs`"]);
        }
        return;
    }
    let before = Machine::now();
    // events, because an emulated CPU that polls leaves little to the others
    for (mode, size, conns, count, rows) in [
        ("blocking", "64,8K", "2", "60", 6),
        ("nonblocking", "1K", "1", "10", 3),
    ] {
        let output = rtt(&[
            "--link",
            "veth",
            "--proto",
            "rdma-send,rdma-read,rdma-write",
            "--mode",
            mode,
            "--size",
            size,
            "--conns",
            conns,
            "--count",
            count,
            "--runs",
            "1",
            "--warmup",
            "2",
            "--timeout",
            "20s",
            "--json",
        ]);
        // what failed is in the rows too
        let said = String::from_utf8_lossy(&output.stdout);
        let code = output.status.code();
        assert_eq!(code, Some(0), "{}\n{said}", stderr(&output));
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        let found = result["rows"].as_array().unwrap();
        assert_eq!(found.len(), rows);
        for row in found {
            let of = |key: &str| row["counts"][key].as_u64().unwrap();
            let count: u64 = count.parse().unwrap();
            assert_eq!((of("sent"), of("answered")), (count, count), "{row}");
            assert_eq!(of("foreign") + of("duplicated") + of("lost"), 0, "{row}");
            let why = row["functional_only"].as_str().unwrap();
            assert!(why.contains("soft RoCE"), "{row}");
        }
    }
    wait_for("the devices' end", || devices().is_empty().then_some(()));
    before.assert_unchanged();
}

/// Runs `ip` or `rdma`, which must work.
fn run(command: &str) {
    let mut words = command.split(' ');
    let program = words.next().unwrap();
    let status = Command::new(program).args(words).status().unwrap();
    assert!(status.success(), "{command}");
}

/// Two ends with an RDMA device each: ours, and that of a server in a named namespace.
struct Ends;

impl Ends {
    const NAMESPACE: &str = "taillab-rdma";
    const SERVER: &str = "10.9.0.2";

    fn new() -> Self {
        let there = Self::NAMESPACE;
        run(&format!("ip netns add {there}"));
        let ends = Self;
        run(&format!(
            "ip link add tlr0 type veth peer name tlr1 netns {there}"
        ));
        run("ip address add 10.9.0.1/24 dev tlr0");
        run("ip link set tlr0 up");
        run(&format!(
            "ip -n {there} address add {}/24 dev tlr1",
            Self::SERVER
        ));
        run(&format!("ip -n {there} link set tlr1 up"));
        run("rdma link add tlrxe0 type rxe netdev tlr0");
        run(&format!(
            "ip netns exec {there} rdma link add tlrxe1 type rxe netdev tlr1"
        ));
        for (device, address) in [("tlrxe0", "0a09:0001"), ("tlrxe1", "0a09:0002")] {
            let gids = format!("/sys/class/infiniband/{device}/ports/1/gids");
            let has = |gid: &Path| fs::read_to_string(gid).is_ok_and(|gid| gid.contains(address));
            wait_for("an address of RDMA", || {
                let entries = fs::read_dir(&gids).into_iter().flatten().flatten();
                let mut paths = entries.map(|entry| entry.path());
                paths.any(|gid| has(&gid)).then_some(())
            });
        }
        ends
    }

    /// Packets that the client's device has sent.
    fn packets() -> u64 {
        let path = "/sys/class/infiniband/tlrxe0/ports/1/hw_counters/sent_pkts";
        fs::read_to_string(path).unwrap().trim().parse().unwrap()
    }

    /// A server that takes connections.
    fn serve(at: &str) -> Guarded {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", Self::NAMESPACE])
            .arg(env!("CARGO_BIN_EXE_taillab"))
            .args(["rtt", "--serve", at, "--mode", "blocking", "-q"]);
        let server = Guarded::spawn(&mut command);
        wait_for("a listener", || {
            let output = Command::new("ip")
                .args(["netns", "exec", Self::NAMESPACE, "cat", "/proc/net/tcp"])
                .output()
                .unwrap();
            // state 0A is LISTEN
            let table = String::from_utf8(output.stdout).unwrap();
            let listener = "0200090A:1E61 00000000:0000 0A";
            let mut lines = table.lines();
            lines.any(|line| line.contains(listener)).then_some(())
        });
        server
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        for command in [
            &["link", "delete", "tlr0"][..],
            &["netns", "delete", Self::NAMESPACE],
        ] {
            // what was never made cannot be removed
            let _ = Command::new("ip")
                .args(command)
                .stderr(Stdio::null())
                .status();
        }
    }
}

#[test]
fn a_server_that_is_killed_in_mid_run_leaves_what_there_was() {
    if !live("a_server_that_is_killed_in_mid_run_leaves_what_there_was") {
        return;
    }
    if !soft_roce() {
        let args = ["--serve", "127.0.0.1:0", "--proto", "rdma"];
        refused(&args, &["RDMA device", "rdma_rxe", "ibverbs-providers"]);
        return;
    }
    let _ends = Ends::new();
    let at = format!("{}:7777", Ends::SERVER);
    for protocol in PROTOCOLS {
        let mut server = Ends::serve(&at);
        let packets = Ends::packets();
        let mut command = taillab();
        command
            .args(["rtt", "--target", &at, "--proto", protocol, "--json"])
            .args(["--mode", "blocking", "--size", "64", "--timeout", "20s"])
            .args(["--runs", "1", "--warmup", "0", "--count", "100000"]);
        let client = Guarded::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        wait_for("round trips", || {
            (Ends::packets() > packets + 40).then_some(())
        });
        server.kill().unwrap();
        server.wait().unwrap();
        let output = client.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        let row = &result["rows"][0];
        assert!(row["counts"]["answered"].as_u64().unwrap() > 0, "{row}");
        assert_eq!(row["partial"], true);
        let why = row["failure"].as_str().unwrap();
        assert!(why.contains("ended the connection after"), "{why}");
    }
}
