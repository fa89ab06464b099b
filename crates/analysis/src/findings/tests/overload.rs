//! A queue that grew.

use super::*;

/// A queue that grew for three seconds, in which a request cost more than t and another program had the CPU.
fn overload() -> Overload {
    Overload {
        from_ns: Nanos::from_millis(2_000),
        worst_ns: Nanos::from_millis(5_100),
        to_ns: Some(Nanos::from_millis(9_000)),
        outlasts_load: false,
        waiting: 5_012,
        unanswered: 0,
        came_per_s: 6_660.0,
        done_per_s: 5_000.0,
        capacity_per_s: Some(10_000.0),
        service_time_ns: Some(Nanos::from_micros(100)),
        cpu: Some(CpuTaken {
            server_share: 0.62,
            receive_share: 0.06,
            others_share: 0.31,
            others: vec![TakenBy {
                name: "kdamond.0".into(),
                share: 0.28,
            }],
            interrupts_share: 0.01,
            stalled_share: 0.0,
            busy_ns_per_request: 140_000.0,
        }),
    }
}

fn overloaded(overload: Overload) -> Case {
    Case {
        overload: Some(overload),
        causes: vec![share(Cause::Softirq, None, 0.9)],
        ..Case::default()
    }
}

/// The queue grew for three seconds while others had the core: softirqs were blamed for it.
#[test]
fn an_overload_comes_first_with_its_reasons() {
    let findings = overloaded(overload()).findings();
    assert!(findings.len() > 1);
    let first = &findings[0];
    assert_eq!(first.key.as_deref(), Some("overload"));
    assert_eq!(
        first.text,
        "Work arrived faster than it was done: from 2.0 s to 5.1 s, 6,660 requests per second \
         arrived and the server answered 5,000 per second, until 5,012 were waiting; the queue was \
         gone at 9.0 s. Its CPUs were busy 100 % of the time (the server 62 %, receiving packets \
         6 %, `kdamond.0` 28 %, more programs 3 %, interrupts and softirqs 1 %). At 100 µs of work for each \
         request, it can answer 10,000 per second; it was slower because other programs had its CPUs and a request \
         cost 140 µs instead of 100 µs."
    );
    let advice = first.advice.as_deref().unwrap_or_default();
    assert!(advice.contains("Move the other programs"), "{advice}");
    let at_capacity = Overload {
        done_per_s: 9_990.0,
        ..overload()
    };
    let text = &overloaded(at_capacity).texts()[0];
    assert!(
        text.contains(
            "At 100 µs of work for each request, it can answer 10,000 per second, no more."
        ),
        "{text}"
    );
}

#[test]
fn a_queue_that_only_grows_has_the_percentiles_of_this_measurement() {
    let lasting = || Overload {
        to_ns: None,
        outlasts_load: true,
        ..overload()
    };
    let mut case = overloaded(lasting());
    case.utilization = 1.12;
    let text = &case.texts()[0];
    for said in [
        "the queue was still there when the last one came",
        "an ideal server grows as well: the load is 112 % of what it can do",
        "they grow with its length",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    // without t and CPUs, the figures of the queue are all that is known
    let bare = Overload {
        capacity_per_s: None,
        service_time_ns: None,
        cpu: None,
        unanswered: 300,
        ..lasting()
    };
    case.overload = Some(bare);
    let text = &case.texts()[0];
    assert!(text.contains("and 300 were not answered"), "{text}");
    assert!(!text.contains("By t") && !text.contains("ideal"), "{text}");
    // a server that did more than it can do by t shows that t is too long
    let fast = Overload {
        done_per_s: 12_000.0,
        ..lasting()
    };
    case.overload = Some(fast);
    let text = &case.texts()[0];
    assert!(!text.contains("By t") && !text.contains("ideal"), "{text}");
}
