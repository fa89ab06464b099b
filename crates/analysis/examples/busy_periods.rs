//! What a request cost in the busy periods of each recording.
//!
//! `cargo run --release -p taillab-analysis --example busy_periods -- FILE…`
#![allow(clippy::unwrap_used, reason = "an example fails by panicking")]

use std::fs::File;

use taillab_analysis::matcher::match_recording;
use taillab_analysis::service_time::busy_periods;
use taillab_analysis::timeline::Timeline;
use taillab_model::{Monotonic, Recording};

fn main() {
    for path in std::env::args().skip(1) {
        let recording = Recording::read(File::open(&path).unwrap()).unwrap();
        let matched = match_recording(&recording).unwrap();
        let timeline = Timeline::build(recording.events(), &recording.context);
        let from = recording.context.measure_from_ns;
        let from = from.map_or(recording.base, Monotonic::from_nanos_since_boot);
        println!("{path}: {} requests", matched.requests.len());
        println!("{:?}", busy_periods::measure(&matched, &timeline, from));
    }
}
