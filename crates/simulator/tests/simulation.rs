//! The simulator as a whole: reproducible, honest about precision, clear about what is
//! impossible.

use std::num::{NonZeroU32, NonZeroUsize};
use std::ops::ControlFlow;

use taillab_model::Nanos;
use taillab_queueing::arrivals::ArrivalProcess;
use taillab_queueing::ideal;
use taillab_queueing::isa::Isa;
use taillab_queueing::service::Service;
use taillab_simulator::error::{SimulationError, TraceError};
use taillab_simulator::run::{Outcome, Stopped};
use taillab_simulator::simulation::{Simulation, Stop, WarmUp};
use taillab_simulator::trace::{TraceSimulation, TraceSpeed, TraceSummary};

fn workers(n: u32) -> NonZeroU32 {
    NonZeroU32::new(n).unwrap()
}

fn simulation(service: &str, c: u32, rho: f64, discipline: &str, requests: u64) -> Simulation {
    Simulation {
        stop: Stop::Requests(requests),
        ..Simulation::new(
            ArrivalProcess::Poisson,
            service.parse().unwrap(),
            workers(c),
            rho,
            discipline.parse().unwrap(),
        )
    }
}

/// The part of an outcome that must not depend on how it was calculated.
fn essence(o: &Outcome) -> impl PartialEq + std::fmt::Debug + use<> {
    (
        o.sojourn.clone(),
        o.wait.clone(),
        o.replications,
        o.warm_up,
        o.engine.simulated,
    )
}

const EVERY_DISCIPLINE: [&str; 14] = [
    "fifo",
    "lifo",
    "random-request",
    "random-worker",
    "round-robin",
    "jsq",
    "power-of-d:2",
    "static:64,round-robin",
    "static:64,random",
    "work-stealing:0",
    "work-stealing:1us",
    "ps",
    "time-sliced:20us,1us",
    "priority:0.1,background,service=exponential:50us",
];

#[test]
fn threads_and_vector_widths_do_not_show() {
    for discipline in EVERY_DISCIPLINE {
        for service in ["deterministic:50us", "lognormal:50us,cv=1.5"] {
            let mut s = simulation(service, 3, 0.7, discipline, 200_000);
            s.threads = NonZeroUsize::new(1);
            let one = essence(
                &s.run_on(Isa::BASELINE, &|_| ControlFlow::Continue(()))
                    .unwrap(),
            );
            for isa in Isa::available() {
                let outcome = s.run_on(isa, &|_| ControlFlow::Continue(())).unwrap();
                assert!(
                    essence(&outcome) == one,
                    "{discipline} {service} on {}",
                    isa.name()
                );
            }
            s.threads = NonZeroUsize::new(3);
            assert!(
                essence(&s.run().unwrap()) == one,
                "{discipline} {service} in three threads"
            );
        }
    }
}

#[test]
fn every_request_is_counted_in_every_discipline() {
    for discipline in EVERY_DISCIPLINE {
        let s = simulation("exponential:50us", 4, 0.8, discipline, 2_560_000);
        let o = s.run().unwrap();
        assert_eq!(o.stopped, Stopped::Finished);
        // the requests in the system at the start and at the end of the recording do not cancel exactly
        let off = o.sojourn.pooled().count().abs_diff(2_560_000);
        assert!(off < 10_000, "{discipline}: {off} too many or too few");
        assert_eq!(o.sojourn.pooled().count(), o.wait.pooled().count());
    }
}

#[test]
fn another_seed_gives_another_result_within_the_errors() {
    let first = simulation("exponential:50us", 2, 0.8, "fifo", 4_000_000);
    let second = Simulation {
        seed: 2,
        ..first.clone()
    };
    let (a, b) = (first.run().unwrap(), second.run().unwrap());
    let (a, b) = (a.sojourn.mean_ns().unwrap(), b.sojourn.mean_ns().unwrap());
    assert_ne!(a.value, b.value);
    let z = (a.value - b.value) / a.standard_error.hypot(b.standard_error);
    assert!(z.abs() < 4.0, "{z}");
}

