//! How TCP sends.

use taillab_model::mitigation;

use super::{Mitigation, PUT_BACK, proposal};
use crate::tune::change::Change;
use crate::tune::proposal::{Proposal, Unavailable};
use crate::tune::scene::Scene;
use crate::tune::setting::{FileSetting, Form, Setting};

pub(super) const TCP_LATENCY: Mitigation = Mitigation {
    is: mitigation::TCP_LATENCY,
    needs: "root",
    interface: "/proc/sys/net/ipv4 of the server's network namespace: tcp_autocorking 0, \
                tcp_slow_start_after_idle 0, tcp_notsent_lowat 16384",
    undo: PUT_BACK,
    proof: "nstat: TcpExtTCPAutoCorking stays",
    reference: "kernel Documentation/networking/ip-sysctl.rst",
    plan: tcp_latency,
};

pub(super) const TCP_LOSS: Mitigation = Mitigation {
    is: mitigation::TCP_LOSS,
    needs: "root",
    interface: "/proc/sys/net/core/netdev_max_backlog: 16384 at least; /proc/sys/net/ipv4/tcp_rmem of the server's \
                network namespace: up to 16 MiB at least",
    undo: PUT_BACK,
    proof: "/proc/net/softnet_stat: dropped (second field) stays; nstat: TcpExtTCPBacklogDrop, TcpExtTCPRcvQDrop stay",
    reference: "kernel Documentation/networking/ip-sysctl.rst",
    plan: tcp_loss,
};

/// How many packets may wait for the CPU that receives them, at least.
const BACKLOG: u64 = 16_384;
/// The size that a socket's receive buffer may grow to, at least.
const RECEIVE_BYTES: u64 = 16 << 20;

fn tcp_loss(scene: &Scene) -> Result<Proposal, Unavailable> {
    let mut changes = Vec::new();
    for (path, namespace, least, why) in [
        (
            "/proc/sys/net/core/netdev_max_backlog",
            // it is the machine's, and only the first network namespace shows it
            None,
            BACKLOG,
            "a burst of packets finds room while the CPU is busy",
        ),
        (
            "/proc/sys/net/ipv4/tcp_rmem",
            scene.namespace,
            RECEIVE_BYTES,
            "a connection finds room while the server is held up",
        ),
    ] {
        let setting = Setting::File(FileSetting::new(path, Form::Text).within(namespace));
        let Ok(now) = setting.read(&scene.roots) else {
            continue;
        };
        // the last word is the maximum
        let mut words: Vec<&str> = now.split_ascii_whitespace().collect();
        let most = words.pop().and_then(|most| most.parse::<u64>().ok());
        let least_text = least.to_string();
        if most.is_some_and(|most| most < least) {
            words.push(&least_text);
            changes.push(Change::new(setting, words.join(" "), why));
        }
    }
    proposal(
        changes,
        "there is room enough already, or the kernel has none of these settings",
    )
}

fn tcp_latency(scene: &Scene) -> Result<Proposal, Unavailable> {
    let mut changes = Vec::new();
    for (file, new, why) in [
        (
            "tcp_autocorking",
            "0",
            "small writes are not held back for more",
        ),
        (
            "tcp_slow_start_after_idle",
            "0",
            "a connection that was idle keeps its window",
        ),
        (
            "tcp_notsent_lowat",
            "16384",
            "little waits in the socket behind what is being sent",
        ),
    ] {
        let path = format!("/proc/sys/net/ipv4/{file}");
        let setting = Setting::File(FileSetting::new(path, Form::Text).within(scene.namespace));
        if setting.read(&scene.roots).is_ok() {
            changes.push(Change::new(setting, new, why));
        }
    }
    proposal(changes, "the kernel has none of these settings")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::testing::tree;
    use crate::tune::scene::Scope;

    #[test]
    fn the_backlog_is_the_machines_wherever_the_server_is() {
        let path = "/proc/sys/net/core/netdev_max_backlog";
        let (_folder, roots) = tree(&[
            ("sys/devices/system/cpu/online", "0-1\n"),
            ("proc/sys/net/core/netdev_max_backlog", "1000\n"),
        ]);
        let mut scene = Scene::look(&roots, &Scope::default()).unwrap();
        scene.namespace = Some(1);
        let changes = tcp_loss(&scene).unwrap().changes;
        assert_eq!(changes.len(), 1, "{changes:?}");
        let backlog = Setting::File(FileSetting::new(path, Form::Text));
        assert_eq!(changes[0].setting, backlog);
        assert_eq!(changes[0].new, "16384");
    }
}
