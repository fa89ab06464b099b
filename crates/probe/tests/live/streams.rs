//! The probe and the matcher on real servers of TCP streams: one thread, several, several
//! processes, and a thread for each connection.
//!
//! Needs memcached and nginx.

use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::channel;

use crate::testbed::streams::{Call, Calls, Nginx, StreamBed};
use crate::testbed::{
    self, ATTEMPTS, CLIENT, echo, eventually, first_unspoiled, ip, live, now, received_by_client,
    segments_sent_again, share_that_lacks, was_blind,
};
use taillab_analysis::{BlindWindow, MatchOptions, Matched, match_events};
use taillab_model::summary::Matching;
use taillab_model::{Event, EventKind, Monotonic, Nanos, Recording, Request, RequestKey, Stamps};
use taillab_probe::{Disturbances, Probe, ProbeSpec, ServerProcesses};

const GET: &[u8] = b"get some-key-of-memcached\r\n";
const FILE: &[u8] = b"GET /file HTTP/1.1\r\nHost: server\r\n\r\n";

/// The most recordings that are made until the probe misses no packet in one.
const ATTEMPTS_AT_ALL: usize = 30;

fn calls(connections: usize, rounds: usize, request: &[u8]) -> Calls {
    Calls {
        connections,
        rounds,
        in_flight: 1,
        request: request.to_vec(),
    }
}

/// The recording of the calls, warm-up included, and the time from which on they count.
struct Run {
    recording: Recording,
    from: Monotonic,
    calls: Vec<Call>,
    request_bytes: usize,
}

fn record(bed: &StreamBed, spec: &ProbeSpec, avoided: &[&str], calls: Calls) -> Run {
    let mut probe = Probe::load_avoiding(spec, avoided).expect("this kernel lets the probe load");
    probe.attach().expect("the hooks are there");
    let request_bytes = calls.request.len();
    let (from, calls) = bed.make(calls, 20);
    let recording = probe.finish().expect("the counters can be read");
    assert_eq!(recording.lost.total(), 0, "{:?}", recording.lost);
    Run {
        recording,
        from,
        calls,
        request_bytes,
    }
}

fn keep(name: &str, bed: &StreamBed, calls: Calls) {
    testbed::keep(name, || record(bed, &bed.spec, &[], calls).recording);
}

/// The client's port of a request.
fn port_of(matched: &Matched, key: RequestKey) -> u16 {
    matched.sent_as(key).expect("its client is announced").port
}

/// Every call is one request, and its stamps lie between the client's. Only the last ones of a connection may
/// be missing: see [`assert_only_the_end_is_missing`].
fn assert_each_call_is_one_request(run: Run, sequential: bool) -> (Matched, Matching) {
    let options = MatchOptions::for_streams(Nanos::from_secs(5), sequential);
    let matched = match_events(run.recording.into_events(), &options);
    assert_eq!(matched.unmatched, [], "requests without a response");
    assert_eq!(matched.ambiguous, []);
    assert_eq!(matched.without_request, [], "responses without a request");
    let mut by_port: HashMap<u16, Vec<(Request, u16)>> = HashMap::new();
    for (request, key) in matched.requests.iter().zip(&matched.keys) {
        let port = port_of(&matched, *key);
        by_port.entry(port).or_default().push((request, key.id));
    }
    let mut next: HashMap<u16, usize> = HashMap::new();
    let mut missing = Vec::new();
    for call in &run.calls {
        let place = next.entry(call.port).or_default();
        let Some(&(request, id)) = by_port[&call.port].get(*place) else {
            missing.push(*call);
            continue;
        };
        let stamps = request.server;
        assert!(call.sent <= stamps.t1, "{call:?} {stamps:?}");
        assert!(stamps.t6 <= call.received, "{call:?} {stamps:?}");
        if let Some(before) = place.checked_sub(1) {
            let bytes = id.wrapping_sub(by_port[&call.port][before].1);
            assert_eq!(bytes, run.request_bytes as u16, "{call:?}");
        }
        *place += 1;
    }
    assert_eq!(matched.requests.len() + missing.len(), run.calls.len());
    assert_only_the_end_is_missing(&missing, &matched, &run.calls, &options);
    let counts = matched.counts(run.from);
    assert_eq!(counts.out_of_order, 0);
    (matched, counts)
}

