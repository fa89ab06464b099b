//! The replay must reproduce recorded servers: real ones of each architecture, and a simulated one.

use std::fs::File;
use std::path::Path;

use taillab_analysis::predict::{Basis, Predicted, predict};
use taillab_analysis::replay::{Cores, Observed};
use taillab_analysis::statistics::distribution_of;
use taillab_analysis::timeline::Timeline;
use taillab_analysis::{MatchOptions, match_events};
use taillab_model::{Monotonic, Nanos, Recording};

fn predicted(name: &str) -> Predicted {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let recording = Recording::read(File::open(folder.join(name)).unwrap()).unwrap();
    let context = recording.context.clone();
    let options = MatchOptions {
        sequential: true,
        ..MatchOptions::default()
    };
    let timeline = Timeline::build(recording.events(), &context);
    let matched = match_events(recording.into_events(), &options);
    let all = 0..matched.requests.len();
    let sojourns: Vec<Nanos> = all.map(|place| matched.requests.sojourn(place)).collect();
    let cores = Cores::new(&timeline, &context);
    let from = Monotonic::from_nanos_since_boot(0);
    let observed = Observed::build(&matched, &cores, &context, from);
    let evidence = Basis {
        sojourn: &distribution_of(&sojourns),
        causes: &[],
        service_time: Nanos::from_micros(15),
        process: None,
    };
    predict(&observed, &evidence)
}

/// One worker on one core: within 5 %; any other: within 15 %.
#[test]
fn recorded_servers_are_reproduced() {
    let servers = [
        ("memcached_5k_per_s.tlc", 0.05),
        ("memcached_90_percent.tlc", 0.05),
        ("memcached_tcp_pipelined.tlc", 0.05),
        ("memcached_tcp_4_threads.tlc", 0.15),
        ("nginx_2_workers.tlc", 0.15),
        ("thread_per_connection.tlc", 0.15),
        ("simulated.tlc", 0.15),
        ("simulated_shared_queue.tlc", 0.05),
    ];
    for (name, bound) in servers {
        let fit = predicted(name).model_fit.unwrap();
        assert!(fit.points.len() >= 2, "{name}: {fit:?}");
        assert!(fit.largest_error <= bound, "{name}: {fit:#?}");
    }
}

/// The measured assignment would reproduce it exactly, but another worker would have taken the requests.
#[test]
fn a_queue_that_workers_share_is_replayed_as_one() {
    let fit = predicted("simulated_shared_queue.tlc").model_fit.unwrap();
    assert!(fit.model.contains("one queue for all"), "{fit:?}");
}

/// Forecasts never fall from one percentile to the next, and lie within their intervals.
#[test]
fn forecasts_are_in_order_and_in_their_intervals() {
    let predicted = predicted("memcached_90_percent.tlc");
    assert!(predicted.predictions.len() > 3);
    for prediction in &predicted.predictions {
        let points = &prediction.points;
        assert!(
            points.is_sorted_by_key(|point| point.predicted_ns),
            "{prediction:?}"
        );
        for point in points {
            assert!(
                point.lo_ns.is_none_or(|lo| lo <= point.predicted_ns),
                "{prediction:?}"
            );
            assert!(
                point.hi_ns.is_none_or(|hi| hi >= point.predicted_ns),
                "{prediction:?}"
            );
        }
    }
    let mut commands = predicted
        .predictions
        .iter()
        .filter_map(|p| p.command.as_ref());
    assert!(commands.any(|command| command == "taillab tune plan rt-priority"));
}
