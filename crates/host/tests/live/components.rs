//! Components of the machine that need root.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use taillab_host::components::{Bounds, Reflector, tap_round_trips};
use taillab_host::cpus::{self, MAX_CPUS};

#[test]
fn a_reflector_that_cannot_run_ends_the_measurement() {
    if !crate::common::live("a_reflector_that_cannot_run_ends_the_measurement") {
        return;
    }
    let here = cpus::allowed().unwrap().first().unwrap();
    let length = Duration::from_secs(600);
    let bounds = Bounds {
        most: 1 << 10,
        length,
        stop: &AtomicBool::new(false),
    };
    let began = Instant::now();
    let error = tap_round_trips(here, Reflector::OtherCpu(MAX_CPUS - 1), bounds).unwrap_err();
    let line = error.to_string();
    // a container may have no TAP devices
    assert!(
        line.contains("bind to CPU") || line.contains("/dev/net/tun"),
        "{line}"
    );
    assert!(began.elapsed() < length, "{line}");
}
