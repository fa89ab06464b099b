//! Time of the replay and its forecasts for a million requests, the most that are replayed, of a
//! simulated server with softirqs, background threads and wake-ups.
//!
//! `cargo run --release -p taillab-analysis --example replay_speed`
#![allow(clippy::unwrap_used, reason = "an example fails by panicking")]

#[path = "../tests/replay/simulator.rs"]
mod simulator;

use std::time::Instant;

use simulator::Server;
use taillab_analysis::predict::{Basis, predict};
use taillab_analysis::replay::{MAX_REPLAYED, Observed};
use taillab_analysis::statistics::distribution_of;
use taillab_model::{Monotonic, Nanos, RecordingContext};

fn main() {
    let begin = Instant::now();
    let server = Server {
        requests: MAX_REPLAYED,
        ..Server::default()
    };
    let (matched, track) = server.run();
    println!("{MAX_REPLAYED} requests made in {:.2?}", begin.elapsed());
    let all = 0..matched.requests.len();
    let sojourns: Vec<Nanos> = all.map(|place| matched.requests.sojourn(place)).collect();
    let sojourn = distribution_of(&sojourns);
    let context = RecordingContext::default();
    let begin = Instant::now();
    let from = Monotonic::from_nanos_since_boot(0);
    let observed = Observed::build(&matched, &track, &context, from);
    println!("built in {:.2?}", begin.elapsed());
    let begin = Instant::now();
    let evidence = Basis {
        sojourn: &sojourn,
        causes: &[],
        service_time: Nanos::new(100),
        process: None,
    };
    let predicted = predict(&observed, &evidence);
    println!(
        "fitted and {} forecasts made in {:.2?}; error {:.4}",
        predicted.predictions.len(),
        begin.elapsed(),
        predicted.model_fit.unwrap().largest_error
    );
}
