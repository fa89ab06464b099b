//! The probe on the running kernel: a real server, real packets.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};

use crate::testbed::{ATTEMPTS, SERVER_PORT, Testbed, begin, first_unspoiled, live, now, peers};
use taillab_analysis::{MatchOptions, match_events};
use taillab_model::{Event, EventKind, MiddleStamps, Monotonic, Nanos, Recording, RequestKey};
use taillab_probe::{
    Addresses, Devices, Disturbances, Probe, ProbeError, ProbeSpec, ServerProcesses, Transport,
};

/// The stamps of one request.
#[derive(Debug, Default)]
struct Stamps {
    t1: Option<Monotonic>,
    t2: Option<Monotonic>,
    t4: Option<Monotonic>,
    t5: Option<Monotonic>,
    t6: Option<Monotonic>,
}

/// Joins events to requests, for a server that reads and answers one after the other in order of arrival.
///
/// Panics on an event that fits no request.
fn join(events: &[Event], server_tid: u32) -> Vec<(RequestKey, Stamps)> {
    let mut requests: Vec<(RequestKey, Stamps)> = Vec::new();
    let mut in_flight = HashMap::new();
    let (mut reads, mut writes) = (0, 0);
    for event in events {
        let at = Some(event.at);
        match event.kind {
            EventKind::PacketIn { packet, key } => {
                in_flight.insert(packet, requests.len());
                requests.push((
                    key,
                    Stamps {
                        t1: at,
                        ..Stamps::default()
                    },
                ));
            }
            EventKind::Enqueued { packet } => {
                let request = in_flight.remove(&packet).expect("its PacketIn came before");
                requests[request].1.t2 = at;
            }
            EventKind::ReadReturned { tid, .. } if tid == server_tid => {
                requests[reads].1.t4 = at;
                reads += 1;
            }
            EventKind::WriteCalled { tid } if tid == server_tid => {
                requests[writes].1.t5 = at;
                writes += 1;
            }
            EventKind::PacketOut { tid, key } => {
                assert_eq!(tid, server_tid);
                let (_, stamps) = requests
                    .iter_mut()
                    .rev()
                    .find(|(k, stamps)| *k == key && stamps.t6.is_none())
                    .expect("a response answers a request");
                stamps.t6 = at;
            }
            _ => {}
        }
    }
    requests
}

/// Every request has all stamps, in order, and its own key. Only T2 may come after T4, in one request in a
/// hundred: a reader that is awake on another CPU can read a datagram while an interrupt delays the stamp.
fn assert_complete(recording: Recording, testbed: &Testbed, ids: &[u16]) {
    assert_eq!(recording.lost.total(), 0, "{:?}", recording.lost);
    let events: Vec<Event> = recording.into_events().collect();
    assert!(events.is_sorted_by_key(|event| event.at));
    let requests = join(&events, testbed.server_tid);
    let peers = peers(&events);
    let sent = |&(key, _): &(RequestKey, _)| (peers[&key.connection], key.id);
    let client = SocketAddr::new(testbed.client_address(), testbed.client_port());
    let expected = ids.iter().map(|&id| (client, id)).collect::<Vec<_>>();
    assert_eq!(requests.iter().map(sent).collect::<Vec<_>>(), expected);
    let mut late = 0;
    for (key, stamps) in &requests {
        let all = [stamps.t1, stamps.t2, stamps.t4, stamps.t5, stamps.t6];
        assert!(all.iter().all(Option::is_some), "{key:?}: {stamps:?}");
        let [t1, t2, t4, t5, t6] = all;
        assert!([t1, t4, t5, t6].is_sorted(), "{key:?}: {stamps:?}");
        assert!(t1 <= t2, "{key:?}: {stamps:?}");
        late += usize::from(t2 > t4);
    }
    let most = requests.len().div_ceil(100);
    assert!(late <= most, "{late} of {}: {requests:?}", requests.len());
    let count = |wanted: fn(&EventKind) -> bool| events.iter().filter(|e| wanted(&e.kind)).count();
    assert_eq!(
        count(|k| matches!(k, EventKind::PacketIn { .. })),
        ids.len()
    );
    assert_eq!(
        count(|k| matches!(k, EventKind::Enqueued { .. })),
        ids.len()
    );
    assert_eq!(
        count(|k| matches!(k, EventKind::PacketOut { .. })),
        ids.len()
    );
}

