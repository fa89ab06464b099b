//! Every kernel against the general event loop, request by request and to the last bit.

use std::num::NonZeroU32;

use proptest::prelude::*;
use taillab_model::Nanos;

use super::events::Served;
use super::*;
use taillab_queueing::discipline::Class;
use taillab_queueing::isa::Isa;
use taillab_queueing::service::Service;

/// Short gaps and service times in whole nanoseconds, so that many things happen at the same
/// instant.
fn load(length: std::ops::Range<usize>) -> impl Strategy<Value = Vec<(u32, u32)>> {
    let busy = prop::collection::vec((0_u32..12, 1_u32..30), length.clone());
    let calm = prop::collection::vec((0_u32..60, 1_u32..30), length);
    prop_oneof![busy, calm]
}

static CONSTANT: Service = Service::Deterministic {
    time: Nanos::new(1),
};
static VARYING: Service = Service::Exponential {
    mean: Nanos::new(1),
};

/// Only whether the service times are equal matters here: the load has its own ones.
fn queue(discipline: &Discipline, workers: usize, constant_service: bool) -> Station<'_> {
    Station {
        service: if constant_service {
            &CONSTANT
        } else {
            &VARYING
        },
        workers: NonZeroU32::new(workers as u32).unwrap(),
        discipline,
        seed: 7,
    }
}

fn grid() -> Grid {
    Grid::for_mean_gap(1e3)
}

fn served(finished: &Finished) -> impl Iterator<Item = (f64, f64)> {
    let services = finished.services.iter().copied();
    finished.waits.iter().copied().zip(services)
}

/// Each request's (wait, service) as the kernel returns them, in `L` equal lanes.
fn by_kernel<const L: usize>(
    isa: Isa,
    mut kernel: Box<dyn Kernel<L>>,
    load: &[(u32, u32)],
    rows_per_block: usize,
) -> Vec<(f64, f64)> {
    let mut at = 0.0;
    let mut result = Vec::new();
    let mut finished = Finished::default();
    for (i, block) in load.chunks(rows_per_block).enumerate() {
        let arrivals: Vec<[f64; L]> = block
            .iter()
            .map(|(gap, _)| {
                at += f64::from(*gap);
                [at; L]
            })
            .collect();
        let services: Vec<[f64; L]> = block.iter().map(|(_, s)| [f64::from(*s); L]).collect();
        finished.clear();
        let block = Block {
            isa,
            arrivals: &arrivals,
            services: &services,
        };
        kernel.advance(block, &mut finished);
        if kernel.in_order() {
            assert!(finished.services.is_empty());
            finished.services.extend_from_slice(services.as_flattened());
        }
        result.extend(served(&finished));
        // a new origin must not change the result
        if i % 3 == 2 {
            kernel.rebase(&[at; L]);
            at = 0.0;
        }
    }
    finished.clear();
    kernel.finish(&mut finished);
    if !kernel.in_order() {
        result.extend(served(&finished));
    }
    assert_eq!(result.len(), load.len() * L, "every request comes out once");
    result
}

/// The same by the event loop, in one lane: in the order of arrival where the discipline serves in it.
fn by_events(rules: &Rules, load: &[(u32, u32)], choices: &mut LaneRng<1>) -> Vec<Served> {
    let mut queue = EventQueue::new(rules);
    let mut all = Vec::new();
    let mut at = 0.0;
    for (gap, service) in load {
        at += f64::from(*gap);
        queue.request(at, f64::from(*service), choices.next_of(0), &mut |s| {
            all.push(s);
        });
    }
    queue.serve_rest(&mut |s| all.push(s));
    all
}

fn sorted(mut pairs: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    pairs.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    pairs
}

fn pairs(served: &[Served]) -> Vec<(f64, f64)> {
    served
        .iter()
        .map(|s| (s.start - s.arrival, s.departure - s.start))
        .collect()
}

