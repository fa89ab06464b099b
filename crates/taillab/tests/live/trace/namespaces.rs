//! Servers in a network namespace of their own, whose clients come over veth.

use std::fs;
use std::process::Command;

use super::rig::{CONNECTIONS, Running, keeps_its_promises, trace};
use super::servers::{Group, MOSTLY, complete_share};
use crate::support::{live, taillab, wait_for};

const PORT: u16 = 7_411;

/// Two network namespaces joined by veth; they vanish with the processes that hold them.
struct Veth {
    server: Running,
    client: Running,
}

impl Veth {
    fn new() -> Self {
        let namespace = || {
            let holder = Running::program("unshare --net sleep 600");
            // until it has its own namespace, it is in ours
            let own = fs::read_link("/proc/self/ns/net").unwrap();
            let path = format!("/proc/{}/ns/net", holder.pid());
            wait_for("a namespace", || {
                fs::read_link(&path).ok().filter(|theirs| *theirs != own)
            });
            holder
        };
        let (server, client) = (namespace(), namespace());
        let (s, c) = (server.pid(), client.pid());
        for line in [
            format!("link add tl-server netns {s} type veth peer name tl-client netns {c}"),
            format!("@{s} address add 10.98.0.1/24 dev tl-server"),
            format!("@{s} address add fd98::1/64 dev tl-server nodad"),
            format!("@{s} link set tl-server up"),
            format!("@{c} address add 10.98.0.2/24 dev tl-client"),
            format!("@{c} address add fd98::2/64 dev tl-client nodad"),
            format!("@{c} link set tl-client up"),
        ] {
            let within = line.strip_prefix('@').and_then(|line| line.split_once(' '));
            let (mut command, words) = match within {
                Some((pid, words)) => {
                    let mut command = Command::new("nsenter");
                    command.args(["-t", pid, "-n", "ip"]);
                    (command, words)
                }
                None => (Command::new("ip"), line.as_str()),
            };
            let done = command.args(words.split(' ')).status().unwrap();
            assert!(done.success(), "{line}");
        }
        Self { server, client }
    }

    /// Starts a server, and waits until it listens on [`PORT`].
    fn serve(&self, line: &str) -> Running {
        let server = Running::program(&format!("nsenter -t {} -n {line}", self.server.pid()));
        let port = format!(":{PORT:04X} ");
        let has = |protocol: &str| {
            let tables = [protocol.to_owned(), format!("{protocol}6")];
            tables.iter().any(|name| {
                let table = format!("/proc/{}/net/{name}", self.server.pid());
                fs::read_to_string(table).unwrap().contains(&port)
            })
        };
        // memcached binds its UDP port once it listens on the other
        let takes_datagrams = line.contains(" -U ");
        wait_for("the server", || {
            (has("tcp") && (!takes_datagrams || has("udp"))).then_some(())
        });
        server
    }

    /// Starts clients that run as long as the test, and waits until they have begun.
    fn load(&self, target: &str, rate: u32) -> Running {
        let taillab = taillab().get_program().to_str().unwrap().to_owned();
        let clients = Running::program(&format!(
            "nsenter -t {} -n {taillab} load {target} -R {rate} -d 600s -c {CONNECTIONS} \
             --warmup 100ms --wait hybrid --json -q --floor off",
            self.client.pid()
        ));
        clients.connected(CONNECTIONS)
    }
}

#[test]
fn a_server_in_another_network_namespace_over_ipv6() {
    if !live("a_server_in_another_network_namespace_over_ipv6") {
        return;
    }
    let veth = Veth::new();
    let line = format!("memcached -u root -l fd98::1 -p {PORT} -U {PORT} -t 1");
    let _server = veth.serve(&line);
    let place = tempfile::tempdir().unwrap();
    for transport in ["udp", "tcp"] {
        let clients = veth.load(&format!("memcached+{transport}://[fd98::1]:{PORT}"), 2000);
        let dir = place.path().join(transport);
        let flag = format!("--{transport}");
        let output = trace(&["--port", &PORT.to_string(), &flag, "-d", "1s"], &dir);
        drop(clients);
        let result = keeps_its_promises(&output, &dir);
        assert!(complete_share(&result) > MOSTLY, "{}", result["matching"]);
    }
}

#[test]
fn a_control_group_in_another_network_namespace() {
    if !live("a_control_group_in_another_network_namespace") {
        return;
    }
    let veth = Veth::new();
    let taillab = taillab().get_program().to_str().unwrap().to_owned();
    let server = veth.serve(&format!(
        "{taillab} serve null-rpc --listen 10.98.0.1:{PORT}"
    ));
    let group = Group::with(server.pid()).expect("a control group can be made");
    let _clients = veth.load(&format!("echo+tcp://10.98.0.1:{PORT}"), 2000);
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("trace");
    let output = trace(&["--cgroup", group.path(), "-d", "1s"], &dir);
    let result = keeps_its_promises(&output, &dir);
    assert!(complete_share(&result) > MOSTLY, "{}", result["matching"]);
}
