//! User space and the kernel, and PCIe.

use taillab_host::components::{Reflector, config_reads, first_function, tap_round_trips};
use taillab_host::environment::Virtualization;
use taillab_model::budget::Standing;

use super::bench::{Bench, ONE_CPU};
use super::paper;
use super::row::{About, Row, parameter};

/// Samples of a row, at most: they are kept to the end.
const MOST: usize = 400_000;

/// The paper's rows of user space and the operating system.
pub fn user_space(bench: &Bench<'_>) -> Vec<Row> {
    bench.say.step("user space and the kernel");
    let about = |component, who: &str, paper| About {
        component,
        standing: Standing::Measured,
        how: format!("packet socket → TAP → read → write → packet socket, {who}"),
        parameters: vec![
            parameter("frame", "60 bytes"),
            parameter("cpu", bench.here),
            parameter("length", bench.length),
        ],
        paper: Some(paper),
    };
    let trips = |reflector| tap_round_trips(bench.here, reflector, MOST, bench.length());
    let same = about(
        "user space + OS, same core",
        "one thread that spins",
        paper::SAME_CORE,
    )
    .row(trips(Reflector::SameThread));
    let mut other = about(
        "user space + OS, other core",
        "two threads that spin",
        paper::OTHER_CORE,
    );
    let other = match bench.there {
        None => other.unavailable(ONE_CPU.to_owned()),
        Some(there) => {
            other.parameters.push(parameter("other cpu", there));
            other.row(trips(Reflector::OtherCpu(there)))
        }
    };
    vec![same, other]
}

/// The way to a PCI device and back.
pub fn pcie(bench: &Bench<'_>) -> Vec<Row> {
    bench.say.step("PCIe");
    let hypervisor = Virtualization::read(bench.roots).hypervisor();
    let function = first_function(bench.roots);
    let mut small = About {
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
    let small = match &function {
        None => small.unavailable("no PCI device is visible here".to_owned()),
        Some(function) => {
            small
                .parameters
                .push(parameter("device", &function.address));
            small
                .parameters
                .push(parameter("vendor:device", &function.identity));
            small.row(config_reads(bench.roots, function, MOST, bench.length()))
        }
    };
    let large = About {
        component: "PCIe, 1536 B",
        standing: Standing::Unavailable,
        how: String::new(),
        parameters: Vec::new(),
        paper: Some(paper::PCIE_1536),
    };
    vec![
        small,
        large.unavailable(
            "it takes a card that reflects a DMA of this size; no device here does".to_owned(),
        ),
    ]
}
