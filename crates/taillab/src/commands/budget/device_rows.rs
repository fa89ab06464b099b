//! The way to a PCI device and back: its configuration, and its clock.

use taillab_host::components::{config_reads, cross_time_stamps, first_function, ptp_clocks};
use taillab_host::environment::Virtualization;
use taillab_model::budget::Standing;

use super::bench::Bench;
use super::paper;
use super::row::{About, Row, parameter};

/// The paper's rows of PCIe, and the clock of a NIC.
pub fn pcie(bench: &Bench<'_>) -> Vec<Row> {
    bench.say.step("PCIe");
    let large = About {
        component: "PCIe, 1536 B",
        standing: Standing::Unavailable,
        how: String::new(),
        parameters: Vec::new(),
        paper: Some(paper::PCIE_1536),
    };
    vec![
        configuration(bench),
        clock(bench),
        large.unavailable(
            "it takes a card that reflects a DMA of this size, and a driver for it in user space: no \
             ordinary NIC or GPU offers one to measure"
                .to_owned(),
        ),
    ]
}

fn configuration(bench: &Bench<'_>) -> Row {
    let hypervisor = Virtualization::read(bench.roots).hypervisor();
    let mut about = About {
        component: "PCIe, 64 B",
        standing: Standing::Substituted,
        how: match hypervisor {
            Some(_) => "a read of 4 bytes of configuration space, which leaves this virtual \
                        machine: an exit to the hypervisor, not the bus"
                .into(),
            None => "a read of 4 bytes of configuration space".into(),
        },
        parameters: vec![parameter("length", bench.length)],
        paper: Some(paper::PCIE_64),
    };
    let Some(function) = first_function(bench.roots) else {
        return about.unavailable("no PCI device is visible here".to_owned());
    };
    about.parameters.extend([
        parameter("device", &function.address),
        parameter("vendor:device", &function.identity),
    ]);
    about.row(config_reads(bench.roots, &function, bench.bounds()))
}

/// A register of a card that the driver reads by itself: the whole way over the bus, and no system
/// call in it.
fn clock(bench: &Bench<'_>) -> Row {
    let mut about = About {
        component: "PCIe, NIC’s clock",
        standing: Standing::Measured,
        how: "the kernel’s clock right before and right after the driver reads the NIC’s clock \
              (PTP_SYS_OFFSET_EXTENDED)"
            .into(),
        parameters: vec![parameter("length", bench.length)],
        paper: None,
    };
    let clocks = ptp_clocks(bench.roots);
    let Some(clock) = clocks.first() else {
        return about.unavailable(
            "no NIC here has a clock of its own (/sys/class/ptp is empty; `ethtool -T DEVICE` shows \
             whether a card has one)"
                .to_owned(),
        );
    };
    about.parameters.extend([
        parameter("clock", format!("/dev/{}", clock.device)),
        parameter("name", &clock.name),
    ]);
    match &clock.function {
        Some(function) => about.parameters.push(parameter("device", function)),
        None => {
            about.standing = Standing::Substituted;
            about.how = format!(
                "{} is on no PCI device, so its reads are no way over a bus",
                clock.name
            );
        }
    }
    about.row(cross_time_stamps(clock, bench.bounds()))
}
