//! Requests without an answer: a trace of the server and the generator count the same.

use serde_json::Value;

use super::endings::begun;
use super::rig::{Running, result};
use crate::support::{bound, free_port, live, signal, taillab};

/// Sends back every message except each third one.
const DROPS_A_THIRD: &str = r"
import socket, sys
server = socket.socket(type=socket.SOCK_DGRAM)
server.bind(('127.0.0.1', int(sys.argv[1])))
got = 0
while True:
    message, client = server.recvfrom(2048)
    got += 1
    if got % 3:
        server.sendto(message, client)
";

#[test]
fn what_a_server_does_not_answer_is_what_its_clients_wait_for_in_vain() {
    if !live("what_a_server_does_not_answer_is_what_its_clients_wait_for_in_vain") {
        return;
    }
    let port = free_port();
    let place = tempfile::tempdir().unwrap();
    let program = place.path().join("server.py");
    std::fs::write(&program, DROPS_A_THIRD).unwrap();
    let server = Running::program(&format!("python3 {} {port}", program.display()));
    bound(port);
    let child = begun(&server, &place.path().join("trace"));
    // a time-out longer than any stall of the machine, and so many connections that each is idle for longer
    let load = format!(
        "load echo+udp://127.0.0.1:{port} -R 300 -d 2s -c 1000 --warmup 0 --timeout 3s --json \
         -q --floor off"
    );
    let load = taillab().args(load.split(' ')).output().unwrap();
    signal(child.id(), "INT");
    let traced = result(&child.wait_with_output().unwrap());
    let load: Value = serde_json::from_slice(&load.stdout).unwrap();
    let timeouts = load["load"]["errors"]["timeouts"].as_u64().unwrap();
    assert!(timeouts > 100, "{load:#}");
    let matching = &traced["matching"];
    let [unanswered, hidden] =
        ["unanswered", "blind_requests"].map(|what| matching[what].as_u64().unwrap());
    let is_seen = unanswered.abs_diff(timeouts) <= hidden;
    assert!(is_seen, "{timeouts}: {matching}");
    assert_eq!(traced["measured"]["sojourn"]["unanswered"], unanswered);
}
