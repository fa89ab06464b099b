//! The way to a PCI device and back: its configuration, and its clock.

use taillab_host::components::{config_reads, cross_time_stamps, first_function, ptp_clocks};
use taillab_host::environment::Virtualization;

use super::bench::Bench;
use super::paper;
use super::row::{Component, Row};
use crate::result::Standing;

/// The paper's rows of PCIe, and the clock of a NIC.
pub fn pcie(bench: &Bench<'_>) -> Vec<Row> {
    bench.messages.step("PCIe");
    let large = Row::unavailable(
        "PCIe, 1536 B",
        "this needs a card that reflects a DMA of this size, and a driver for it in user space: no \
         ordinary NIC or GPU offers one to measure",
        Some(paper::PCIE_1536),
    );
    vec![configuration(bench), clock(bench), large]
}

fn configuration(bench: &Bench<'_>) -> Row {
    let hypervisor = Virtualization::read(bench.roots).hypervisor();
    let row = Component::new(
        "PCIe, 64 B",
        Standing::Substituted,
        match hypervisor {
            Some(_) => {
                "a read of 4 bytes of configuration space, which leaves this virtual machine: an exit \
                 to the hypervisor, not the bus"
            }
            None => "a read of 4 bytes of configuration space",
        },
        Some(paper::PCIE_64),
    )
    .with("length", bench.length);
    let Some(function) = first_function(bench.roots) else {
        return row.unavailable("no PCI device is visible here");
    };
    row.with("device", &function.address)
        .with("vendor:device", &function.identity)
        .measured(config_reads(bench.roots, &function, bench.bounds()))
}

/// The driver's read of a register of a card: the whole way over the bus, without the cost of a system
/// call.
fn clock(bench: &Bench<'_>) -> Row {
    let row = Component::new(
        "PCIe, NIC’s clock",
        Standing::Measured,
        "the kernel’s clock right before and right after the driver reads the NIC’s clock \
         (PTP_SYS_OFFSET_EXTENDED)",
        None,
    )
    .with("length", bench.length);
    let clocks = ptp_clocks(bench.roots);
    let Some(clock) = clocks.first() else {
        return row.unavailable(
            "no NIC here has a clock of its own (/sys/class/ptp is empty; `ethtool -T DEVICE` shows \
             whether a card has one)",
        );
    };
    let row = row
        .with("clock", format_args!("/dev/{}", clock.device))
        .with("name", &clock.name);
    let row = match &clock.function {
        Some(function) => row.with("device", function),
        None => row.substituted(format!(
            "{} is not on a PCI device, so reading it does not cross a bus",
            clock.name
        )),
    };
    row.measured(cross_time_stamps(clock, bench.bounds()))
}
