//! Which CPU receives and sends packets, and whether it waits for interrupts.

use taillab_model::mitigation;

use super::{Mitigation, PUT_BACK, at_least, existing, proposal};
use crate::cpus::CpuSet;
use crate::tune::change::Change;
use crate::tune::proposal::{Proposal, Unavailable};
use crate::tune::scene::Scene;
use crate::tune::setting::{FileSetting, Form, Setting, suspensions};

const SCALING: &str = "kernel Documentation/networking/scaling.rst";
const NAPI: &str = "kernel Documentation/networking/napi.rst";
/// Entries of the flow tables; the kernel's guide (scaling.rst) suggests this for a busy server.
const FLOWS: u32 = 32_768;

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
    plan: softirq_cpu,
};

pub(super) const RFS: Mitigation = Mitigation {
    is: mitigation::RFS,
    needs: "a network device; root",
    interface: "/proc/sys/net/core/rps_sock_flow_entries: 32768 at least; queues/rx-N/rps_flow_cnt: at least 32768 \
                divided by the number of queues, rounded up to a power of two",
    undo: PUT_BACK,
    proof: "/proc/net/softnet_stat: flow_limit and received_rps (tenth field)",
    reference: SCALING,
    plan: rfs,
};

pub(super) const XPS: Mitigation = Mitigation {
    is: mitigation::XPS,
    needs: "a network device with several transmit queues; root",
    interface: "/sys/class/net/DEVICE/queues/tx-N/xps_cpus: CPU c sends by queue c modulo their number",
    undo: PUT_BACK,
    proof: "ethtool -S DEVICE: each queue's packets",
    reference: SCALING,
    plan: xps,
};

pub(super) const THREADED_NAPI: Mitigation = Mitigation {
    is: mitigation::THREADED_NAPI,
    needs: "a network device; root; a veth needs GRO on (ethtool -K DEVICE gro on)",
    interface: "/sys/class/net/DEVICE/threaded: 1",
    undo: PUT_BACK,
    proof: "ps: napi/DEVICE-N use CPU time, NET_RX of /proc/softirqs stays",
    reference: NAPI,
    plan: threaded_napi,
};

