//! What a network card does on its own: coalescing and offloads.

use taillab_model::mitigation;

use super::{Mitigation, PUT_BACK, proposal};
use crate::tune::change::Change;
use crate::tune::proposal::{Proposal, Unavailable};
use crate::tune::scene::Scene;
use crate::tune::setting::{EthtoolSetting, Parameter, Setting};

pub(super) const COALESCING: Mitigation = Mitigation {
    is: mitigation::COALESCING,
    needs: "a network device whose driver coalesces (a veth has none); root",
    interface: "ethtool -C: adaptive-rx off, rx-usecs 50",
    undo: PUT_BACK,
    proof: "/proc/interrupts: fewer interrupts for as many packets",
    reference: "man 8 ethtool",
    plan: coalescing,
};

pub(super) const OFFLOADS: Mitigation = Mitigation {
    is: mitigation::OFFLOADS,
    needs: "a network device; root",
    interface: "ethtool -K: gro off, lro off",
    undo: PUT_BACK,
    proof: "ethtool -k DEVICE; the size of received packets",
    reference: "man 8 ethtool; kernel Documentation/networking/segmentation-offloads.rst",
    plan: offloads,
};

/// Changes of these parameters of each device that has them.
fn of_devices(
    scene: &Scene,
    wanted: &[(Parameter, &str, &str)],
) -> Result<Vec<Change>, Unavailable> {
    let mut changes = Vec::new();
    for device in scene.devices()? {
        for (parameter, new, why) in wanted {
            let setting = Setting::Ethtool(EthtoolSetting {
                device: device.clone(),
                namespace: scene.namespace,
                parameter: *parameter,
            });
            if setting.read(&scene.roots).is_ok() {
                // a driver may show a parameter that it does not let us change
                changes.push(Change::new(setting, *new, format!("{device} {why}")).if_possible());
            }
        }
    }
    Ok(changes)
}

fn coalescing(scene: &Scene) -> Result<Proposal, Unavailable> {
    let wanted = [
        (
            Parameter::AdaptiveRx,
            "0",
            "must not choose the time itself",
        ),
        (Parameter::RxUsecs, "50", "interrupts at most every 50 µs"),
    ];
    let changes = of_devices(scene, &wanted)?;
    proposal(
        changes,
        "no driver here coalesces interrupts, or it does not say so (ethtool -c)",
    )
}

fn offloads(scene: &Scene) -> Result<Proposal, Unavailable> {
    let wanted = [
        (Parameter::Gro, "0", "hands each packet on as it comes"),
        (Parameter::Lro, "0", "merges no packets in hardware"),
    ];
    let changes = of_devices(scene, &wanted)?;
    proposal(changes, "no device reports its offloads (ethtool -k)")
}