#[test]
fn disciplines_share_their_arrivals() {
    // with so many workers that no request waits, the sojourns are the service times
    let of = |discipline: &str| {
        let mut s = simulation("exponential:50us", 200, 0.2, discipline, 512_000);
        s.warm_up = WarmUp::Requests(10_000);
        let o = s.run().unwrap();
        o.sojourn.pooled().quantile_ns(0.9)
    };
    assert_eq!(of("fifo"), of("jsq"));
    assert_eq!(of("fifo"), of("lifo"));
}

/// Other service laws: the mean wait of M/G/1 (Pollaczek and Khinchine).
#[test]
fn general_service_waits_as_long_as_theory_says() {
    for service in [
        "lognormal:50us,cv=1.2",
        "bimodal:short=20us,long=200us,share=0.1",
        "bounded-pareto:alpha=1.5,min=10us,max=400us",
    ] {
        let law: Service = service.parse().unwrap();
        let lambda = 0.7 / law.mean_ns();
        let want = lambda * law.raw_moment(2) / (2.0 * 0.3);
        for discipline in ["fifo", "lifo", "random-request"] {
            let o = simulation(service, 1, 0.7, discipline, 10_000_000)
                .run()
                .unwrap();
            let z = o.wait.mean_ns().unwrap().z(want);
            assert!(z.abs() < 4.0, "{service} {discipline}: z = {z}");
        }
    }
}

/// Two classes with preemption: mean sojourns of M/G/1 (Cobham 1954; Kleinrock 1976, §3.4).
#[test]
fn preemption_costs_what_theory_says() {
    let service: Service = "exponential:50us".parse().unwrap();
    let background: Service = "deterministic:200us".parse().unwrap();
    let (rho, share) = (0.5, 0.2);
    let (s1, s2) = (background.mean_ns(), service.mean_ns());
    let residual = (share / s1 * background.raw_moment(2) + rho / s2 * service.raw_moment(2)) / 2.0;
    let want = s2 / (1.0 - share) + residual / ((1.0 - share) * (1.0 - share - rho));
    let discipline = "priority:0.2,background,service=deterministic:200us";
    let o = simulation("exponential:50us", 1, rho, discipline, 4_000_000)
        .run()
        .unwrap();
    let z = o.sojourn.mean_ns().unwrap().z(want);
    assert!(z.abs() < 4.0, "z = {z}");
}

/// Short slices are processor sharing, long ones FIFO.
#[test]
fn time_slices_lie_between_sharing_and_fifo() {
    let mean = |discipline: &str| {
        let o = simulation("lognormal:50us,cv=2", 2, 0.7, discipline, 2_000_000)
            .run()
            .unwrap();
        o.sojourn.mean_ns().unwrap()
    };
    let (sharing, fifo) = (mean("ps"), mean("fifo"));
    let short = mean("time-sliced:quantum=500ns,switch=0");
    let long = mean("time-sliced:quantum=1s,switch=0");
    // the same queue, except for the requests present at the ends of the recording
    assert!(
        (long.value / fifo.value - 1.0).abs() < 1e-3,
        "{} and {}",
        long.value,
        fifo.value
    );
    let z = (short.value - sharing.value) / short.standard_error.hypot(sharing.standard_error);
    assert!(z.abs() < 4.0, "{} and {}", short.value, sharing.value);
}