#[test]
fn other_hooks_give_the_same_stamps() {
    let Some(_alone) = live("other_hooks_give_the_same_stamps") else {
        return;
    };
    let testbed = Testbed::veth();
    let avoided = ["tp_btf/sock_recv_length", "fexit/udp_recvmsg"];
    let mut probe =
        Probe::load_avoiding(&testbed.spec, &avoided).expect("this kernel lets the probe load");
    let hooks = probe.hooks();
    let t4 = hooks.iter().find(|hook| hook.stamp == "T4");
    assert_eq!(t4.expect("T4 has a hook").hook, "tp_btf/sys_exit");
    begin(&mut probe, testbed.server_tid);
    let ids: Vec<u16> = (0..500).collect();
    for id in &ids {
        testbed.round_trip(&id.to_be_bytes());
    }
    let recording = probe.finish().expect("the counters can be read");
    assert_complete(recording, &testbed, &ids);
}

#[test]
fn without_a_hook_for_t2_the_other_stamps_are_there() {
    let Some(_alone) = live("without_a_hook_for_t2_the_other_stamps_are_there") else {
        return;
    };
    let testbed = Testbed::veth();
    let avoided = [
        "tp_btf/sk_data_ready",
        "fentry/sock_def_readable",
        "fexit/__udp_enqueue_schedule_skb",
    ];
    let mut probe =
        Probe::load_avoiding(&testbed.spec, &avoided).expect("this kernel lets the probe load");
    let hooks = probe.hooks();
    let t2 = hooks
        .iter()
        .find(|hook| hook.stamp == "T2")
        .expect("listed");
    assert_eq!(t2.hook, "none");
    assert!(t2.lost_precision.is_some());
    probe.attach().expect("the hooks are there");
    for id in 0..100_u16 {
        testbed.round_trip(&id.to_be_bytes());
    }
    let recording = probe.finish().expect("the counters can be read");
    let events: Vec<Event> = recording.into_events().collect();
    let count = |wanted: fn(&EventKind) -> bool| events.iter().filter(|e| wanted(&e.kind)).count();
    assert_eq!(count(|k| matches!(k, EventKind::PacketIn { .. })), 100);
    assert_eq!(count(|k| matches!(k, EventKind::Enqueued { .. })), 0);
    assert_eq!(count(|k| matches!(k, EventKind::PacketOut { .. })), 100);
}

/// The last resort for T2 comes after the wake-up, so a reader on another CPU may be
/// first. Only which packets are stamped is certain, and that the result names the loss.
#[test]
fn a_late_t2_is_stamped_once_for_each_packet_where_it_is_allowed() {
    let Some(_alone) = live("a_late_t2_is_stamped_once_for_each_packet_where_it_is_allowed") else {
        return;
    };
    let testbed = Testbed::veth();
    let avoided = ["tp_btf/sk_data_ready", "fentry/sock_def_readable"];
    let mut probe =
        Probe::load_avoiding(&testbed.spec, &avoided).expect("this kernel lets the probe load");
    let hooks = probe.hooks();
    let t2 = hooks
        .iter()
        .find(|hook| hook.stamp == "T2")
        .expect("listed");
    assert!(t2.lost_precision.is_some());
    let each = match t2.hook.as_str() {
        "fexit/__udp_enqueue_schedule_skb" => 1,
        "none" => 0,
        other => panic!("{other} was to be avoided or is unknown"),
    };
    probe.attach().expect("the hooks are there");
    for id in 0..200_u16 {
        testbed.round_trip(&id.to_be_bytes());
    }
    let recording = probe.finish().expect("the counters can be read");
    assert_eq!(recording.lost.total(), 0);
    let (mut arrived, mut enqueued) = (Vec::new(), Vec::new());
    for event in recording.into_events() {
        match event.kind {
            EventKind::PacketIn { packet, .. } => arrived.push(packet),
            EventKind::Enqueued { packet } => enqueued.push(packet),
            _ => {}
        }
    }
    assert_eq!(arrived.len(), 200);
    // buffers are recycled, so both lists may name one more than once
    arrived.sort_unstable();
    enqueued.sort_unstable();
    assert_eq!(enqueued, arrived.repeat(each));
}

