//! Two probes watch the same traffic, one with the best hooks of this kernel, the other with
//! hooks that can replace them: they agree on every request.
//!
//! Which hooks there are differs from kernel to kernel: fentry and fexit against tracepoints
//! where both are allowed. Needs memcached.

use crate::testbed::streams::{Calls, StreamBed};
use crate::testbed::{Testbed, first_unspoiled, is_hidden, live};
use taillab_analysis::{DatagramIds, MatchOptions, Matched, match_events};
use taillab_model::{Monotonic, Nanos, Recording, Stamps};
use taillab_probe::{Probe, ProbeSpec, Transport, survey};

/// The hooks that this kernel allows although it has a better one: the stamp, the hook, and
/// what has to be avoided to get it.
fn lesser_hooks(transport: &str) -> Vec<(String, String, Vec<String>)> {
    let trials = survey().expect("this kernel lets the probe load").hooks;
    let own: Vec<_> = trials
        .iter()
        .filter(|trial| trial.transport == transport && trial.stamp.starts_with('T'))
        .collect();
    let replaceable = own.iter().filter(|trial| trial.works && !trial.used);
    replaceable
        .map(|trial| {
            let others = own
                .iter()
                .filter(|other| other.stamp == trial.stamp && other.hook != trial.hook);
            let avoided = others.map(|other| other.hook.clone()).collect();
            (trial.stamp.clone(), trial.hook.clone(), avoided)
        })
        .collect()
}

/// What two probes recorded of the same traffic.
fn both(spec: &ProbeSpec, avoided: &[&str], hook: &str, traffic: impl FnOnce()) -> [Recording; 2] {
    let mut best = Probe::load(spec).expect("this kernel lets the probe load");
    let mut other = Probe::load_avoiding(spec, avoided).expect("it works alone");
    assert!(
        other.hooks().iter().any(|found| found.hook == hook),
        "{:?}",
        other.hooks()
    );
    other.attach().expect("the hooks are there");
    best.attach().expect("the hooks are there");
    traffic();
    best.detach();
    [best, other].map(|probe| probe.finish().expect("the counters can be read"))
}

/// Fewer requests outside of blind windows say nothing.
const FEWEST: u32 = 100;

/// A machine that is busy with threads of init blinds the probes for seconds: then it is tried again.
const ATTEMPTS: usize = 10;

/// The requests of both recordings have the same stamps, up to a share of their sojourn: half of
/// them up to a tenth of it and all but 5 % up to a third. Each probe's own stamps are in order, except for
/// one request in a hundred at most: a reader that is awake can read a datagram before T2, while an
/// emulated CPU stands still between the two.
fn assert_agreement(
    mut record: impl FnMut() -> [Recording; 2],
    options: &MatchOptions,
    what: &str,
) {
    let attempt = |_| differences(record(), options);
    let (shares, seen, disordered) = first_unspoiled(ATTEMPTS, attempt, |(_, seen, _)| {
        (*seen < FEWEST).then(|| format!("{what}: {seen} requests outside of blind windows"))
    });
    assert!(
        disordered.len() as f64 <= 0.01 * f64::from(seen),
        "{} of {seen}: {disordered:?}",
        disordered.len()
    );
    assert_small(shares, seen, what);
}

/// How far apart each stamp of two recordings is, as shares of the sojourn, the number of requests
/// outside of blind windows, and those of them whose stamps are out of order.
fn differences(
    recordings: [Recording; 2],
    options: &MatchOptions,
) -> ([Vec<f64>; 6], u32, Vec<[Stamps; 2]>) {
    let [best, other]: [Matched; 2] =
        recordings.map(|recording| match_events(recording.into_events(), options));
    // the better probe is attached last and detached first: the other has all of its requests
    let hidden = |t: Stamps| [&best, &other].iter().any(|matched| is_hidden(matched, &t));
    let mut shares: [Vec<f64>; 6] = Default::default();
    let (mut at, mut seen, mut disordered) = (0, 0_u32, Vec::new());
    for place in 0..best.requests.len() {
        // each probe has its own numbers
        let key = best.sent_as(best.keys[place]);
        if hidden(best.requests.stamps(place)) {
            continue;
        }
        seen += 1;
        let Some(found) = (at..other.requests.len()).find(|&o| other.sent_as(other.keys[o]) == key)
        else {
            continue;
        };
        at = found + 1;
        let pair = [best.requests.stamps(place), other.requests.stamps(found)];
        compare(pair, &mut shares);
        if !pair.into_iter().all(is_in_order) {
            disordered.push(pair);
        }
    }
    (shares, seen, disordered)
}