#[test]
fn precision_stops_when_it_is_reached() {
    let mut s = simulation("exponential:50us", 1, 0.7, "fifo", 1);
    s.stop = Stop::Precision {
        target: "p99=2%".parse().unwrap(),
        at_most: 400_000_000,
    };
    let o = s.run().unwrap();
    assert_eq!(o.stopped, Stopped::Precise);
    let q = o.sojourn.quantile(0.99).unwrap();
    assert!(q.relative_half_width() <= 0.02);
    // M/M/1: ln(100) / (µ − λ)
    let exact = 100.0_f64.ln() * 50_000.0 / 0.3;
    assert!((q.value_ns - exact).abs() < 4.0 * q.standard_error_ns);
    s.stop = Stop::Precision {
        target: "p99.999=0.001%".parse().unwrap(),
        at_most: 5_000_000,
    };
    assert_eq!(s.run().unwrap().stopped, Stopped::Limit);
}

#[test]
fn an_observer_can_stop_a_run_and_keeps_what_there_is() {
    let s = simulation("exponential:50us", 4, 0.8, "fifo", 2_000_000_000);
    let o = s
        .run_observed(&|p| {
            assert!(p.total >= 2_000_000_000);
            if p.done > 5_000_000 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })
        .unwrap();
    assert_eq!(o.stopped, Stopped::Interrupted);
    assert!(o.sojourn.pooled().count() > 0);
}

#[test]
fn a_quantile_beyond_the_sample_is_none() {
    let o = simulation("exponential:50us", 1, 0.9, "fifo", 20_000)
        .run()
        .unwrap();
    assert!(o.sojourn.quantile(0.5).is_some());
    assert!(o.sojourn.quantile(0.99999).is_none());
}

#[test]
fn the_impossible_is_refused_with_a_remedy() {
    let good = simulation("deterministic:50us", 4, 0.8, "fifo", 1_000);
    let refused = |change: &dyn Fn(&mut Simulation)| {
        let mut s = good.clone();
        change(&mut s);
        s.run().unwrap_err().to_string()
    };
    let overload = refused(&|s| s.utilization = 1.0);
    assert!(overload.contains("grows without bound"), "{overload}");
    assert!(overload.contains("lower the utilisation"), "{overload}");
    for bad in [0.0, -0.5, f64::NAN, f64::INFINITY] {
        let text = refused(&|s| s.utilization = bad);
        assert!(text.contains("between 0 and 1"), "{text}");
    }
    assert!(refused(&|s| s.stop = Stop::Requests(0)).contains("above 0"));
    // five connections for four workers: one of them has two
    let drowned = refused(&|s| s.discipline = "static:5,round-robin".parse().unwrap());
    assert!(drowned.contains("worker 0"), "{drowned}");
    let background = "priority:0.3,background,service=exponential:1ms";
    let crowded = refused(&|s| s.discipline = background.parse().unwrap());
    assert!(crowded.contains("1.1000"), "{crowded}");
    assert!(
        "p99.9"
            .parse::<taillab_simulator::simulation::Precision>()
            .is_err()
    );
}

#[test]
fn the_warm_up_grows_with_the_load_and_is_stated() {
    let at = |rho| simulation("exponential:50us", 1, rho, "fifo", 1_000).warm_up_requests();
    assert!(at(0.95).requests > 50 * at(0.5).requests);
    assert!(!at(0.95).capped);
    assert!(at(0.9999).capped);
    let mut s = simulation("exponential:50us", 1, 0.5, "fifo", 100_000);
    s.warm_up = WarmUp::Requests(77);
    let o = s.run().unwrap();
    assert_eq!(o.warm_up.requests, 77);
    assert_eq!(
        o.engine.simulated,
        o.sojourn.pooled().count() + 77 * o.replications
    );
}

fn poisson_trace(seconds: u64) -> Vec<Nanos> {
    ArrivalProcess::Poisson
        .schedule(64_000.0, Nanos::from_secs(seconds), 5)
        .unwrap()
}