fn load(spec: &ProbeSpec) -> Probe {
    let mut probe = Probe::load(spec).expect("this kernel lets the probe load");
    probe.reserve(100_000).expect("there is memory");
    probe
}

/// Descriptors of this process that hold eBPF objects of this kind.
fn descriptors(kind: &str) -> usize {
    let fds = std::fs::read_dir("/proc/self/fd").expect("/proc is mounted");
    fds.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok())
        .filter(|target| target.to_string_lossy().contains(kind))
        .count()
}

#[test]
fn every_request_over_veth_has_all_stamps_in_order() {
    let Some(_alone) = live("every_request_over_veth_has_all_stamps_in_order") else {
        return;
    };
    let testbed = Testbed::veth();
    let mut probe = load(&testbed.spec);
    let stamps: Vec<_> = probe.hooks().into_iter().map(|hook| hook.stamp).collect();
    let each: Vec<_> = stamps
        .chunk_by(|a, b| a == b)
        .map(|same| &same[0])
        .collect();
    assert_eq!(each, ["T1", "T2", "T4", "T5", "T6", "switch"]);
    begin(&mut probe, testbed.server_tid);
    let ids: Vec<u16> = (0..2_000).map(|i| i * 31).collect();
    let mut drained = 0;
    for id in &ids {
        let [high, low] = id.to_be_bytes();
        // before the round trip: the events of the last one are left to `finish`
        drained += probe.drain(1_000);
        testbed.round_trip(&[high, low, 0, 0, 0, 1, 0, 0]);
    }
    assert!(drained > 0);
    let recording = probe.finish().expect("the counters can be read");
    assert!(recording.len() > drained as u64);
    assert_complete(recording, &testbed, &ids);
}

#[test]
fn on_loopback_requests_and_responses_are_told_apart() {
    let Some(_alone) = live("on_loopback_requests_and_responses_are_told_apart") else {
        return;
    };
    let testbed = Testbed::loopback();
    let mut probe = load(&testbed.spec);
    begin(&mut probe, testbed.server_tid);
    let ids: Vec<u16> = (0..500).collect();
    for id in &ids {
        testbed.round_trip(&id.to_be_bytes());
    }
    let recording = probe.finish().expect("the counters can be read");
    assert_complete(recording, &testbed, &ids);
}

#[test]
fn a_short_payload_has_an_id_all_the_same() {
    let Some(_alone) = live("a_short_payload_has_an_id_all_the_same") else {
        return;
    };
    let testbed = Testbed::veth();
    let mut probe = load(&testbed.spec);
    probe.attach().expect("the hooks are there");
    let mut ids = Vec::new();
    for _ in 0..20 {
        // a payload of 2 bytes first, so that old bytes could be taken for the id
        testbed.round_trip(&[0xaa, 0xbb]);
        testbed.round_trip(&[0xcc]);
        testbed.round_trip(&[]);
        ids.extend([0xaabb, 0xcc00, 0]);
    }
    let recording = probe.finish().expect("the counters can be read");
    assert_eq!(recording.lost.total(), 0);
    let events: Vec<Event> = recording.into_events().collect();
    let keys = |out: bool| -> Vec<u16> {
        let id = |event: &Event| match event.kind {
            EventKind::PacketIn { key, .. } if !out => Some(key.id),
            EventKind::PacketOut { key, .. } if out => Some(key.id),
            _ => None,
        };
        events.iter().filter_map(id).collect()
    };
    assert_eq!(keys(false), ids);
    assert_eq!(keys(true), ids);
}

