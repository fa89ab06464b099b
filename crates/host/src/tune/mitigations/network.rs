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