/// A call is missing only if it is of the last round of its connection and a response there was held up between
/// two of its writes: then the end of the recording may have cut off the last one, too.
fn assert_only_the_end_is_missing(
    missing: &[Call],
    matched: &Matched,
    calls: &[Call],
    options: &MatchOptions,
) {
    for call in missing {
        let of_port = calls.iter().rev().find(|other| other.port == call.port);
        let last = of_port.expect("it is one of them");
        assert_eq!(call.received, last.received, "{call:?} is not the last");
        let of_port = matched.requests.iter().zip(&matched.keys);
        let took = of_port
            .filter(|(_, key)| port_of(matched, **key) == call.port)
            .map(|(request, _)| request.server.t6.saturating_since(request.server.t1))
            .chain([call.received.saturating_since(call.sent)]);
        let longest = took.max().unwrap_or_default();
        assert!(
            longest * 4 > options.overtaken_after,
            "{call:?} is missing, and no response took longer than {longest:?}"
        );
    }
}

/// As above, and at least 99.5 % of those outside of blind windows have all six stamps.
fn assert_complete(bed: &StreamBed, calls: &Calls, avoided: &[&str]) {
    let attempt = |_| {
        let run = record(bed, &bed.spec, avoided, calls.clone());
        let made = run.calls.len();
        let (matched, counts) = assert_each_call_is_one_request(run, true);
        let missing = made - matched.requests.len();
        let wanted = calls.connections * calls.rounds - missing;
        assert_eq!(counts.matched, wanted as u64, "those after the warm-up");
        println!("{counts:?}");
        matched
    };
    let matched = first_unspoiled(ATTEMPTS, attempt, was_blind);
    let lack = share_that_lacks(&matched, Stamps::is_complete);
    assert!(lack <= 0.005, "{:.2} % lack stamps", lack * 100.0);
}

#[test]
fn memcached_with_one_thread_has_all_stamps() {
    let Some(_alone) = live("memcached_with_one_thread_has_all_stamps") else {
        return;
    };
    let bed = StreamBed::new();
    let _server = bed.memcached(1);
    assert_complete(&bed, &calls(8, 500, GET), &[]);
}

#[test]
fn memcached_with_several_threads_has_all_stamps() {
    let Some(_alone) = live("memcached_with_several_threads_has_all_stamps") else {
        return;
    };
    let bed = StreamBed::new();
    let _server = bed.memcached(4);
    assert_complete(&bed, &calls(8, 500, GET), &[]);
    keep("memcached_tcp_4_threads", &bed, calls(6, 100, GET));
}

#[test]
fn nginx_with_several_processes_has_all_stamps() {
    let Some(_alone) = live("nginx_with_several_processes_has_all_stamps") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let bed = StreamBed::new();
    let _server = bed.nginx(folder.path(), Nginx::default());
    assert_complete(&bed, &calls(8, 500, FILE), &[]);
    keep("nginx_2_workers", &bed, calls(6, 100, FILE));
}

#[test]
fn a_thread_for_each_connection_has_all_stamps() {
    let Some(_alone) = live("a_thread_for_each_connection_has_all_stamps") else {
        return;
    };
    let bed = StreamBed::new();
    bed.thread_per_connection(8 * 6, 128);
    assert_complete(&bed, &calls(8, 500, &[7; 128]), &[]);
    keep("thread_per_connection", &bed, calls(6, 100, &[7; 128]));
}