#[test]
fn what_is_not_the_servers_is_not_recorded() {
    let Some(_alone) = live("what_is_not_the_servers_is_not_recorded") else {
        return;
    };
    let testbed = Testbed::veth();
    let stamped = |spec: &ProbeSpec| {
        let mut probe = load(spec);
        probe.attach().expect("the hooks are there");
        for id in 0..200_u16 {
            testbed.round_trip(&id.to_be_bytes());
        }
        let recording = probe.finish().expect("the counters can be read");
        let is_switch = |e: &Event| matches!(e.kind, EventKind::Switched { .. });
        let events: Vec<Event> = recording.into_events().collect();
        let switches = events.iter().filter(|e| is_switch(e)).count();
        (events.len() - switches, switches)
    };
    let ours = &testbed.spec;

    let (_, switches) = stamped(&ProbeSpec {
        server_cpus: Vec::new(),
        ..ours.clone()
    });
    assert_eq!(switches, 0, "no CPU of the server");

    let (stamps, switches) = stamped(&ProbeSpec {
        server_port: SERVER_PORT + 1,
        server: ServerProcesses::These(vec![1]),
        ..ours.clone()
    });
    assert_eq!(stamps, 0, "another port and process");
    assert!(switches > 0);

    let mut elsewhere = ours.clone();
    elsewhere.devices.netns_inode -= 1;
    elsewhere.server = ServerProcesses::These(vec![1]);
    let mut probe = load(&elsewhere);
    probe.attach().expect("the hooks are there");
    testbed.round_trip(&[1, 2]);
    let recording = probe.finish().expect("the counters can be read");
    let on_the_device = |e: Event| {
        matches!(
            e.kind,
            EventKind::PacketIn { .. } | EventKind::PacketOut { .. } | EventKind::Enqueued { .. }
        )
    };
    assert!(
        !recording.into_events().any(on_the_device),
        "another namespace's device of the same index"
    );
}

/// Events in the rings of a detached probe: until they are taken, they count as lost.
fn in_rings(probe: &Probe) -> u64 {
    let lost = probe.lost().expect("the counters can be read");
    lost.ring_full
}

#[test]
fn it_attaches_and_detaches_again_and_again_and_leaves_nothing() {
    let Some(_alone) = live("it_attaches_and_detaches_again_and_again_and_leaves_nothing") else {
        return;
    };
    let testbed = Testbed::veth();
    let before = (descriptors("bpf-prog"), descriptors("bpf-map"));
    let mut probe = load(&testbed.spec);
    assert_eq!(descriptors("bpf_link"), 0, "loading attaches nothing");
    for round in 0..20_u16 {
        begin(&mut probe, testbed.server_tid);
        assert!(probe.is_attached() && descriptors("bpf_link") > 0);
        testbed.round_trip(&round.to_be_bytes());
        probe.detach();
        assert!(!probe.is_attached());
        assert_eq!(descriptors("bpf_link"), 0);

        // a program that runs while it is detached may still write its event
        testbed.round_trip(&[0xff, 0xff]);
        let recorded = in_rings(&probe);
        assert!(recorded > 0);
        testbed.round_trip(&[0xff, 0xff]);
        let then = in_rings(&probe);
        assert_eq!(then, recorded, "nothing is recorded while detached");
        if round == 9 {
            probe.discard().expect("the counters can be read");
            assert_eq!(in_rings(&probe), 0);
        }
    }
    let recording = probe.finish().expect("the counters can be read");
    // what came before the tenth round was discarded
    let ids: Vec<u16> = (10..20).collect();
    assert_complete(recording, &testbed, &ids);
    let after = (descriptors("bpf-prog"), descriptors("bpf-map"));
    assert_eq!(after, before, "everything is unloaded");
}

#[test]
fn a_full_ring_is_counted_and_recording_goes_on_after_it() {
    let Some(_alone) = live("a_full_ring_is_counted_and_recording_goes_on_after_it") else {
        return;
    };
    let testbed = Testbed::veth();
    let mut probe = load(&ProbeSpec {
        ring_bytes_per_cpu: 0,
        ..testbed.spec.clone()
    });
    probe.attach().expect("the hooks are there");
    for id in 0..1_000_u16 {
        testbed.round_trip(&id.to_be_bytes());
    }
    let mut drained = 0;
    while probe.drain(1_000) > 0 {
        drained += 1;
    }
    assert!(drained > 0);
    testbed.round_trip(&[0xab, 0xcd]);
    let recording = probe.finish().expect("the counters can be read");
    assert!(recording.lost.ring_full > 0);
    assert_eq!(recording.lost.recursion, 0);
    let last = recording
        .into_events()
        .filter(|e| matches!(e.kind, EventKind::PacketOut { key, .. } if key.id == 0xabcd));
    assert_eq!(last.count(), 1);
}

