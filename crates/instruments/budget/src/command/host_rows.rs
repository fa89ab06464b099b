//! User space and the kernel.

use taillab_host::components::{Reflector, tap_round_trips};

use super::bench::Bench;
use super::paper;
use super::row::{Component, Row};
use crate::result::Standing;

/// The paper's rows of user space and the operating system.
pub fn user_space(bench: &Bench<'_>) -> Vec<Row> {
    bench.messages.step("user space and the kernel");
    let row = |component, who: &str, paper| {
        let how = format!("packet socket → TAP → read → write → packet socket, {who}");
        Component::new(component, Standing::Measured, &how, paper).with("frame", "60 bytes")
    };
    let trips = |reflector| tap_round_trips(bench.here, reflector, bench.bounds());
    let same = row(
        "user space + OS, same core",
        "one thread that spins",
        Some(paper::SAME_CORE),
    );
    let other = row(
        "user space + OS, other core",
        "two threads that spin",
        Some(paper::OTHER_CORE),
    );
    vec![
        same.with("cpu", bench.here)
            .with("length", bench.length)
            .measured(trips(Reflector::SameThread)),
        other.on_two_cpus(bench, |there| trips(Reflector::OtherCpu(there))),
    ]
}