fn constant(load: &[(u32, u32)], service: u32) -> Vec<(u32, u32)> {
    load.iter().map(|(gap, _)| (*gap, service)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// FIFO: Kiefer–Wolfowitz, the heap and the event loop, in the order of arrival.
    #[test]
    fn fifo_kernels_agree(load in load(1..300), workers in 1_usize..=16, rows in 1_usize..70) {
        let fifo = Discipline::Fifo;
        let rules = queue(&fifo, workers, false).rules(0);
        let want = pairs(&by_events(&rules, &load, &mut LaneRng::new(7, Purpose::Choice, 0)));
        for isa in Isa::available() {
            let recursion = queue(&fifo, workers, false).kernel::<1>(grid(), 0);
            prop_assert_eq!(&by_kernel(isa, recursion, &load, rows), &want);
            let heap: Box<dyn Kernel<1>> = Box::new(heap::Heap::new(workers));
            prop_assert_eq!(&by_kernel(isa, heap, &load, rows), &want);
            let lanes = by_kernel(isa, queue(&fifo, workers, false).kernel::<8>(grid(), 0), &load, rows);
            let eightfold: Vec<_> = want.iter().flat_map(|p| [*p; 8]).collect();
            prop_assert_eq!(lanes, eightfold);
        }
    }

    /// FIFO with equal service times: the max-plus scan and the ideal queue of `queueing` agree, too.
    #[test]
    fn the_max_plus_scan_is_fifo(load in load(1..300), service in 1_u32..40, workers in 1_usize..=20, rows in 1_usize..70) {
        let load = constant(&load, service);
        let fifo = Discipline::Fifo;
        let rules = queue(&fifo, workers, true).rules(0);
        let want = pairs(&by_events(&rules, &load, &mut LaneRng::new(7, Purpose::Choice, 0)));
        for isa in Isa::available() {
            let scan = queue(&fifo, workers, true).kernel::<1>(grid(), 0);
            prop_assert_eq!(scan.name(), "max-plus scan");
            prop_assert_eq!(&by_kernel(isa, scan, &load, rows), &want);
            let lanes = by_kernel(isa, queue(&fifo, workers, true).kernel::<8>(grid(), 0), &load, rows);
            let eightfold: Vec<_> = want.iter().flat_map(|p| [*p; 8]).collect();
            prop_assert_eq!(lanes, eightfold);
        }
        let mut at = 0;
        let arrivals: Vec<Nanos> = load.iter().map(|(gap, _)| { at += u64::from(*gap); Nanos::new(at) }).collect();
        let workers = NonZeroU32::new(workers as u32).unwrap();
        let ideal = taillab_queueing::ideal::sojourns(&arrivals, Nanos::new(u64::from(service)), workers);
        let waits: Vec<f64> = ideal.iter().map(|t| (t.get() - u64::from(service)) as f64).collect();
        prop_assert_eq!(waits, want.iter().map(|p| p.0).collect::<Vec<_>>());
    }

    /// Newest first and random order: matched starts agree with simulated workers.
    #[test]
    fn matched_starts_are_what_happens(load in load(1..300), workers in 1_usize..=20, random in any::<bool>(), rows in 1_usize..70) {
        let discipline = if random { Discipline::RandomRequest } else { Discipline::Lifo };
        let rules = Rules { services_by_start: true, ..queue(&discipline, workers, false).rules(0) };
        let want = pairs(&by_events(&rules, &load, &mut LaneRng::new(7, Purpose::Choice, 0)));
        let kernel = queue(&discipline, workers, false).kernel::<1>(grid(), 0);
        let got = by_kernel(Isa::detect(), kernel, &load, rows);
        prop_assert_eq!(sorted(got), sorted(want));
        // with equal service times it does not matter whose they are
        let load = constant(&load, 17);
        let rules = queue(&discipline, workers, true).rules(0);
        let want = pairs(&by_events(&rules, &load, &mut LaneRng::new(7, Purpose::Choice, 0)));
        let kernel = queue(&discipline, workers, true).kernel::<1>(grid(), 0);
        let got = by_kernel(Isa::detect(), kernel, &load, rows);
        prop_assert_eq!(sorted(got), sorted(want));
    }

    /// Disciplines with a queue for each worker.
    #[test]
    fn own_queues_agree(load in load(1..300), workers in 1_usize..=9, rows in 1_usize..70) {
        for discipline in [
            Discipline::RandomWorker,
            Discipline::RoundRobin,
            Discipline::JoinShortestQueue,
            Discipline::PowerOfD { d: 2 },
            Discipline::PowerOfD { d: 3 },
            Discipline::Static { connections: 13, assignment: Assignment::RoundRobin },
            Discipline::Static { connections: 13, assignment: Assignment::Random },
        ] {
            for isa in Isa::available() {
                let rules = queue(&discipline, workers, false).rules(0);
                let want = pairs(&by_events(&rules, &load, &mut LaneRng::new(7, Purpose::Choice, 0)));
                let kernel = queue(&discipline, workers, false).kernel::<1>(grid(), 0);
                let in_order = kernel.in_order();
                let got = by_kernel(isa, kernel, &load, rows);
                if in_order {
                    prop_assert_eq!(got, want, "{}", discipline);
                } else {
                    prop_assert_eq!(sorted(got), sorted(want), "{}", discipline);
                }
            }
        }
    }

    /// No worker is idle while a request waits, so work stealing without a cost starts services at the
    /// same times as FIFO.
    #[test]
    fn free_stealing_starts_services_when_fifo_does(load in load(1..300), workers in 1_usize..=9) {
        let load = constant(&load, 19);
        let starts = |discipline: Discipline| {
            let rules = queue(&discipline, workers, true).rules(0);
            let served = by_events(&rules, &load, &mut LaneRng::new(7, Purpose::Choice, 0));
            let mut starts: Vec<f64> = served.iter().map(|s| s.start).collect();
            starts.sort_by(f64::total_cmp);
            starts
        };
        prop_assert_eq!(starts(Discipline::WorkStealing { cost: Nanos::ZERO }), starts(Discipline::Fifo));
    }

    /// Time slices longer than every service are FIFO; so is the favoured class.
    #[test]
    fn no_preemption_is_fifo(load in load(1..300), workers in 1_usize..=9, rows in 1_usize..70) {
        let want = by_kernel(Isa::detect(), queue(&Discipline::Fifo, workers, false).kernel::<1>(grid(), 0), &load, rows);
        let sliced = Discipline::TimeSliced { quantum: Nanos::new(1_000), switch: Nanos::ZERO };
        let favoured = Discipline::Priority {
            // a job every 50 ns
            background: 0.8 / workers as f64,
            service: Service::Exponential { mean: Nanos::new(40) },
            first: Class::Requests,
        };
        for discipline in [sliced, favoured] {
            let kernel = queue(&discipline, workers, false).kernel::<1>(grid(), 0);
            let got = by_kernel(Isa::detect(), kernel, &load, rows);
            prop_assert_eq!(sorted(got), sorted(want.clone()), "{}", discipline);
        }
    }

    /// Both forms of processor sharing agree with a simulation of the definition.
    #[test]
    fn sharing_follows_its_definition(load in load(1..80), workers in 1_usize..=4, rows in 1_usize..70) {
        let want = sorted(shared(&load, workers));
        let got = by_kernel(Isa::detect(), queue(&Discipline::ProcessorSharing, workers, false).kernel::<1>(grid(), 0), &load, rows);
        for (g, w) in sorted(got).iter().zip(&want) {
            prop_assert!((g.0 - w.0).abs() < 1e-6, "{:?} instead of {:?}", g, w);
        }
        // so many at the same time that the unsorted ones overflow into the heap
        let crowd: Vec<(u32, u32)> = (0..400_u32).map(|i| (u32::from(i > 200) * 3, 1 + i * 7919 % 997)).collect();
        let want = sorted(shared(&crowd, workers));
        let got = by_kernel(Isa::detect(), queue(&Discipline::ProcessorSharing, workers, false).kernel::<1>(grid(), 0), &crowd, rows);
        for (g, w) in sorted(got).iter().zip(&want) {
            prop_assert!((g.0 - w.0).abs() < 1e-4, "{:?} instead of {:?}", g, w);
        }
        let load = constant(&load, 21);
        let fast = by_kernel(Isa::detect(), queue(&Discipline::ProcessorSharing, workers, true).kernel::<1>(grid(), 0), &load, rows);
        let general = by_kernel(Isa::detect(), queue(&Discipline::ProcessorSharing, workers, false).kernel::<1>(grid(), 0), &load, rows);
        for (f, g) in sorted(fast.clone()).iter().zip(&sorted(general)) {
            prop_assert!((f.0 - g.0).abs() < 1e-6, "{:?} instead of {:?}", f, g);
        }
        let lanes = by_kernel(Isa::detect(), queue(&Discipline::ProcessorSharing, workers, true).kernel::<8>(grid(), 0), &load, rows);
        let eightfold: Vec<_> = sorted(fast).iter().flat_map(|p| [*p; 8]).collect();
        prop_assert_eq!(sorted(lanes), eightfold);
    }
}

/// Processor sharing by its definition, from event to event.
fn shared(load: &[(u32, u32)], workers: usize) -> Vec<(f64, f64)> {
    let mut arrivals = Vec::new();
    let mut at = 0.0;
    for (gap, service) in load {
        at += f64::from(*gap);
        arrivals.push((at, f64::from(*service)));
    }
    let mut present: Vec<(f64, f64, f64)> = Vec::new();
    let mut done = Vec::new();
    let (mut now, mut next) = (0.0_f64, 0);
    while next < arrivals.len() || !present.is_empty() {
        let rate = (workers as f64 / present.len() as f64).min(1.0);
        let least = present.iter().map(|p| p.2).fold(f64::INFINITY, f64::min);
        let leaves = now + least / rate;
        let arrives = arrivals.get(next).map_or(f64::INFINITY, |a| a.0);
        let until = leaves.min(arrives);
        for p in &mut present {
            p.2 -= (until - now) * rate;
        }
        now = until;
        if leaves <= arrives {
            let i = (0..present.len())
                .min_by(|a, b| present[*a].2.total_cmp(&present[*b].2))
                .unwrap();
            let (arrival, service, _) = present.swap_remove(i);
            done.push((now - arrival - service, service));
        } else {
            let (arrival, service) = arrivals[next];
            present.push((arrival, service, service));
            next += 1;
        }
    }
    done
}

/// Preemption with known numbers: background work of 10 interrupts a request of 20.
#[test]
fn a_favoured_background_job_interrupts_and_the_request_resumes() {
    let discipline = Discipline::Priority {
        // a job of 10 ns every 40 ns
        background: 0.25,
        service: Service::deterministic(Nanos::new(10)),
        first: Class::Background,
    };
    let one = queue(&discipline, 1, true);
    // each wait is a sum of whole or partial background jobs
    let load: Vec<(u32, u32)> = vec![(200, 20); 2_000];
    let waits: Vec<f64> = by_kernel(Isa::detect(), one.kernel::<1>(grid(), 0), &load, 64)
        .iter()
        .map(|p| p.0)
        .collect();
    let interrupted = waits.iter().filter(|w| **w > 0.0).count() as f64 / waits.len() as f64;
    // An arrival finds the server busy with background work with probability 1/4. Otherwise, a job
    // arrives within the 20 ns of service with probability 1 − e^(−1/2).
    let want = 1.0 - 0.75 * (-0.5_f64).exp();
    assert!(
        (interrupted - want).abs() < 0.05,
        "{interrupted} instead of {want}"
    );
}
