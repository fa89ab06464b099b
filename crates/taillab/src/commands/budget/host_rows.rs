//! User space and the kernel.

use taillab_host::components::{Reflector, tap_round_trips};
use taillab_model::budget::Standing;

use super::bench::{Bench, ONE_CPU};
use super::paper;
use super::row::{About, Row, parameter};

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
    let trips = |reflector| tap_round_trips(bench.here, reflector, bench.bounds());
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