pub(super) const BUSY_POLL: Mitigation = Mitigation {
    is: mitigation::BUSY_POLL,
    needs: "root; a driver with NAPI",
    interface: "/proc/sys/net/core/busy_poll, busy_read: 50 µs",
    undo: PUT_BACK,
    proof: "/proc/softirqs: NET_RX of the server's CPUs grows more slowly",
    reference: NAPI,
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

fn rfs(scene: &Scene) -> Result<Proposal, Unavailable> {
    let path = "/proc/sys/net/core/rps_sock_flow_entries";
    let table = Setting::File(FileSetting::new(path, Form::Text));
    let table = at_least(scene, table, FLOWS, "remembers where each flow is read");
    let table = table.ok_or_else(|| Unavailable("the kernel has no RFS (CONFIG_RPS)".into()))?;
    let mut changes = vec![table];
    for device in scene.devices()? {
        let queues = queues(scene, &device, "rx", "rps_flow_cnt", Form::Text);
        // the kernel rounds it up, and would show another value than the one that was written
        let each = (FLOWS / u32::try_from(queues.len().max(1)).unwrap_or(1)).next_power_of_two();
        for setting in queues {
            let why = format!("packets of {device} follow their reader");
            changes.extend(at_least(scene, setting, each, why));
        }
    }
    Ok(changes.into())
}

fn xps(scene: &Scene) -> Result<Proposal, Unavailable> {
    let mut changes = Vec::new();
    for device in scene.devices()? {
        let queues = queues(scene, &device, "tx", "xps_cpus", Form::CpuMask);
        let count = u32::try_from(queues.len()).unwrap_or(u32::MAX);
        if count < 2 {
            continue;
        }
        for (number, setting) in (0_u32..).zip(queues) {
            let cpus: CpuSet = scene
                .online
                .iter()
                .filter(|cpu| cpu % count == number)
                .collect();
            // a queue without a CPU loses those that it has now: each CPU is to have one queue
            let why = match cpus.is_empty() {
                true => format!("no CPU sends by queue {number} of {device}"),
                false => {
                    format!("CPU {cpus} sends by queue {number} of {device}, which no other uses")
                }
            };
            changes.push(Change::new(setting, cpus.to_mask(), why));
        }
    }
    proposal(changes, "no device here has more than one transmit queue")
}

fn threaded_napi(scene: &Scene) -> Result<Proposal, Unavailable> {
    let mut changes = Vec::new();
    for device in scene.devices()? {
        let setting = of_device(scene, &device, "threaded", Form::Text);
        if setting.read(&scene.roots).is_ok() {
            let why = format!("{device} receives in threads, which the scheduler can place");
            changes.push(Change::new(setting, "1", why));
        }
    }
    let changed = proposal(
        changes,
        "no device can receive in threads: Linux 5.12 or later can",
    )?;
    Ok(changed.with_note(
        "the new threads napi/DEVICE-N may run on every CPU: apply others-affinity after it",
    ))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::testing::tree;
    use crate::tune::scene::Scope;

    /// What is planned for a device with this many queues on a machine with four CPUs.
    fn planned(plan: fn(&Scene) -> Result<Proposal, Unavailable>, queues: usize) -> Vec<Change> {
        let mut files = vec![
            ("proc/self/net/dev".to_owned(), " eth0: 100 10 0\n"),
            ("proc/sys/net/core/rps_sock_flow_entries".to_owned(), "0\n"),
            ("sys/devices/system/cpu/online".to_owned(), "0-3\n"),
        ];
        for queue in 0..queues {
            let folder = "sys/class/net/eth0/queues";
            files.push((format!("{folder}/rx-{queue}/rps_flow_cnt"), "0\n"));
            files.push((format!("{folder}/tx-{queue}/xps_cpus"), "0\n"));
        }
        let files: Vec<(&str, &str)> = (files.iter())
            .map(|(path, text)| (path.as_str(), *text))
            .collect();
        let (_folder, roots) = tree(&files);
        let scene = Scene::look(&roots, &Scope::default()).unwrap();
        plan(&scene).unwrap().changes
    }

    #[test]
    fn each_queue_gets_a_number_of_flows_that_the_kernel_does_not_round() {
        for (queues, each) in [(1, "32768"), (2, "16384"), (3, "16384"), (6, "8192")] {
            let changes = planned(rfs, queues);
            assert_eq!(changes[0].new, "32768");
            assert_eq!(changes.len(), queues + 1);
            let mut of_queues = changes[1..].iter();
            assert!(of_queues.all(|change| change.new == each), "{changes:?}");
        }
    }

    #[test]
    fn a_table_of_flows_is_never_made_smaller() {
        let (_folder, roots) = tree(&[
            ("proc/self/net/dev", " eth0: 100 10 0\n"),
            ("proc/sys/net/core/rps_sock_flow_entries", "65536\n"),
            ("sys/devices/system/cpu/online", "0-3\n"),
            ("sys/class/net/eth0/queues/rx-0/rps_flow_cnt", "65536\n"),
            ("sys/class/net/eth0/queues/rx-1/rps_flow_cnt", "4096\n"),
        ]);
        let scene = Scene::look(&roots, &Scope::default()).unwrap();
        let changes = rfs(&scene).unwrap().changes;
        let new: Vec<&str> = changes.iter().map(|change| change.new.as_str()).collect();
        assert_eq!(new, ["65536", "65536", "16384"]);
        assert_eq!(changes[0].why, "it is at least 32768 already");
    }

    #[test]
    fn a_queue_more_than_there_are_cpus_is_used_by_none() {
        let changes = planned(xps, 5);
        let masks: Vec<&str> = changes.iter().map(|change| change.new.as_str()).collect();
        assert_eq!(
            masks,
            ["00000001", "00000002", "00000004", "00000008", "00000000"]
        );
        assert_eq!(changes[4].why, "no CPU sends by queue 4 of eth0");
        assert!(changes[3].why.starts_with("CPU 3 sends"), "{changes:?}");
    }
}
