use taillab_model::rtt::RttBand;
use taillab_model::{Asleep, EventKind, PacketId, RequestKey, ThreadName};

use super::super::split::ClientEnd;
use super::*;

const SERVER: Tid = 10;
const CLIENT: Tid = 20;
const HOG: Tid = 99;
const TRIPS: u64 = 4_000;
/// How long the hog keeps a CPU, in nanoseconds.
const HELD: u64 = 40_000;

fn at(ns: u64) -> Monotonic {
    Monotonic::from_nanos_since_boot(ns)
}

/// A switch; the threads of both ends leave their CPU to sleep.
fn switched(prev: Tid, next: Tid) -> EventKind {
    let own = prev == SERVER || prev == CLIENT;
    EventKind::Switched {
        prev,
        next,
        preempted: false,
        asleep: own.then_some(Asleep {
            call: Some(45),
            uninterruptible: false,
            stopped: false,
        }),
    }
}

/// Round trips between CPU 0 (server) and CPU 1 (client), whose threads sleep in between. In one of a
/// hundred the hog has the CPU of `end` when the thread there is woken.
fn recorded(end: RttEnd) -> (Vec<Event>, Vec<RoundTrip>) {
    let key = RequestKey::hashed(3, 4_000, 0);
    let packet = PacketId(7);
    let mut events = Vec::new();
    let mut round_trips = Vec::new();
    for k in 0..TRIPS {
        let sent = 1_000_000 + k * 200_000;
        let held = |here| {
            if k % 100 == 50 && end == here {
                HELD
            } else {
                0
            }
        };
        let (far, near) = (held(RttEnd::Server), held(RttEnd::Client));
        let mut emit = |offset: u64, cpu: u16, kind| {
            events.push(Event {
                at: at(sent + offset),
                cpu,
                kind,
            });
        };
        emit(2_000, 0, EventKind::PacketIn { packet, key });
        emit(2_500, 1, switched(CLIENT, 0));
        emit(3_000, 0, EventKind::Enqueued { packet });
        emit(3_100, 0, EventKind::Woken { tid: SERVER, by: 0 });
        let before = if far > 0 {
            emit(3_200, 0, switched(0, HOG));
            HOG
        } else {
            0
        };
        emit(5_000 + far, 0, switched(before, SERVER));
        let read = EventKind::ReadReturned {
            tid: SERVER,
            returned: 64,
        };
        emit(6_000 + far, 0, read);
        emit(7_000 + far, 0, EventKind::WriteCalled { tid: SERVER });
        emit(8_000 + far, 0, EventKind::PacketOut { tid: SERVER, key });
        let woken = EventKind::Woken {
            tid: CLIENT,
            by: SERVER,
        };
        emit(9_000 + far, 1, woken);
        let before = if near > 0 {
            emit(9_100, 1, switched(0, HOG));
            HOG
        } else {
            0
        };
        emit(9_500 + far, 0, switched(SERVER, 0));
        emit(11_000 + far + near, 1, switched(before, CLIENT));
        round_trips.push(RoundTrip {
            sent: at(sent),
            rtt: Nanos::new(12_000 + far + near),
            connection: 0,
            lost: false,
        });
    }
    (events, round_trips)
}

fn explained(end: RttEnd) -> RttExplanation {
    let (events, round_trips) = recorded(end);
    let context = RecordingContext {
        server_cpus: vec![0, 1],
        threads: vec![ThreadName {
            tid: HOG,
            pid: HOG,
            comm: "hog".to_owned(),
            server: false,
            real_time: None,
        }],
        hashed_clients: true,
        ..RecordingContext::default()
    };
    let client = ClientEnd {
        port: 4_000,
        thread: CLIENT,
        cpu: 1,
    };
    let ends = Ends {
        clients: &[client],
        server_cpus: &[0],
        loopback: false,
    };
    let mut explainer = Explainer::default();
    explainer.add(DividedTrips::of(
        events.into_iter(),
        &context,
        &round_trips,
        ends,
    ));
    explainer.finish(0).unwrap()
}

fn mean(band: &RttBand, part: RttPart) -> u64 {
    let found = band.parts.iter().find(|found| found.part == part).unwrap();
    found.mean_ns.get()
}

#[test]
fn a_usual_round_trip_is_what_its_stamps_say() {
    let found = explained(RttEnd::Client);
    // in the first one, the client's thread was not yet known
    assert!(found.round_trips >= TRIPS - 1, "{found:?}");
    assert_eq!(found.round_trips + found.incomplete, TRIPS);
    let usual = &found.bands[0];
    assert_eq!((usual.from_q, usual.mean_ns.get()), (0.25, 12_000));
    for (part, ns) in [
        // 2 µs until T1, 1 µs from T6 to the wake-up, 1 µs until the receipt
        (RttPart::ClientStack, 4_000),
        (RttPart::ClientWakeUp, 2_000),
        (RttPart::ClientDisturbance, 0),
        // T1 to T2, T3 to T4, T5 to T6
        (RttPart::ServerStack, 3_000),
        (RttPart::ServerWakeUp, 2_000),
        (RttPart::Application, 1_000),
        (RttPart::ServerDisturbance, 0),
    ] {
        assert_eq!(mean(usual, part), ns, "{part:?}");
    }
}

#[test]
fn what_takes_the_cpu_of_an_end_is_found_at_that_end() {
    for (end, part) in [
        (RttEnd::Client, RttPart::ClientDisturbance),
        (RttEnd::Server, RttPart::ServerDisturbance),
    ] {
        let found = explained(end);
        let slow = &found.bands[1];
        assert_eq!((slow.from_q, slow.mean_ns.get()), (0.99, 12_000 + HELD));
        for band in &found.bands {
            let sum: u64 = band.parts.iter().map(|part| part.mean_ns.get()).sum();
            assert_eq!(sum, band.mean_ns.get());
        }
        // the wake-up itself stays a wake-up
        let charged = slow.parts.iter().find(|found| found.part == part).unwrap();
        assert!(charged.mean_ns.get() >= HELD, "{slow:?}");
        assert!(charged.excess.unwrap().value >= 1.0, "{slow:?}");
        let [disturbance] = found.disturbances.as_slice() else {
            panic!("{:?}", found.disturbances)
        };
        assert_eq!(
            (disturbance.end, disturbance.cause),
            (end, Cause::Background)
        );
        let name = disturbance.culprit.as_ref().unwrap().to_string();
        assert!(name.contains("hog"), "{name}");
        assert_eq!(disturbance.round_trips, slow.round_trips);
    }
}

#[test]
fn a_share_of_blocks_alike_is_certain_and_of_one_block_is_not() {
    let alike = ratio_over_blocks((0..100).map(|at| (at, 1.0, 4.0)), 100);
    assert_eq!(alike.value, 0.25);
    assert!((alike.hi.unwrap() - alike.lo.unwrap()).abs() < 1e-9);
    let single = |at| if at < 2 { 40.0 } else { 0.0 };
    let single = ratio_over_blocks((0..100).map(|at| (at, single(at), 1.0 + single(at))), 100);
    assert!(single.hi.unwrap() - single.lo.unwrap() > 0.5, "{single:?}");
    assert_eq!(
        ratio_over_blocks((0..3).map(|at| (at, 1.0, 1.0)), 100).lo,
        None
    );
    assert_eq!(ratio_over_blocks(std::iter::empty(), 0), Share::default());
}

#[test]
fn nothing_explains_nothing() {
    assert_eq!(Explainer::default().finish(0), None);
}
