use super::*;
use crate::{Disturbances, Transport};

fn udp() -> Vec<&'static Stamp> {
    stamps(Transport::Udp, Disturbances::NONE)
}

fn tcp() -> Vec<&'static Stamp> {
    stamps(Transport::Tcp, Disturbances::NONE)
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
    assert_eq!(hook_of(&choice, "T4").hook, "tp_btf/sys_exit");
    assert!(!loaded.contains(&"enqueued_late"), "{loaded:?}");
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
    let refused = &["read_done", "read_returned"];
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
    assert_eq!(hooks[1], "fentry/sock_def_readable");
    assert_eq!(hooks[2], "tp_btf/sys_exit");
}

#[test]
fn avoided_hooks_are_not_even_tried() {
    let mut loads = 0;
    let avoided = &["tp_btf/sock_recv_length", "tp_btf/sk_data_ready"];
    let (_, choice) = choose(&udp(), avoided, kernel(&[], &mut loads)).unwrap();
    assert_eq!(loads, 1);
    assert_eq!(hook_of(&choice, "T4").hook, "tp_btf/sys_exit");
    let (stamp, ..) = choose(&udp(), &["tp_btf/netif_rx"], kernel(&[], &mut loads)).unwrap_err();
    assert_eq!(stamp, "T1");
}
