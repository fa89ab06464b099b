//! What the ledger says about a recording: the composition of its excess, and the slowest
//! requests.
//!
//! `cargo run --release -p taillab-analysis --example explain_file -- FILE.tlc [t in ns]`
#![allow(clippy::unwrap_used, reason = "an example fails by panicking")]

use std::fs::File;
use std::io::BufReader;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Instant;

use taillab_analysis::timeline::{TimelineBuilder, busy_stretches};
use taillab_analysis::{Analysis, AnalysisOptions, MatchOptions, Matcher, Window};
use taillab_model::{Event, Monotonic, Nanos, Recording};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().unwrap();
    let given: Option<u64> = arguments.next().and_then(|t| t.parse().ok());
    let begin = Instant::now();
    let (recording, damage) =
        Recording::recover(BufReader::new(File::open(&file).unwrap())).unwrap();
    let context = recording.context.clone();
    println!(
        "{} events, {damage:?}, read in {:.2?}",
        recording.len(),
        begin.elapsed()
    );

    let begin = Instant::now();
    let options = MatchOptions::of(&context).unwrap();
    let recording_lost = recording.lost.total();
    let mut events: Vec<Event> = recording.into_events().collect();
    events.sort_by_key(|event| event.at);
    let mut matcher = Matcher::of_recording(options, &context);
    let mut builder = TimelineBuilder::new(&context);
    for event in &events {
        matcher.observe(event);
        builder.observe(event);
    }
    let matched = matcher.finish();
    let timeline = builder.finish();
    println!(
        "{} requests in {:.2?}; {:?}",
        matched.requests.len(),
        begin.elapsed(),
        timeline.seen()
    );
    let measure_from = Monotonic::from_nanos_since_boot(context.measure_from_ns.unwrap_or(0));
    let busy = busy_stretches(&matched, &timeline, measure_from, 1).pop();
    let t = given.map(Nanos::new).or(context.service_time_ns);
    println!("t: {:?}, by busy time {busy:?}", context.service_time_ns);
    let service_time = t.or(busy.map(|busy| busy.per_request)).unwrap();
    let workers = NonZeroU32::new(context.workers.unwrap_or(1)).unwrap();
    let options = AnalysisOptions {
        slowest: 5,
        ..AnalysisOptions::new(service_time, workers, measure_from)
    };
    let begin = Instant::now();
    let mut wrong = 0_u64;
    let mut analysis = Analysis::new(&context, options);
    analysis.push(&Arc::new(Window::whole(matched, timeline)), |entry, _| {
        let sum: u64 = entry.parts.iter().map(|part| part.1).sum();
        wrong += u64::from(sum != entry.sojourn_ns);
    });
    let explained = analysis.finish(recording_lost).unwrap().server;
    let explanation = explained.explanation.unwrap_or_default();
    println!(
        "explained in {:.2?}; {wrong} sums are wrong",
        begin.elapsed()
    );
    for share in &explained.causes {
        let who = share.culprit.as_ref().map(ToString::to_string);
        println!(
            "{:<16} {:<34} {:5.1} % ({:.3?}..{:.3?}) above p99 {:5.1} %  {} requests, {} episodes of {:.0} ns",
            share.cause.key(),
            who.unwrap_or_default(),
            100.0 * share.share.value,
            share.share.lo.unwrap_or(f64::NAN),
            share.share.hi.unwrap_or(f64::NAN),
            100.0 * share.excess_share_above_p99.value,
            share.requests,
            share.episodes,
            share.mean_episode_ns
        );
    }
    for band in &explanation.bands {
        println!(
            "{}..{}: {} requests, {:.0} ns, ideal {:.0}",
            band.from_q, band.to_q, band.requests, band.mean_sojourn_ns, band.mean_ideal_ns
        );
        for part in &band.parts {
            println!(
                "    {:<16} {:>12.0} ns {:5.1} %",
                part.cause.key(),
                part.mean_excess_ns,
                100.0 * part.share.value
            );
        }
    }
    for slow in &explanation.slowest {
        println!(
            "{} ideal {:?} {:?}",
            slow.sojourn_ns, slow.ideal_ns, slow.stamps_ns
        );
        for stretch in slow.stretches.iter().take(25) {
            let who = stretch
                .culprit
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default();
            let inherited = if stretch.inherited { "inherited" } else { "" };
            println!(
                "    {:>10} {:>10} {} {who} {inherited}",
                stretch.from_ns.get(),
                stretch.lasted_ns.get(),
                stretch.cause.key()
            );
        }
    }
    println!("{:?}", explained.model_fit);
    println!("{:#?}", explanation.findings);
    println!("{:?} {:?}", explanation.clustering, explanation.inversions);
    println!("{:?}", explanation.workers);
}
