//! How well the replay reproduces a recording, and what it forecasts.
//!
//! `cargo run --release -p taillab-analysis --example replay_fit -- FILE.tlc …`
#![allow(clippy::unwrap_used, reason = "an example fails by panicking")]

use std::fs::File;
use std::time::Instant;

use taillab_analysis::predict::{Basis, predict};
use taillab_analysis::replay::{Cores, Observed};
use taillab_analysis::statistics::distribution_of;
use taillab_analysis::timeline::Timeline;
use taillab_analysis::{MatchOptions, match_events};
use taillab_model::{Monotonic, Nanos, Recording};

fn main() {
    let files: Vec<String> = std::env::args().skip(1).collect();
    if files.is_empty() {
        eprintln!("usage: replay_fit FILE.tlc …");
        std::process::exit(2);
    }
    for path in files {
        let recording = Recording::read(File::open(&path).unwrap()).unwrap();
        let context = recording.context.clone();
        let options = MatchOptions::of(&context).unwrap();
        let timeline = Timeline::build(recording.into_events(), &context);
        let recording = Recording::read(File::open(&path).unwrap()).unwrap();
        let matched = match_events(recording.into_events(), &options);
        let from = Monotonic::from_nanos_since_boot(context.measure_from_ns.unwrap_or(0));
        let sojourns: Vec<Nanos> = (0..matched.requests.len())
            .filter(|&place| matched.is_measured(place, from))
            .map(|place| matched.requests.sojourn(place))
            .collect();
        let sojourn = distribution_of(&sojourns);
        let begin = Instant::now();
        let cores = Cores::new(&timeline, &context);
        let observed = Observed::build(&matched, &cores, &context, from);
        let built = begin.elapsed();
        let evidence = Basis {
            sojourn: &sojourn,
            causes: &[],
            service_time: context.service_time_ns.unwrap_or(Nanos::from_micros(15)),
            process: None,
        };
        let predicted = predict(&observed, &evidence);
        println!(
            "{path}: {} requests, built in {built:.2?}, all in {:.2?}",
            matched.requests.len(),
            begin.elapsed()
        );
        for limit in &predicted.limits {
            println!("  {limit}");
        }
        let Some(fit) = &predicted.model_fit else {
            println!("  too few requests");
            continue;
        };
        println!("  {}: error {:.3}", fit.model, fit.largest_error);
        for point in &fit.points {
            println!(
                "    p{} measured {} replayed {}",
                100.0 * point.q,
                point.measured_ns,
                point.replayed_ns
            );
        }
        for prediction in &predicted.predictions {
            print!("  {:32}", prediction.change);
            for point in &prediction.points {
                let bound = |ns: Option<Nanos>| ns.map_or("?".to_owned(), |ns| ns.to_string());
                print!(
                    "  p{} {} ({} to {})",
                    100.0 * point.q,
                    point.predicted_ns,
                    bound(point.lo_ns),
                    bound(point.hi_ns)
                );
            }
            println!();
        }
    }
}