#[test]
fn a_trace_gives_what_the_ideal_queue_gives() {
    let trace = poisson_trace(5);
    let time = Nanos::from_micros(50);
    let service = Service::deterministic(time);
    for c in [4, 5, 8, 30] {
        let o = TraceSimulation::new(service.clone(), workers(c))
            .run(&trace)
            .unwrap();
        let mut ideal = ideal::sojourns(&trace, time, workers(c));
        ideal.sort_unstable();
        let pooled = o.sojourn.pooled();
        assert_eq!(pooled.count(), trace.len() as u64);
        assert_eq!(pooled.min_ns(), Some(ideal[0].get() as f64));
        assert_eq!(pooled.max_ns(), Some(ideal[ideal.len() - 1].get() as f64));
        let total: u64 = ideal.iter().map(|t| t.get()).sum();
        assert_eq!(pooled.mean_ns(), Some(total as f64 / trace.len() as f64));
    }
}

#[test]
fn a_trace_in_parts_is_the_same_trace() {
    let trace = poisson_trace(1);
    let mut t = TraceSimulation::new("exponential:50us".parse().unwrap(), workers(4));
    t.speed = TraceSpeed::Utilization(0.9);
    for discipline in [
        "fifo",
        "lifo",
        "random-request",
        "jsq",
        "ps",
        "random-worker",
    ] {
        t.discipline = discipline.parse().unwrap();
        let whole = t.run(&trace).unwrap();
        assert_eq!(
            whole.sojourn.pooled().count(),
            trace.len() as u64,
            "{discipline}"
        );
        let mut summary = TraceSummary::default();
        let block = trace.len() / 32;
        let parts = || trace.chunks(block.min(512) * 7);
        for part in parts() {
            summary.extend(part).unwrap();
        }
        let mut run = t.start(&summary).unwrap();
        for part in parts() {
            run.push(part).unwrap();
        }
        let parts = run.finish().unwrap();
        assert_eq!(parts.sojourn, whole.sojourn, "{discipline}");
    }
}

#[test]
fn scaling_a_trace_reaches_the_utilisation() {
    let trace = poisson_trace(20);
    let mut t = TraceSimulation::new("deterministic:50us".parse().unwrap(), workers(4));
    assert!((t.run(&trace).unwrap().utilization - 0.8).abs() < 0.01);
    t.speed = TraceSpeed::Utilization(0.5);
    let o = t.run(&trace).unwrap();
    // P(wait) of M/D/4 at 0.5, from the reference
    let wait = o.wait.share_above(0.0).unwrap();
    assert!(wait.z(0.1632938949).abs() < 4.0, "{wait:?}");
}

#[test]
fn an_overloaded_trace_is_refused_unless_allowed() {
    let trace = poisson_trace(1);
    let mut t = TraceSimulation::new("deterministic:50us".parse().unwrap(), workers(3));
    let error = t.run(&trace).unwrap_err();
    assert!(matches!(error, SimulationError::Overload { .. }));
    assert!(error.to_string().contains("overload allowed"));
    t.allow_overload = true;
    for discipline in ["fifo", "lifo", "ps", "random-request", "jsq"] {
        t.discipline = discipline.parse().unwrap();
        let o = t.run(&trace).unwrap();
        assert!(o.utilization > 1.0);
        assert_eq!(o.sojourn.pooled().count(), trace.len() as u64);
    }
}

#[test]
fn unusable_traces_say_where() {
    let t = TraceSimulation::new("deterministic:50us".parse().unwrap(), workers(1));
    let ns = |xs: &[u64]| xs.iter().map(|x| Nanos::new(*x)).collect::<Vec<_>>();
    let trace_error = |xs: &[u64]| match t.run(&ns(xs)).unwrap_err() {
        SimulationError::Trace(e) => e,
        other => panic!("{other}"),
    };
    assert_eq!(trace_error(&[]), TraceError::Empty);
    assert_eq!(trace_error(&[5, 5]), TraceError::NoDuration(2));
    let unsorted = trace_error(&[1, 1_000_000, 3, 4]);
    assert_eq!(
        unsorted,
        TraceError::Unsorted {
            position: 3,
            earlier: 1_000_000,
            later: 3
        }
    );
    assert!(unsorted.to_string().contains("sort it by time"));
}