#[test]
fn a_recording_survives_a_file() {
    let Some(_alone) = live("a_recording_survives_a_file") else {
        return;
    };
    let testbed = Testbed::veth();
    let mut probe = load(&testbed.spec);
    probe.attach().expect("the hooks are there");
    for id in 0..100_u16 {
        testbed.round_trip(&id.to_be_bytes());
    }
    let recording = probe.finish().expect("the counters can be read");
    let mut file = Vec::new();
    recording.write(&mut file).expect("memory can be written");
    let read = Recording::read(file.as_slice()).expect("it was just written");
    assert!(read.into_events().eq(recording.into_events()));
}

#[test]
fn what_cannot_be_watched_is_refused_with_a_reason() {
    let Some(_alone) = live("what_cannot_be_watched_is_refused_with_a_reason") else {
        return;
    };
    let spec = ProbeSpec {
        devices: Devices::all_in(1),
        queues: false,
        transport: Transport::Udp,
        server_port: 1,
        addresses: Addresses::All,
        server: ServerProcesses::These(vec![std::process::id()]),
        others: Vec::new(),
        served_ports: Vec::new(),
        server_cpus: vec![0],
        generator_cpus: Vec::new(),
        stamps: MiddleStamps::All,
        disturbances: Disturbances::NONE,
        payload_bytes: 0,
        ring_bytes_per_cpu: 1 << 16,
    };
    let cases = [
        (
            ProbeSpec {
                server_port: 0,
                ..spec.clone()
            },
            "port 0",
        ),
        (
            ProbeSpec {
                addresses: Addresses::Only(vec![IpAddr::from([127, 0, 0, 1]); 9]),
                ..spec.clone()
            },
            "9 addresses are more than the 8",
        ),
        (
            ProbeSpec {
                server: ServerProcesses::These(vec![u32::MAX]),
                ..spec.clone()
            },
            "no process 4294967295",
        ),
        (
            ProbeSpec {
                server: ServerProcesses::These(Vec::new()),
                ..spec.clone()
            },
            "at least one",
        ),
        (
            ProbeSpec {
                server: ServerProcesses::These(vec![1; 65]),
                ..spec.clone()
            },
            "more than the 64",
        ),
        (
            ProbeSpec {
                server_cpus: vec![0, 9_999],
                ..spec.clone()
            },
            "no CPU 9999",
        ),
        (
            ProbeSpec {
                ring_bytes_per_cpu: usize::MAX,
                ..spec
            },
            "too large",
        ),
    ];
    for (spec, why) in cases {
        match Probe::load(&spec) {
            Err(ProbeError::BadSpec(text)) => assert!(text.contains(why), "{text}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_client_may_drain_from_another_thread() {
    let Some(_alone) = live("the_client_may_drain_from_another_thread") else {
        return;
    };
    let testbed = Testbed::veth();
    let mut probe = load(&testbed.spec);
    begin(&mut probe, testbed.server_tid);
    let ids: Vec<u16> = (0..1_000).collect();
    let drained = std::thread::scope(|scope| {
        let drain = || {
            let mut drained = 0;
            for id in &ids {
                testbed.round_trip(&id.to_be_bytes());
                drained += probe.drain(usize::MAX);
            }
            drained
        };
        scope.spawn(drain).join().expect("the client's thread")
    });
    assert!(drained > 0);
    let recording = probe.finish().expect("the counters can be read");
    assert_complete(recording, &testbed, &ids);
}

#[test]
fn without_privilege_it_says_so() {
    let Some(_alone) = live("without_privilege_it_says_so") else {
        return;
    };
    let testbed = Testbed::veth();
    let nobody = || {
        let nobody = rustix::fs::Uid::from_raw(65_534);
        // of this thread only
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).expect("root can");
        Probe::load(&testbed.spec)
    };
    let result = std::thread::scope(|scope| scope.spawn(nobody).join().expect("no panic"));
    assert!(matches!(result, Err(ProbeError::NoPrivilege)), "{result:?}");
}

/// Two hundred requests, twenty at once, and when each response was received.
fn record_through_queue(testbed: &Testbed) -> (Recording, HashMap<u16, Monotonic>) {
    let mut probe = Probe::load(&testbed.spec).expect("this kernel lets the probe load");
    begin(&mut probe, testbed.server_tid);
    let mut received = HashMap::new();
    for turn in 0..10_u16 {
        for n in 0..20_u16 {
            let mut request = vec![7; 1_000];
            request[..2].copy_from_slice(&(20 * turn + n).to_be_bytes());
            let sent = testbed.client.send_to(&request, testbed.server);
            sent.expect("a send");
        }
        for _ in 0..20 {
            let mut response = [0; 2_048];
            testbed.client.recv(&mut response).expect("a response");
            let id = u16::from_be_bytes([response[0], response[1]]);
            assert!(received.insert(id, now()).is_none(), "{id} twice");
        }
    }
    let recording = probe.finish().expect("the counters can be read");
    assert_eq!(recording.lost.total(), 0, "{:?}", recording.lost);
    (recording, received)
}

/// When the driver took each response.
fn departures(recording: &Recording) -> HashMap<Monotonic, u16> {
    let left = recording.events().filter_map(|event| match event.kind {
        EventKind::DeviceQueue {
            key, left: true, ..
        } => Some((event.at, key.id)),
        _ => None,
    });
    left.collect()
}

/// Requests that come at once; the server answers each as soon as it has read it, and the responses wait in the queue
/// of its device while it reads on.
#[test]
fn responses_that_wait_in_the_queue_of_a_device_keep_their_stamps() {
    let Some(_alone) = live("responses_that_wait_in_the_queue_of_a_device_keep_their_stamps")
    else {
        return;
    };
    let testbed = Testbed::veth_with_queue();
    let attempt = |_| {
        let (recording, received) = record_through_queue(&testbed);
        let left = departures(&recording);
        (recording, received, left)
    };
    // a timer of the kernel lets them leave, on top of any thread, and so of one on top of which the probe is blind
    let spoiled = |(_, _, left): &(_, _, HashMap<Monotonic, u16>)| {
        // more than half of them must have waited, see below
        (left.len() < 150).then(|| format!("{} of 200 were seen to leave", left.len()))
    };
    let (recording, received, left) = first_unspoiled(ATTEMPTS, attempt, spoiled);
    let period = Nanos::from_secs(60);
    let options = MatchOptions::for_client(Nanos::from_secs(2), period);
    let matched = match_events(recording.into_events(), &options);
    // what was not seen to leave has no T6, and nothing else lacks it
    let seen: BTreeSet<u16> = left.values().copied().collect();
    let unseen: BTreeSet<u16> = (0..200).filter(|id| !seen.contains(id)).collect();
    let unmatched = matched.unmatched.iter();
    let unmatched: BTreeSet<u16> = unmatched.map(|request| request.key.id).collect();
    assert_eq!(unmatched, unseen);
    assert!(matched.unmatched.iter().all(|request| !request.ambiguous));
    let found: Vec<_> = matched.requests.iter().zip(&matched.keys).collect();
    assert_eq!(found.len(), left.len());
    let mut waited = 0;
    for (place, (request, key)) in found.iter().enumerate() {
        let stamps = request.server;
        assert_eq!(left.get(&stamps.t6), Some(&key.id), "{stamps:?}");
        assert!(stamps.t6 <= received[&key.id], "{stamps:?}");
        // one thread: it reads the next request after it has answered
        let next = found.get(place + 1).map(|(next, _)| next.server);
        let (Some(t4), Some(t5)) = (stamps.t4, stamps.t5) else {
            continue;
        };
        assert!(t4 <= t5, "{stamps:?}");
        if let Some(t4_of_next) = next.and_then(|next| next.t4) {
            assert!(t5 <= t4_of_next, "{stamps:?} {next:?}");
            waited += u32::from(t4_of_next < stamps.t6);
        }
    }
    println!("{waited} of 200 left after the next request had been read");
    assert!(waited >= 100, "{waited}");
}
