//! Shares, their intervals, and what a recording in slices is scaled up to.

use taillab_model::{RecordingContext, Stamps};

use super::*;
use crate::ledger::CulpritId;

#[test]
fn a_share_that_is_the_same_everywhere_is_certain() {
    let share = share_of_sums(&[(1.0, 4.0); BLOCKS]);
    assert_eq!(share.value, 0.25);
    let (lo, hi) = (share.lo.unwrap(), share.hi.unwrap());
    assert!((lo - 0.25).abs() < 1e-9 && (hi - 0.25).abs() < 1e-9);
}

#[test]
fn a_share_that_comes_in_one_block_is_not() {
    let mut pairs = [(0.0, 1.0); BLOCKS];
    pairs[7] = (40.0, 41.0);
    let share = share_of_sums(&pairs);
    assert!(share.hi.unwrap() - share.lo.unwrap() > 0.5);
    assert_eq!(share_of_sums(&[(0.0, 0.0); BLOCKS]), Share::default());
}

#[test]
fn few_blocks_support_no_interval() {
    let mut pairs = [(0.0, 0.0); BLOCKS];
    pairs[3] = (1.0, 2.0);
    let share = share_of_sums(&pairs);
    assert_eq!((share.value, share.lo, share.hi), (0.5, None, None));
}

/// The account of a request that arrived at `t1`.
fn entry(t1: Monotonic, sojourn_ns: u64, excess: &[(Label, u64)]) -> Entry<'_> {
    Entry {
        place: 0,
        stamps: Stamps::new(t1, [None; 4], t1 + Nanos::new(sojourn_ns)),
        port: 0,
        command: None,
        worker: 9,
        asked: true,
        slice: None,
        left_late: false,
        carried_over: false,
        sojourn_ns,
        ideal_ns: 100,
        own_queue_ideal_ns: 100,
        gain_ns: 0,
        own_ns: 0,
        own_slow_ns: 0,
        parts: &[],
        excess,
        overtaken_by: None,
        pieces: &[],
    }
}

/// Of 1,000 requests, 50 have no answer, so p90 is the 900th answer and p99 is none.
#[test]
fn bands_begin_at_the_percentiles_of_all_requests() {
    let labels = Labels::new(&RecordingContext::default());
    let at = Monotonic::from_nanos_since_boot;
    let mut composition = Composition::new(at(0));
    for i in 1..=950 {
        let t1 = at(i * 1_000);
        composition.add(t1, &entry(t1, i, &[]), &labels);
    }
    let bands = composition.finish(50).bands();
    let found: Vec<(f64, u64)> = (bands.iter())
        .map(|band| (band.from_q, band.requests))
        .collect();
    assert_eq!(found, [(0.0, 899), (0.9, 51)]);
}

/// The median took 500 ns, of which the thread made 200; the slowest, of which it made more, are not around it.
#[test]
fn around_a_percentile_are_the_requests_that_took_about_as_long() {
    let mut labels = Labels::new(&RecordingContext::default());
    let label = labels.label(Cause::Background, CulpritId::Thread(7));
    let at = Monotonic::from_nanos_since_boot;
    let mut composition = Composition::new(at(0));
    for place in 0..4_000 {
        let (sojourn, excess) = if place % 4 == 0 {
            (9_000, 8_900)
        } else {
            (500, 200)
        };
        let t1 = at(place * 1_000);
        composition.add(t1, &entry(t1, sojourn, &[(label, excess)]), &labels);
    }
    let around = composition.finish(0).around();
    let found: Vec<(f64, f64)> = (around.iter())
        .map(|band| (band.mean_sojourn_ns, band.parts[0].mean_excess_ns))
        .collect();
    assert_eq!(
        found,
        [(500.0, 200.0), (9_000.0, 8_900.0), (9_000.0, 8_900.0)]
    );
    for (band, q) in around.iter().zip(AROUND) {
        assert!(band.from_q < q && q < band.to_q, "{band:?}");
    }
}

/// A thread delays each request of the sample by 300 ns. It came onto the core 70 times in the slices,
/// which are a fourth of the time; of their requests 70 % are the sample.
#[test]
fn in_slices_an_event_delays_as_many_requests_as_without() {
    let mut labels = Labels::new(&RecordingContext::default());
    let label = labels.label(Cause::Background, CulpritId::Thread(7));
    let at = Monotonic::from_nanos_since_boot;
    let mut composition = Composition::new(at(0));
    for place in 0..4_000 {
        let t1 = at(place * 1_000);
        let asked = place < 700;
        let excess = [(label, 300)];
        let entry = Entry {
            asked,
            slice: asked.then_some(place as u32 / 70),
            ..entry(t1, 400, &excess[..usize::from(asked)])
        };
        composition.add(t1, &entry, &labels);
    }
    let mut lengths = EventLengths::default();
    lengths.add(5_000, 70);
    let ledger = Ledger {
        labels,
        events: vec![lengths],
        served_ns: Vec::new(),
        served_by_others_ns: 0,
    };
    let shares = composition.finish(0).shares(&ledger, 4.0);
    assert_eq!(shares.len(), 2, "{shares:?}");
    for share in shares {
        assert_eq!((share.requests, share.events), (4_000, 280));
        assert_eq!(share.mean_event_ns, 5_000.0);
        assert_eq!(share.requests_per_event, 4_000.0 / 280.0);
    }
}