#[test]
fn nginx_that_sends_files_and_has_a_socket_for_each_worker_has_all_stamps() {
    let Some(_alone) =
        live("nginx_that_sends_files_and_has_a_socket_for_each_worker_has_all_stamps")
    else {
        return;
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let bed = StreamBed::new();
    let how = Nginx {
        sendfile: true,
        reuseport: true,
        refuses: false,
    };
    let _server = bed.nginx(folder.path(), how);
    assert_complete(&bed, &calls(8, 300, FILE), &[]);
}

#[test]
fn streams_through_a_ring_have_all_stamps() {
    let Some(_alone) = live("streams_through_a_ring_have_all_stamps") else {
        return;
    };
    for serve in [echo::streams_by_ring, echo::streams_by_ring_of_threads] {
        let bed = StreamBed::new();
        bed.serve(8, 6, serve);
        assert_complete(&bed, &calls(8, 300, &[7; 128]), &[]);
    }
}

#[test]
fn with_the_hooks_of_older_kernels_the_stamps_are_there() {
    let Some(_alone) = live("with_the_hooks_of_older_kernels_the_stamps_are_there") else {
        return;
    };
    let bed = StreamBed::new();
    let _server = bed.memcached(1);
    assert_complete(&bed, &calls(4, 300, GET), &["tp_btf/sock_recv_length"]);
}

/// The switches and wake-ups of the server's threads that are recorded while it is called,
/// each time from its sleep; and the calls.
fn sleeps_of(
    bed: &StreamBed,
    server: u32,
    processes: Vec<u32>,
) -> (Matched, Vec<Event>, Vec<Call>) {
    let spec = ProbeSpec {
        server: ServerProcesses::These(processes),
        disturbances: Disturbances::SCHED | Disturbances::WAKE,
        ..bed.spec.clone()
    };
    let mut probe = Probe::load(&spec).expect("this kernel lets the probe load");
    probe.attach().expect("the hooks are there");
    let calls = bed.make_asleep(server, 100, GET);
    let recording = probe.finish().expect("the counters can be read");
    assert_eq!(recording.lost.total(), 0, "{:?}", recording.lost);
    let of_server = |event: &Event| {
        matches!(
            event.kind,
            EventKind::Woken { .. }
                | EventKind::Switched {
                    asleep: Some(_),
                    ..
                }
        )
    };
    let events = recording.events().filter(of_server).collect();
    let run = Run {
        recording,
        from: Monotonic::from_nanos_since_boot(0),
        request_bytes: GET.len(),
        calls,
    };
    let calls = run.calls.clone();
    let (matched, counts) = assert_each_call_is_one_request(run, true);
    // the port says whose socket it is, whichever thread writes
    assert_eq!(counts.missing_middle[3], 0);
    (matched, events, calls)
}

#[test]
fn processes_that_are_named_one_by_one_are_the_servers() {
    let Some(_alone) = live("processes_that_are_named_one_by_one_are_the_servers") else {
        return;
    };
    let bed = StreamBed::new();
    let server = bed.memcached(1);
    let attempt = |_| {
        let (matched, events, calls) = sleeps_of(&bed, server.id(), vec![1, server.id()]);
        let is_seen = |(call, next): &(Call, Call)| {
            let hidden = |gap: &BlindWindow| gap.from <= next.sent && call.sent <= gap.to;
            !matched.blind.iter().any(hidden)
        };
        let pairs = calls.iter().copied().zip(calls[1..].iter().copied());
        let seen: Vec<(Call, Call)> = pairs.filter(is_seen).collect();
        (seen, events)
    };
    let blind = |(seen, _): &(Vec<(Call, Call)>, Vec<Event>)| {
        seen.is_empty()
            .then(|| "the probe was blind all the time".to_owned())
    };
    let (seen, events) = first_unspoiled(ATTEMPTS, attempt, blind);
    println!("{} calls outside of blind windows", seen.len());
    for (call, next) in &seen {
        let within = |event: &&Event| (call.sent..next.sent).contains(&event.at);
        let (mut woken, mut asleep) = (0, 0);
        for event in events.iter().filter(within) {
            match event.kind {
                EventKind::Woken { .. } => woken += 1,
                _ => asleep += 1,
            }
        }
        assert!(woken > 0 && asleep > 0, "{call:?}: {woken} {asleep}");
    }

    let other = StreamBed::sleeping();
    testbed::await_sleep(&testbed::threads_of(other.id()));
    let (_, events, _) = sleeps_of(&bed, server.id(), vec![other.id()]);
    assert_eq!(events, [], "another process");
}

#[test]
fn large_requests_and_responses_are_one_each() {
    let Some(_alone) = live("large_requests_and_responses_are_one_each") else {
        return;
    };
    const BYTES: usize = 300_000;
    let bed = StreamBed::new();
    bed.thread_per_connection(2 * ATTEMPTS_AT_ALL, BYTES);
    let (run, _) = record_all(&bed, &calls(2, 50, &[7; BYTES]));
    let (_, counts) = assert_each_call_is_one_request(run, true);
    println!("{counts:?}");
}

/// When packets were handed down to a queue, and when the driver took each.
fn passages(recording: &Recording) -> (Vec<Monotonic>, Vec<Monotonic>) {
    let (mut handed_down, mut left) = (HashMap::new(), Vec::new());
    let mut waited = Vec::new();
    for event in recording.events() {
        if let EventKind::DeviceQueue {
            key,
            number,
            left: leaves,
        } = event.kind
        {
            match leaves {
                false => _ = handed_down.insert((key.connection, number), event.at),
                true => {
                    left.push(event.at);
                    waited.push(handed_down[&(key.connection, number)]);
                }
            }
        }
    }
    (waited, left)
}

/// How many packets waited in a queue while others were handed down to it.
fn how_many_waited(recording: &Recording) -> usize {
    let (handed_down, left) = passages(recording);
    let mut later = handed_down.clone();
    later.sort();
    let waited = handed_down.iter().zip(&left).filter(|(from, to)| {
        let next = later.partition_point(|at| at <= from);
        later.get(next).is_some_and(|next| next < to)
    });
    waited.count()
}

/// Whether each packet that was handed down to a queue was seen to leave it. Where the probe is blind, some are not.
fn all_were_seen_to_leave(recording: &Recording) -> bool {
    let passages = |leaves: bool| {
        let passes = recording
            .events()
            .filter_map(move |event| match event.kind {
                EventKind::DeviceQueue { number, left, .. } if left == leaves => Some(number),
                _ => None,
            });
        passes.collect::<HashSet<u32>>()
    };
    passages(true) == passages(false)
}

/// A recording of the calls in which the probe missed no packet, and how many segments TCP sent again meanwhile. What
/// acknowledgements set going leaves on top of any thread, also of one that blinds the probe.
fn record_all(bed: &StreamBed, calls: &Calls) -> (Run, u64) {
    // the switches show where it was blind
    let spec = ProbeSpec {
        disturbances: bed.spec.disturbances | Disturbances::SCHED,
        ..bed.spec.clone()
    };
    let attempt = |_| {
        let before = bed.in_servers(segments_sent_again);
        let run = record(bed, &spec, &[], calls.clone());
        (run, bed.in_servers(segments_sent_again) - before)
    };
    first_unspoiled(ATTEMPTS_AT_ALL, attempt, |(run, by_kernel)| {
        missed(run, *by_kernel)
    })
}

/// What of the calls the probe missed where it was blind: a packet that left, a segment that was sent again, a part of a
/// request, a response.
fn missed(run: &Run, resent_by_kernel: u64) -> Option<String> {
    if !all_were_seen_to_leave(&run.recording) {
        return Some("a packet was not seen to leave".to_owned());
    }
    let options = MatchOptions::for_streams(Nanos::from_secs(5), true);
    let Matched {
        unmatched,
        ambiguous,
        without_request,
        blind,
        ..
    } = match_events(run.recording.events(), &options);
    if resent_by_kernel > 0 && sent_again(&run.recording) == 0 && !blind.is_empty() {
        return Some(format!(
            "{resent_by_kernel} segments were sent again unseen"
        ));
    }
    let came = unmatched.iter().map(|request| request.t1);
    let odd: Vec<Monotonic> = came.chain(ambiguous).chain(without_request).collect();
    (!odd.is_empty() && odd.iter().all(|at| was_hidden(*at, &run.calls, &blind)))
        .then(|| format!("of {} calls a part is in a blind window", odd.len()))
}

/// Whether the probe was blind while a call was under way that was so at this time, too. The window may lie before the
/// end of a long request, or between the request and its response.
fn was_hidden(at: Monotonic, calls: &[Call], blind: &[BlindWindow]) -> bool {
    let mut under_way = calls
        .iter()
        .filter(|call| call.sent <= at && at <= call.received);
    under_way.any(|call| {
        let hides = |gap: &BlindWindow| gap.from <= call.received && call.sent <= gap.to;
        blind.iter().any(hides)
    })
}

/// How many segments of responses the probe saw sent again.
fn sent_again(recording: &Recording) -> u64 {
    let resent = |event: &Event| matches!(event.kind, EventKind::SegmentOut { resent: true, .. });
    recording.events().filter(resent).count() as u64
}

/// Each call is one request whose T6 is when the driver took the end of its response. Returns how many waited in the
/// queue while others were handed down to it.
fn assert_each_call_left_the_queue(bed: &StreamBed, calls: &Calls) -> usize {
    let (run, by_kernel) = record_all(bed, calls);
    let resent = sent_again(&run.recording);
    // TCP itself sends again what waits for long
    assert!(
        resent <= by_kernel && (resent == 0) == (by_kernel == 0),
        "{resent} {by_kernel}"
    );
    let waited = how_many_waited(&run.recording);
    let (_, left) = passages(&run.recording);
    let (matched, _) = assert_each_call_is_one_request(run, true);
    let taken: HashSet<Monotonic> = left.iter().copied().collect();
    for request in matched.requests.iter() {
        assert!(taken.contains(&request.server.t6), "{:?}", request.server);
    }
    waited
}

#[test]
fn responses_that_wait_in_the_queue_of_a_device_are_first_transmissions() {
    let Some(_alone) = live("responses_that_wait_in_the_queue_of_a_device_are_first_transmissions")
    else {
        return;
    };
    let cases = [
        ("4mbit", 1_600, 1_000, 4, 30),
        // the queue cuts what TCP sends in one piece
        ("100mbit", 4_000, 100_000, 2, 10),
    ];
    for (rate, at_once, bytes, connections, rounds) in cases {
        let bed = StreamBed::with_queue(rate, at_once);
        bed.thread_per_connection(connections * ATTEMPTS_AT_ALL, bytes);
        let calls = calls(connections, rounds, &vec![7; bytes]);
        let waited = assert_each_call_left_the_queue(&bed, &calls);
        println!("{rate}, {bytes} bytes: {waited} waited");
        assert!(waited > rounds, "{waited}");
    }
}

/// A server with a thread for each connection. The first response on each is lost, since the client has no address when
/// it comes. That is so on all of them at once: of a connection that is idle meanwhile, the client's TCP sends the next
/// request in small segments, each of which looks like one. Then all are called at once, as often as `calls` says.
/// Returns all calls.
fn first_is_lost(bed: &StreamBed, calls: &Calls) -> Vec<Call> {
    let (address, bytes, connections) = (bed.address(), calls.request.len(), calls.connections);
    let (may_write, wait_may_write) = channel::<()>();
    let (has_read, wait_has_read) = channel();
    bed.in_servers(move || {
        let listener = TcpListener::bind(address).expect("the port is free");
        std::thread::spawn(move || {
            let mut request = vec![0; bytes];
            let mut streams = Vec::new();
            for _ in 0..connections {
                let (mut stream, _) = listener.accept().expect("a connection");
                stream.set_nodelay(true).expect("an option of TCP");
                stream.read_exact(&mut request).expect("a request");
                streams.push(stream);
            }
            has_read.send(()).expect("the client waits");
            wait_may_write.recv().expect("the client says so");
            for mut stream in streams {
                let mut request = request.clone();
                stream.write_all(&request).expect("the socket has room");
                std::thread::spawn(move || {
                    while stream.read_exact(&mut request).is_ok() {
                        stream.write_all(&request).expect("the client is there");
                    }
                });
            }
        });
    });
    let (request, rounds) = (calls.request.clone(), calls.rounds);
    bed.in_clients(move || {
        let mut response = vec![0; bytes];
        let mut all = Vec::new();
        let mut receive = |stream: &mut TcpStream, sent| {
            stream.read_exact(&mut response).expect("a response");
            let port = stream.local_addr().expect("it is connected").port();
            let received = now();
            all.push(Call {
                port,
                sent,
                received,
            });
        };
        let send = |stream: &mut TcpStream| {
            let sent = now();
            stream.write_all(&request).expect("the server reads");
            sent
        };
        let connect = |_| {
            let stream = TcpStream::connect(address).expect("the server listens");
            stream.set_nodelay(true).expect("an option of TCP");
            stream
        };
        let mut streams: Vec<TcpStream> = (0..connections).map(connect).collect();
        let mut sent: Vec<Monotonic> = streams.iter_mut().map(send).collect();
        wait_has_read.recv().expect("the server says so");
        ip(&format!("address del {CLIENT}/24 dev client"));
        let before = received_by_client();
        may_write.send(()).expect("the server waits");
        eventually("the responses are lost", || {
            received_by_client() >= before + connections * bytes
        });
        ip(&format!("address add {CLIENT}/24 dev client"));
        for round in 0..=rounds {
            if round > 0 {
                sent = streams.iter_mut().map(send).collect();
            }
            for (stream, sent) in streams.iter_mut().zip(&sent) {
                receive(stream, *sent);
            }
        }
        all
    })
}

/// What was sent again once must not make everything later on the connection a repetition, when a queue defers it.
#[test]
fn after_a_retransmission_responses_that_wait_in_a_queue_are_first_transmissions() {
    let Some(_alone) =
        live("after_a_retransmission_responses_that_wait_in_a_queue_are_first_transmissions")
    else {
        return;
    };
    let calls = calls(3, 30, &[7; 1_000]);
    let attempt = |_| {
        let bed = StreamBed::with_queue("4mbit", 1_600);
        // the switches show where the probe was blind
        let spec = ProbeSpec {
            disturbances: bed.spec.disturbances | Disturbances::SCHED,
            ..bed.spec.clone()
        };
        let before = bed.in_servers(segments_sent_again);
        let mut probe = Probe::load(&spec).expect("this kernel lets the probe load");
        probe.attach().expect("the hooks are there");
        let made = first_is_lost(&bed, &calls);
        let recording = probe.finish().expect("the counters can be read");
        assert_eq!(recording.lost.total(), 0, "{:?}", recording.lost);
        let run = Run {
            recording,
            from: Monotonic::from_nanos_since_boot(0),
            calls: made,
            request_bytes: calls.request.len(),
        };
        (run, bed.in_servers(segments_sent_again) - before)
    };
    let spoiled = |(run, by_kernel): &(Run, u64)| {
        // TCP itself sends again what waits for long, and where the probe is blind, it does not see that
        let others = *by_kernel != calls.connections as u64;
        let is_blind = || {
            let options = MatchOptions::for_streams(Nanos::from_secs(5), true);
            let matched = match_events(run.recording.events(), &options);
            !matched.blind.is_empty()
        };
        if others || sent_again(&run.recording) < *by_kernel && is_blind() {
            return Some(format!("{by_kernel} segments were sent again"));
        }
        missed(run, *by_kernel)
    };
    let (run, _) = first_unspoiled(ATTEMPTS_AT_ALL, attempt, spoiled);
    let mut resent: HashMap<u32, usize> = HashMap::new();
    for event in run.recording.events() {
        if let EventKind::SegmentOut {
            key, resent: true, ..
        } = event.kind
        {
            *resent.entry(key.connection).or_default() += 1;
        }
    }
    assert_eq!(resent.len(), calls.connections, "{resent:?}");
    assert!(resent.values().all(|segments| *segments == 1), "{resent:?}");
    let waited = how_many_waited(&run.recording);
    println!("{waited} waited");
    // one thread for each connection: beside other programs they may answer too far apart
    assert!(waited > calls.rounds / 2, "{waited}");
    let (matched, _) = assert_each_call_is_one_request(run, true);
    assert_eq!(matched.sent_again.len(), calls.connections);
}

#[test]
fn pipelined_requests_are_told_apart_or_ambiguous() {
    let Some(_alone) = live("pipelined_requests_are_told_apart_or_ambiguous") else {
        return;
    };
    let bed = StreamBed::new();
    let server = bed.memcached(1);
    let pipelined = Calls {
        in_flight: 5,
        ..calls(4, 300, GET)
    };
    let run = record(&bed, &bed.spec, &[], pipelined.clone());
    let (_, counts) = assert_each_call_is_one_request(run, true);
    println!("{counts:?}");
    let few = Calls {
        rounds: 20,
        ..pipelined.clone()
    };
    keep("memcached_tcp_pipelined", &bed, few);

    // a server about which nothing is known, and which finds all requests of a turn at once
    let mut probe = Probe::load(&bed.spec).expect("this kernel lets the probe load");
    probe.attach().expect("the hooks are there");
    let calls = bed.make_while_stopped(&server, pipelined);
    let recording = probe.finish().expect("the counters can be read");
    assert_eq!(recording.lost.total(), 0, "{:?}", recording.lost);
    let counts = assert_each_call_is_right_or_ambiguous(Run {
        recording,
        from: Monotonic::from_nanos_since_boot(0),
        request_bytes: GET.len(),
        calls,
    });
    println!("{counts:?}");
    assert!(counts.ambiguous > 0, "{counts:?}");
}

/// The calls of each client's port, in their order.
fn by_port_of(calls: &[Call]) -> HashMap<u16, Vec<Call>> {
    let mut by_port: HashMap<u16, Vec<Call>> = HashMap::new();
    for call in calls {
        by_port.entry(call.port).or_default().push(*call);
    }
    by_port
}

/// For a server about which nothing is known: a call whose request is matched has its stamps
/// between the client's, and every other one is ambiguous.
fn assert_each_call_is_right_or_ambiguous(run: Run) -> Matching {
    let options = MatchOptions::for_streams(Nanos::from_secs(5), false);
    let matched = match_events(run.recording.into_events(), &options);
    let mut by_port: HashMap<u16, Vec<(Monotonic, Option<Monotonic>)>> = HashMap::new();
    for (request, key) in matched.requests.iter().zip(&matched.keys) {
        let stamps = request.server;
        let of_port = by_port.entry(port_of(&matched, *key)).or_default();
        of_port.push((stamps.t1, Some(stamps.t6)));
    }
    for request in &matched.unmatched {
        assert!(request.ambiguous, "{request:?}");
        let of_port = by_port.entry(port_of(&matched, request.key)).or_default();
        of_port.push((request.t1, None));
    }
    let mut missing = Vec::new();
    for (port, calls) in by_port_of(&run.calls) {
        let mut found = by_port.remove(&port).unwrap_or_default();
        found.sort();
        let seen = calls.len().min(found.len());
        for (n, (call, (t1, t6))) in calls.iter().zip(&found).enumerate() {
            let what = || format!("{call:?}, {n} of {}: {t1:?} {t6:?}", calls.len());
            assert!(call.sent <= *t1, "{}; {} found", what(), found.len());
            let left_before = t6.is_none_or(|t6| t6 <= call.received);
            assert!(left_before, "{}; {} found", what(), found.len());
        }
        missing.extend_from_slice(&calls[seen..]);
    }
    assert_only_the_end_is_missing(&missing, &matched, &run.calls, &options);
    assert_eq!(matched.without_request, []);
    let counts = matched.counts(Monotonic::from_nanos_since_boot(0));
    let found = run.calls.len() - missing.len();
    assert_eq!(counts.matched + counts.ambiguous, found as u64);
    counts
}

#[test]
fn pipelined_requests_that_are_read_one_by_one_are_never_guessed() {
    let Some(_alone) = live("pipelined_requests_that_are_read_one_by_one_are_never_guessed") else {
        return;
    };
    let bed = StreamBed::new();
    bed.thread_per_connection(4, 128);
    let pipelined = Calls {
        in_flight: 5,
        ..calls(4, 300, &[7; 128])
    };
    // A slow kernel sends a response only after the server has read on: it is then ambiguous.
    let counts = assert_each_call_is_right_or_ambiguous(record(&bed, &bed.spec, &[], pipelined));
    println!("{counts:?}");
    assert!(counts.matched > 0, "{counts:?}");
}
