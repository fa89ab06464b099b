//! Which CPU receives and sends packets, and whether it waits for interrupts.

use taillab_model::mitigation;

use super::{Evidence, Mitigation, PUT_BACK, existing, proposal};
use crate::cpus::CpuSet;
use crate::tune::change::Change;
use crate::tune::proposal::{Proposal, Unavailable};
use crate::tune::scene::Scene;
use crate::tune::setting::{FileSetting, Form, Setting, suspensions};

const SCALING: &str = "kernel Documentation/networking/scaling.rst";
const NAPI: &str = "kernel Documentation/networking/napi.rst";

/// After this time without a poll by the server, interrupts are on again (napi.rst: longer than the usual time
/// between two polls).
const SUSPEND_NS: u64 = 20_000_000;

pub(super) const SOFTIRQ_CPU: Mitigation = Mitigation {
    is: mitigation::SOFTIRQ_CPU,
    needs: "-p or -C, and a CPU that is not among these; root",
    interface: "/sys/class/net/DEVICE/queues/rx-N/rps_cpus: the other CPUs",
    undo: PUT_BACK,
    proof: "/proc/net/softnet_stat: packets are counted on the other CPUs; /proc/softirqs: NET_RX",
    reference: SCALING,
    evidence: Evidence::Trial,
    plan: softirq_cpu,
};

pub(super) const BUSY_POLL: Mitigation = Mitigation {
    is: mitigation::BUSY_POLL,
    needs: "root; a driver with NAPI",
    interface: "/proc/sys/net/core/busy_poll, busy_read: 50 µs",
    undo: PUT_BACK,
    proof: "/proc/softirqs: NET_RX of the server's CPUs grows more slowly",
    reference: NAPI,
    evidence: Evidence::Documented,
    plan: busy_poll,
};

pub(super) const IRQ_SUSPENSION: Mitigation = Mitigation {
    is: mitigation::IRQ_SUSPENSION,
    needs: "a network device; root; a server that polls",
    interface: "/sys/class/net/DEVICE/napi_defer_hard_irqs: 2, gro_flush_timeout: 200000 ns; from Linux 6.13 also \
                irq-suspend-timeout of each of its receive contexts: 20 ms (generic netlink, family netdev)",
    undo: PUT_BACK,
    proof: "/proc/interrupts: the device's counts stay while the server is busy",
    reference: NAPI,
    evidence: Evidence::Documented,
    plan: irq_suspension,
};

/// A file of a device, in the server's network namespace.
fn of_device(scene: &Scene, device: &str, file: &str, form: Form) -> Setting {
    let path = format!("/sys/class/net/{device}/{file}");
    Setting::File(FileSetting::new(path, form).within(scene.namespace))
}

/// The files `queues/KIND-N/NAME` of a device, as many as there are.
fn queues(scene: &Scene, device: &str, kind: &str, name: &str, form: Form) -> Vec<Setting> {
    (0_u32..)
        .map(|number| {
            of_device(
                scene,
                device,
                &format!("queues/{kind}-{number}/{name}"),
                form,
            )
        })
        .take_while(|setting| setting.read(&scene.roots).is_ok())
        .collect()
}

/// Changes that let only `cpus` receive.
pub(super) fn steer(scene: &Scene, cpus: &CpuSet) -> Result<Vec<Change>, Unavailable> {
    let mut changes = Vec::new();
    for device in scene.devices()? {
        for setting in queues(scene, &device, "rx", "rps_cpus", Form::CpuMask) {
            let why = format!("packets of {device} are received on CPU {cpus}");
            changes.push(Change::new(setting, cpus.to_mask(), why));
        }
    }
    Ok(changes)
}

fn softirq_cpu(scene: &Scene) -> Result<Proposal, Unavailable> {
    let changes = steer(scene, &scene.other_cpus()?)?;
    proposal(
        changes,
        "no device can steer what it receives (RPS): the kernel lacks CONFIG_RPS",
    )
}

fn busy_poll(scene: &Scene) -> Result<Proposal, Unavailable> {
    let poll = |file: &str, why: &str| {
        let path = format!("/proc/sys/net/core/{file}");
        existing(scene, path, Form::Text, "50", why)
    };
    let changes = [
        poll(
            "busy_poll",
            "poll and select look at the device for 50 µs before they sleep",
        ),
        poll(
            "busy_read",
            "reads look at the device for 50 µs before they sleep",
        ),
    ];
    let changes = changes.into_iter().flatten().collect();
    proposal(
        changes,
        "the kernel has no busy polling (CONFIG_NET_RX_BUSY_POLL), or not in this network namespace",
    )
}

fn irq_suspension(scene: &Scene) -> Result<Proposal, Unavailable> {
    let mut changes = Vec::new();
    for device in scene.devices()? {
        for (file, new, what) in [
            (
                "napi_defer_hard_irqs",
                "2",
                "is polled twice more before it interrupts",
            ),
            (
                "gro_flush_timeout",
                "200000",
                "waits up to 200 µs for the next poll",
            ),
        ] {
            let setting = of_device(scene, &device, file, Form::Text);
            if setting.read(&scene.roots).is_ok() {
                changes.push(Change::new(setting, new, format!("{device} {what}")));
            }
        }
        // after the files, which the kernel copies to each receive context
        for suspension in suspensions(&scene.roots, &device, scene.namespace) {
            let why =
                format!("{device} stays without interrupts while a server polls and finds packets");
            let setting = Setting::Napi(suspension);
            changes.push(Change::new(setting, SUSPEND_NS.to_string(), why).if_possible());
        }
    }
    proposal(
        changes,
        "no device can defer its interrupts: Linux 5.7 or later can",
    )
}
