use super::*;
use crate::{Addresses, Devices, Disturbances, ProbeSpec, ServerProcesses, Transport};
use taillab_model::MiddleStamps;

/// What is asked of the probe, apart from the server.
fn spec(transport: Transport, stamps: MiddleStamps, disturbances: Disturbances) -> ProbeSpec {
    ProbeSpec {
        devices: Devices::all_in(1),
        queues: false,
        transport,
        server_port: 1,
        addresses: Addresses::All,
        server: ServerProcesses::InNamespace,
        others: Vec::new(),
        served_ports: Vec::new(),
        server_cpus: Vec::new(),
        generator_cpus: Vec::new(),
        stamps,
        disturbances,
        payload_bytes: 0,
        ring_bytes_per_cpu: 0,
    }
}

fn udp() -> Vec<&'static Stamp> {
    stamps(&spec(Transport::Udp, MiddleStamps::All, Disturbances::NONE))
}

fn tcp() -> Vec<&'static Stamp> {
    stamps(&spec(Transport::Tcp, MiddleStamps::All, Disturbances::NONE))
}

/// A kernel that refuses these programs.
fn kernel(
    refused: &[&'static str],
    loads: &mut usize,
) -> impl FnMut(&[&'static str]) -> Result<Vec<&'static str>, Refusal> {
    move |programs| {
        *loads += 1;
        match programs.iter().find(|program| refused.contains(program)) {
            None => Ok(programs.to_vec()),
            Some(_) => Err(Refusal {
                phase: "loading",
                out_of_memory: false,
                source: io::Error::from_raw_os_error(1),
            }),
        }
    }
}

fn hook_of(choice: &Choice, stamp: &str) -> Hook {
    let mut hooks = describe(&udp(), choice).into_iter();
    hooks.find(|hook| hook.stamp == stamp).unwrap()
}

#[test]
fn a_kernel_that_allows_everything_is_asked_once() {
    let mut loads = 0;
    let (loaded, choice) = choose(&udp(), &[], kernel(&[], &mut loads)).unwrap();
    assert_eq!(loads, 1);
    assert_eq!(loaded, programs(&choice));
    assert!(choice.iter().all(Option::is_some));
    assert!(!loaded.contains(&"enqueued_late"), "{loaded:?}");
}

#[test]
fn a_refused_hook_is_replaced_by_the_next_one_alone() {
    let mut loads = 0;
    // Linux 6.1
    let old = &["enqueued", "read_done"];
    let (loaded, choice) = choose(&udp(), &[], kernel(old, &mut loads)).unwrap();
    let t2 = hook_of(&choice, "T2");
    assert_eq!(t2.hook, "fentry/sock_def_readable");
    assert_eq!(t2.lost_precision, None);
    assert_eq!(hook_of(&choice, "T4").hook, "fexit/udp_recvmsg");
    assert!(!loaded.contains(&"enqueued_late"), "{loaded:?}");
    // all together, then five ways to T2, T4 and T5 until one of each works, then the choice
    assert_eq!(loads, 1 + 5 + 1);
}

#[test]
fn the_last_resort_says_what_it_lacks_and_loads_nothing_more() {
    let mut loads = 0;
    let refused = &["enqueued", "to_wake_reader"];
    let (loaded, choice) = choose(&udp(), &[], kernel(refused, &mut loads)).unwrap();
    let t2 = hook_of(&choice, "T2");
    assert_eq!(t2.hook, "fexit/__udp_enqueue_schedule_skb");
    assert!(t2.lost_precision.is_some());
    // what only the losers needed is not loaded
    assert!(!loaded.contains(&"packet_received"), "{loaded:?}");
}

#[test]
fn a_stamp_that_can_be_missing_is_said_to_be() {
    let mut loads = 0;
    let refused = &["enqueued", "to_wake_reader", "enqueued_late"];
    let (_, choice) = choose(&udp(), &[], kernel(refused, &mut loads)).unwrap();
    let t2 = hook_of(&choice, "T2");
    assert_eq!(t2.hook, "none");
    assert!(t2.lost_precision.is_some());
}

#[test]
fn a_stamp_that_must_not_be_missing_is_an_error_with_its_best_hook() {
    let mut loads = 0;
    let refused = &["read_done", "read_from_udp", "read_returned"];
    let (stamp, hook, refusal) = choose(&udp(), &[], kernel(refused, &mut loads)).unwrap_err();
    assert_eq!((stamp, hook), ("T4", "tp_btf/sock_recv_length"));
    assert_eq!(refusal.phase, "loading");
}

#[test]
fn want_of_memory_is_not_blamed_on_a_hook() {
    let mut loads = 0;
    let broke = |_: &[&'static str]| -> Result<(), Refusal> {
        loads += 1;
        Err(Refusal {
            phase: "loading",
            out_of_memory: true,
            source: io::ErrorKind::OutOfMemory.into(),
        })
    };
    assert!(choose(&udp(), &[], broke).unwrap_err().2.out_of_memory);
    assert_eq!(loads, 2);
}

#[test]
fn streams_have_programs_of_their_own_and_fall_back_alike() {
    let mut loads = 0;
    let (loaded, _) = choose(&tcp(), &[], kernel(&[], &mut loads)).unwrap();
    assert_eq!(loads, 1);
    let (datagrams, _) = choose(&udp(), &[], kernel(&[], &mut loads)).unwrap();
    let shared: Vec<_> = loaded.iter().filter(|p| datagrams.contains(p)).collect();
    assert_eq!(shared, [&"switched"]);
    // Linux 6.1
    let old = &["segment_queued", "segment_read"];
    let (_, choice) = choose(&tcp(), &[], kernel(old, &mut loads)).unwrap();
    let hooks: Vec<String> = describe(&tcp(), &choice)
        .into_iter()
        .map(|h| h.hook)
        .collect();
    for hook in ["fentry/sock_def_readable", "fexit/tcp_recvmsg"] {
        assert!(hooks.iter().any(|known| known == hook), "{hooks:?}");
    }
}

#[test]
fn a_refused_disturbance_costs_only_itself() {
    let mut loads = 0;
    let stamps = stamps(&spec(Transport::Tcp, MiddleStamps::All, Disturbances::ALL));
    let refused = &["lock_taken", "segment_in_frags"];
    let (loaded, choice) = choose(&stamps, &[], kernel(refused, &mut loads)).unwrap();
    let missing: Vec<Hook> = describe(&stamps, &choice)
        .into_iter()
        .filter(|hook| hook.hook == "none")
        .collect();
    let names: Vec<&str> = missing.iter().map(|hook| hook.stamp.as_str()).collect();
    assert_eq!(names, ["T1", "lock"]);
    assert!(missing.iter().all(|hook| hook.lost_precision.is_some()));
    assert!(loaded.contains(&"page_fault") && !loaded.contains(&"lock_wanted"));
}

#[test]
fn only_the_disturbances_that_are_asked_for_are_recorded() {
    let loaded = |disturbances| -> Vec<&str> {
        let stamps = stamps(&spec(Transport::Udp, MiddleStamps::All, disturbances));
        let mut loads = 0;
        choose(&stamps, &[], kernel(&[], &mut loads)).unwrap().0
    };
    let none = loaded(Disturbances::NONE);
    assert!(none.contains(&"switched") && !none.contains(&"woken"));
    let two = loaded(Disturbances::WAKE | Disturbances::SOFTIRQ);
    let more: Vec<_> = two.iter().filter(|name| !none.contains(name)).collect();
    assert_eq!(more, [&"woken", &"softirq_begins", &"softirq_ends"]);
    // of streams only
    assert!(!loaded(Disturbances::ALL).contains(&"retransmitted"));
    // what an interrupt waits for is not the thread's, so interrupts have to be seen
    for (waits, program) in [
        (Disturbances::LOCK, "lock_wanted"),
        (Disturbances::STORAGE, "storage_asked"),
    ] {
        let loaded = loaded(waits);
        for name in [
            program,
            "interrupt_begins",
            "local_timer_ends",
            "softirq_ends",
        ] {
            assert!(loaded.contains(&name), "{name}: {loaded:?}");
        }
        assert!(!loaded.contains(&"woken"), "{loaded:?}");
    }
}

#[test]
fn in_slices_everything_is_attached_and_between_them_only_the_ends() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let of = |when| stamps(&spec(transport, when, Disturbances::ALL));
        let sampled = of("sampled:1/16".parse().unwrap());
        let (_, choice) = choose(&sampled, &[], kernel(&[], &mut 0)).unwrap();
        let all = of(MiddleStamps::All);
        let (_, of_all) = choose(&all, &[], kernel(&[], &mut 0)).unwrap();
        assert_eq!(programs(&choice), programs(&of_all));
        let ends = stamps(&spec(transport, MiddleStamps::Ends, Disturbances::NONE));
        let (_, of_ends) = choose(&ends, &[], kernel(&[], &mut 0)).unwrap();
        let mut expected = programs(&of_ends);
        expected.push("major_fault");
        assert_eq!(always_attached(&sampled, &choice), expected);
    }
}

#[test]
fn each_end_is_attached_before_its_beginning() {
    let all = stamps(&spec(Transport::Tcp, MiddleStamps::All, Disturbances::ALL));
    let (_, choice) = choose(&all, &[], kernel(&[], &mut 0)).unwrap();
    let mut names = programs(&choice);
    names.sort_by_key(|name| attach_rank(name.as_ref()));
    let place = |wanted: &str| names.iter().position(|name| *name == wanted);
    let mut pairs = 0;
    for begins in names.iter().filter(|name| name.ends_with("_begins")) {
        let ends = begins.replace("_begins", "_ends");
        assert!(
            place(&ends).is_some_and(|ends| Some(ends) < place(begins)),
            "{ends}"
        );
        pairs += 1;
    }
    // devices, six vectors of the architecture, softirqs
    assert_eq!(pairs, 8);
}

#[test]
fn a_queue_and_other_servers_have_hooks_of_their_own() {
    let mut wanted = spec(Transport::Tcp, MiddleStamps::Ends, Disturbances::NONE);
    let loaded = |wanted: &ProbeSpec| {
        let stamps = stamps(wanted);
        let (loaded, choice) = choose(&stamps, &[], kernel(&[], &mut 0)).unwrap();
        assert_eq!(always_attached(&stamps, &choice), loaded);
        loaded
    };
    let usual = loaded(&wanted);
    wanted.queues = true;
    let behind_queue = loaded(&wanted);
    assert!(usual.contains(&"segment_out") && !behind_queue.contains(&"segment_out"));
    let more: Vec<_> = (behind_queue.iter())
        .filter(|name| !usual.contains(name))
        .collect();
    assert_eq!(more, [&"segment_handed_down", &"segment_left"]);
    wanted.others = vec![1];
    let beside_others = loaded(&wanted);
    let more = beside_others
        .iter()
        .find(|name| !behind_queue.contains(name));
    assert_eq!(more, Some(&"read_by_other"));
}

#[test]
fn avoided_hooks_are_not_even_tried() {
    let mut loads = 0;
    let avoided = &["tp_btf/sock_recv_length", "tp_btf/sk_data_ready"];
    let (_, choice) = choose(&udp(), avoided, kernel(&[], &mut loads)).unwrap();
    assert_eq!(loads, 1);
    assert_eq!(hook_of(&choice, "T4").hook, "fexit/udp_recvmsg");
    let (stamp, ..) = choose(&udp(), &["tp_btf/netif_rx"], kernel(&[], &mut loads)).unwrap_err();
    assert_eq!(stamp, "T1");
}
