//! What the ledger made of known causes, again, from what `taillab bench causes -o` kept:
//! the confusion matrix, and the requests whose delay was charged worst, with the lines of
//! time around them.
//!
//! `cargo run --release -p taillab-analysis --example confusion_file -- DIR/KIND [requests]`
#![allow(clippy::unwrap_used, reason = "an example fails by panicking")]

use std::fs::File;
use std::io::BufReader;
use std::num::NonZeroU32;
use std::path::Path;

use taillab_analysis::confusion::{Charge, Row, Span, confusion, delays};
use taillab_analysis::timeline::Timeline;
use taillab_analysis::{
    ExplainOptions, MatchOptions, Matched, explain_each, match_events, timeline::Top,
};
use taillab_model::truth::Truth;
use taillab_model::{Event, Monotonic, Nanos, Recording, RecordingContext};

/// How far around a request its lines are shown.
const AROUND: Nanos = Nanos::from_micros(30);

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().unwrap();
    let worst: usize = arguments.next().map_or(0, |count| count.parse().unwrap());
    let folder = Path::new(&folder);
    let open = |name| BufReader::new(File::open(folder.join(name)).unwrap());
    let (recording, _) = Recording::recover(open("capture.tlc")).unwrap();
    let truth: Truth = serde_json::from_reader(open("truth.json")).unwrap();
    let context = recording.context.clone();
    let mut events: Vec<Event> = recording.into_events().collect();
    events.sort_by_key(|event| event.at);
    let options = match context.transport.as_str() {
        "tcp" => MatchOptions::for_streams(Nanos::from_secs(3), context.sequential),
        _ => MatchOptions::default(),
    };
    let matched = match_events(events.iter().copied(), &options);
    let timeline = Timeline::build(events.iter().copied(), &context);
    let measure_from = context.measure_from_ns.unwrap_or(0);
    let options = ExplainOptions {
        service_time: context.service_time_ns.unwrap(),
        workers: NonZeroU32::new(context.workers.unwrap_or(1)).unwrap(),
        measure_from: Monotonic::from_nanos_since_boot(measure_from),
        slowest: 0,
    };
    let mut charges: Vec<Option<Vec<Charge>>> = vec![None; matched.requests.len()];
    let explained = explain_each(&matched, &timeline, &context, &options, |entry, labels| {
        let charge = |(label, excess_ns): &(u32, u64)| Charge {
            cause: labels.cause(*label),
            culprit: labels.culprit(*label),
            excess_ns: *excess_ns,
        };
        charges[entry.place] = Some(entry.excess.iter().map(charge).collect());
    });
    let spans: Vec<Span> = (0..matched.requests.len())
        .map(|place| Span {
            t1: matched.requests.t1(place),
            t6: matched.requests.t6(place),
            worker: 0,
        })
        .collect();
    let delays = delays(&spans, &truth);
    for row in confusion(&truth.sources, &delays, &charges) {
        show(&row);
    }
    println!(
        "t {}, model fit {:?}",
        options.service_time,
        explained.model_fit.map(|fit| fit.largest_error)
    );
    let missing = |place: usize| {
        let right = truth.sources[0].cause;
        let charged = charges[place].iter().flatten();
        let right = charged.filter(|charge| charge.cause == right);
        let right: u64 = right.map(|charge| charge.excess_ns).sum();
        let known = charges[place].is_some();
        delays[0][place].get().saturating_sub(right) * u64::from(known)
    };
    let mut places: Vec<usize> = (0..spans.len()).collect();
    places.sort_by_key(|place| std::cmp::Reverse(missing(*place)));
    for place in places.into_iter().take(worst) {
        println!(
            "\nrequest {place}: injected {}, missing {}",
            delays[0][place],
            Nanos::new(missing(place))
        );
        for charge in charges[place].iter().flatten() {
            let who = charge.culprit.as_ref().map(ToString::to_string);
            let (cause, who) = (charge.cause.key(), who.unwrap_or_default());
            println!("    {cause} {who}: {}", Nanos::new(charge.excess_ns));
        }
        around(place, &matched, &timeline, &context, &truth);
    }
}

fn show(row: &Row) {
    println!(
        "{}: {} requests late by {}: right {:.1} %, unseen {:.1} %",
        row.source.injected,
        row.requests,
        row.injected,
        100.0 * row.right_share(),
        100.0 * row.unseen_share()
    );
    for (cause, _) in &row.charged {
        println!(
            "    {:<16} {:5.1} %",
            cause.key(),
            100.0 * row.share_of(*cause)
        );
    }
}

/// The truth and the lines of time around a request, from its T1 on.
fn around(
    place: usize,
    matched: &Matched,
    timeline: &Timeline,
    context: &RecordingContext,
    truth: &Truth,
) {
    let stamps = matched.requests.stamps(place);
    let begin = stamps.t1.nanos_since_boot();
    let us = |at: Monotonic| (at.nanos_since_boot() as f64 - begin as f64) / 1e3;
    let middle = stamps.middle.map(|at| at.map(us));
    println!("  T1 0, {middle:.1?}, T6 {:.1} µs", us(stamps.t6));
    let from = Monotonic::from_nanos_since_boot(begin - AROUND.get());
    let to = stamps.t6 + AROUND;
    for interval in &truth.intervals {
        if interval.to_ns > from && interval.from_ns < to {
            let (from, to) = (us(interval.from_ns), us(interval.to_ns));
            println!("  truth {} {from:.1} .. {to:.1}", interval.source);
        }
    }
    for line in timeline.cpus() {
        for segment in line.segments_from(from).take_while(|s| s.from < to) {
            let name = context.threads.iter().find(|t| t.tid == segment.thread);
            let name = name.map_or("", |thread| thread.comm.as_str());
            let top = match segment.top {
                Top::Nothing => String::new(),
                top => format!("{top:?}"),
            };
            println!(
                "  cpu {} {:>9.1} + {:>8.1}  {} {name} {top}",
                line.cpu(),
                us(segment.from),
                segment.length().get() as f64 / 1e3,
                segment.thread,
            );
        }
    }
    for worker in timeline.workers() {
        let spans = worker.spans_from(from).take_while(|span| span.from < to);
        for span in spans {
            println!(
                "  worker {} {:>9.1} {:?}",
                worker.tid(),
                us(span.from),
                span.state
            );
        }
    }
}