fn assert_small(shares: [Vec<f64>; 6], seen: u32, what: &str) {
    for (stamp, mut shares) in (1..).zip(shares) {
        shares.sort_by(f64::total_cmp);
        assert!(
            shares.len() as f64 >= 0.95 * f64::from(seen),
            "{what}: both have T{stamp} of {} of {seen} requests only",
            shares.len(),
        );
        let quantile = |q: f64| shares[(q * (shares.len() - 1) as f64) as usize];
        println!(
            "{what}: T{stamp} p50 {:.3} p95 {:.3}",
            quantile(0.5),
            quantile(0.95)
        );
        assert!(
            quantile(0.5) <= 0.1,
            "{what}: T{stamp} differs by {:.3}",
            quantile(0.5)
        );
        assert!(
            quantile(0.95) <= 0.333,
            "{what}: T{stamp} differs by {:.3}",
            quantile(0.95)
        );
    }
}

/// T1 to T6, as far as they are known.
fn all(stamps: Stamps) -> [Option<Monotonic>; 6] {
    let [t2, t3, t4, t5] = stamps.middle();
    [Some(stamps.t1), t2, t3, t4, t5, Some(stamps.t6)]
}

fn is_in_order(stamps: Stamps) -> bool {
    all(stamps).into_iter().flatten().is_sorted()
}

/// Adds how far apart the stamps of the two probes are, as shares of the sojourn.
fn compare([best, other]: [Stamps; 2], shares: &mut [Vec<f64>; 6]) {
    let Some(sojourn) = best.sojourn() else {
        panic!("a response before its request: {best:?}");
    };
    for (shares, (a, b)) in shares.iter_mut().zip(all(best).into_iter().zip(all(other))) {
        if let (Some(a), Some(b)) = (a, b) {
            let apart = a.max(b).saturating_since(a.min(b));
            shares.push(apart.get() as f64 / sojourn.get().max(1) as f64);
        }
    }
}

fn as_strs(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

/// Hooks that stamp after the reader is awake are not expected to keep T2 before T3.
const LATE: &str = "fexit/__udp_enqueue_schedule_skb";

#[test]
fn hooks_for_datagrams_agree() {
    let Some(_alone) = live("hooks_for_datagrams_agree") else {
        return;
    };
    let hooks = lesser_hooks("udp");
    assert!(!hooks.is_empty(), "every kernel has two hooks for T4");
    for (stamp, hook, avoided) in hooks.iter().filter(|(_, hook, _)| hook != LATE) {
        let testbed = Testbed::veth();
        assert_eq!(testbed.spec.transport, Transport::Udp);
        let record = || {
            both(&testbed.spec, &as_strs(avoided), hook, || {
                for id in 0..1_000_u16 {
                    testbed.round_trip(&id.to_be_bytes());
                }
            })
        };
        let options = MatchOptions {
            datagram_ids: Some(DatagramIds::Ids),
            ..MatchOptions::default()
        };
        assert_agreement(record, &options, &format!("{stamp} by {hook}"));
    }
}

#[test]
fn hooks_for_streams_agree() {
    let Some(_alone) = live("hooks_for_streams_agree") else {
        return;
    };
    let hooks = lesser_hooks("tcp");
    assert!(!hooks.is_empty(), "every kernel has two hooks for T4");
    for (stamp, hook, avoided) in &hooks {
        let bed = StreamBed::new();
        let _server = bed.memcached(1);
        let record = || {
            both(&bed.spec, &as_strs(avoided), hook, || {
                let calls = Calls {
                    connections: 2,
                    rounds: 500,
                    in_flight: 1,
                    request: b"get some-key-of-memcached\r\n".to_vec(),
                };
                bed.make(calls, 0);
            })
        };
        let options = MatchOptions::for_streams(Nanos::from_secs(5), true);
        assert_agreement(record, &options, &format!("{stamp} by {hook}"));
    }
}
