//! The hooks of each stamp and each disturbance, best first.

use super::{Candidate, Stamp};
use crate::{Disturbances, ProbeSpec, Transport, UNCONNECTED_T5};
use taillab_model::MiddleStamps;

/// What to record of a server, in the order of the result.
///
/// T3 has no hook of its own: it is the `switch` event at which the thread that T4 names came onto
/// its CPU. T1 has several hooks: drivers hand packets over in different ways, and each
/// device uses one of them.
pub(crate) fn stamps(spec: &ProbeSpec) -> Vec<&'static Stamp> {
    let (transport, when, disturbances) = (spec.transport, spec.stamps, spec.disturbances);
    let (arrivals, middle, retransmit): (&[Stamp], &[Stamp], &[Stamp]) = match transport {
        Transport::Udp => (&UDP_T1, &UDP_MIDDLE, &[]),
        Transport::Tcp => (&TCP_T1, &TCP_MIDDLE, &RETRANSMIT),
    };
    let departure = match (transport, spec.queues) {
        (Transport::Udp, false) => &UDP_T6,
        (Transport::Udp, true) => &UDP_T6_BEHIND_QUEUE,
        (Transport::Tcp, false) => &TCP_T6,
        (Transport::Tcp, true) => &TCP_T6_BEHIND_QUEUE,
    };
    let (middle, switch): (&[Stamp], Option<&Stamp>) = match when {
        MiddleStamps::All | MiddleStamps::Sampled(_) => (middle, Some(&SWITCH)),
        MiddleStamps::Ends => (&[], None),
    };
    // without these, what an interrupt waits for would be charged to the thread below it
    let on_top = Disturbances::IRQ | Disturbances::SOFTIRQ;
    let waits = [Disturbances::STORAGE, Disturbances::LOCK];
    let disturbances = match waits.into_iter().any(|kind| disturbances.contains(kind)) {
        true => disturbances | on_top,
        false => disturbances,
    };
    let wanted: [(Disturbances, &'static [Stamp]); 10] = [
        (Disturbances::SCHED, &MIGRATION),
        (Disturbances::WAKE, &WAKE),
        (Disturbances::IRQ, &IRQ),
        (Disturbances::SOFTIRQ, &SOFTIRQ),
        (Disturbances::IDLE, &IDLE),
        (Disturbances::FAULT, &FAULT),
        (Disturbances::STORAGE, &STORAGE),
        (Disturbances::LOCK, &LOCK),
        (Disturbances::FREQUENCY, &FREQUENCY),
        (Disturbances::RETRANSMIT, retransmit),
    ];
    let wanted = wanted
        .into_iter()
        .filter(|&(kind, _)| disturbances.contains(kind))
        .flat_map(|(_, stamps)| stamps);
    let others: &[Stamp] = match (spec.others.is_empty(), transport) {
        (true, _) => &[],
        (false, Transport::Udp) => &UDP_OTHERS,
        (false, Transport::Tcp) => &TCP_OTHERS,
    };
    let own = arrivals
        .iter()
        .chain(others)
        .chain(middle)
        .chain([departure]);
    own.chain(switch).chain(wanted).collect()
}

/// A hook that loses no precision.
const fn exact(hook: &'static str, programs: &'static [&'static str]) -> Candidate {
    Candidate {
        hook,
        programs,
        lost_precision: None,
    }
}

/// A hook that loses something compared with the best one.
const fn lesser(
    hook: &'static str,
    programs: &'static [&'static str],
    lost: &'static str,
) -> Candidate {
    Candidate {
        hook,
        programs,
        lost_precision: Some(lost),
    }
}

/// A stamp that can be missing.
const fn optional(
    name: &'static str,
    candidates: &'static [Candidate],
    without: &'static str,
) -> Stamp {
    Stamp {
        name,
        candidates,
        without: Some(without),
    }
}

/// A stamp without which the result is useless.
const fn required(name: &'static str, candidates: &'static [Candidate]) -> Stamp {
    Stamp {
        name,
        candidates,
        without: None,
    }
}

const NO_T1_GRO: &str = "requests from NICs that use GRO have no T1 and are not seen";
const NO_T1_FRAGS: &str = "requests from NICs that give pages to GRO have no T1 and are not seen";
const NO_T1_DIRECT: &str = "requests from drivers without GRO have no T1 and are not seen";
const NO_T2: &str = "the kernel allows no hook for it: T1–T2 and T2–T3 cannot be separated";

const READ_FROM_SOCKET: &str = "stamped when the socket has given the data, about 0.1 µs before the \
     system call returns";
const READ_FROM_SOCKET_ONCE: &str = "stamped when the socket has given the data, about 0.1 µs \
     before the system call returns; a read that waits when the recording begins is not stamped";
const TO_SOCKET: &str = "stamped when the socket is given the response, about 0.1 µs after the \
     system call began";
const TO_LOCKED_SOCKET: &str =
    "stamped when the socket is locked, about 0.2 µs after the system call began";
const ONLY_WITH_ADDRESS: &str = "stamped when the socket is locked, about 0.2 µs after the system \
     call began; a response that is sent on a connected socket without an address has no T5";

const BEHIND_QUEUE: &str = "tp_btf/net_dev_queue, net_dev_start_xmit";

static UDP_T1: [Stamp; 4] = [
    required("T1", &[exact("tp_btf/netif_rx", &["packet_in"])]),
    optional(
        "T1",
        &[exact("tp_btf/napi_gro_receive_entry", &["packet_in_gro"])],
        NO_T1_GRO,
    ),
    optional(
        "T1",
        &[exact("tp_btf/napi_gro_frags_entry", &["packet_in_frags"])],
        NO_T1_FRAGS,
    ),
    optional(
        "T1",
        &[exact(
            "tp_btf/netif_receive_skb_entry",
            &["packet_in_direct", "packet_in_list"],
        )],
        NO_T1_DIRECT,
    ),
];

static UDP_MIDDLE: [Stamp; 3] = [
    optional(
        "T2",
        &[
            exact("tp_btf/sk_data_ready", &["packet_received", "enqueued"]),
            exact(
                "fentry/sock_def_readable",
                &["packet_received", "to_wake_reader"],
            ),
            lesser(
                "fexit/__udp_enqueue_schedule_skb",
                &["enqueued_late"],
                "stamped after the reader was woken, up to some microseconds late, and \
                 possibly later than T3",
            ),
        ],
        NO_T2,
    ),
    required(
        "T4",
        &[
            lesser("tp_btf/sock_recv_length", &["read_done"], READ_FROM_SOCKET),
            lesser(
                "fexit/udp_recvmsg",
                &["read_from_udp", "read_from_udpv6"],
                READ_FROM_SOCKET_ONCE,
            ),
            lesser(
                "tp_btf/sys_exit",
                &["read_returned"],
                "reads of the server's other sockets are stamped as well, and reads of \
                 empty datagrams are not; a call for several messages is stamped once",
            ),
        ],
    ),
    required(
        "T5",
        &[
            lesser(
                "fentry/udp_sendmsg",
                &["write_to_udp", "write_to_udpv6"],
                TO_SOCKET,
            ),
            lesser(
                UNCONNECTED_T5,
                &["datagram_sent_v4", "datagram_sent_v6"],
                ONLY_WITH_ADDRESS,
            ),
            lesser(
                "tp_btf/sys_enter",
                &["write_called", "ring_write_called"],
                "a call for several messages is stamped once, as it begins",
            ),
            lesser(
                "tp_btf/sys_enter without io_uring",
                &["write_called"],
                "a call for several messages is stamped once, as it begins; writes through \
                 io_uring have no T5",
            ),
        ],
    ),
];

static UDP_T6: Stamp = required("T6", &[exact("tp_btf/net_dev_start_xmit", &["packet_out"])]);

static TCP_T1: [Stamp; 4] = [
    required("T1", &[exact("tp_btf/netif_rx", &["segment_in"])]),
    optional(
        "T1",
        &[exact("tp_btf/napi_gro_receive_entry", &["segment_in_gro"])],
        NO_T1_GRO,
    ),
    optional(
        "T1",
        &[exact("tp_btf/napi_gro_frags_entry", &["segment_in_frags"])],
        NO_T1_FRAGS,
    ),
    optional(
        "T1",
        &[exact(
            "tp_btf/netif_receive_skb_entry",
            &["segment_in_direct", "segment_in_list"],
        )],
        NO_T1_DIRECT,
    ),
];

static TCP_MIDDLE: [Stamp; 3] = [
    optional(
        "T2",
        &[
            exact(
                "tp_btf/sk_data_ready",
                &["segment_queued", "segment_queued_upon"],
            ),
            exact(
                "fentry/sock_def_readable",
                &["to_wake_stream_reader", "to_wake_stream_reader_upon"],
            ),
        ],
        NO_T2,
    ),
    required(
        "T4",
        &[
            lesser(
                "tp_btf/sock_recv_length",
                &["segment_read"],
                READ_FROM_SOCKET,
            ),
            lesser(
                "fexit/tcp_recvmsg",
                &["read_from_tcp"],
                READ_FROM_SOCKET_ONCE,
            ),
            lesser(
                "tp_btf/sys_exit",
                &["stream_read_returned"],
                "reads of the server's other files are stamped as well, and a read is \
                 assigned to the thread's next response, on whichever connection",
            ),
        ],
    ),
    required(
        "T5",
        &[
            lesser(
                "tp_btf/tcp_sendmsg_locked",
                &["stream_write_begun"],
                TO_LOCKED_SOCKET,
            ),
            lesser(
                "fentry/tcp_sendmsg, tcp_sendpage",
                &["write_to_tcp", "page_to_tcp"],
                TO_SOCKET,
            ),
            lesser("fentry/tcp_sendmsg", &["write_to_tcp"], TO_SOCKET),
            lesser(
                "tp_btf/sys_enter",
                &["stream_write_called", "ring_write_called"],
                "writes of the server's other files are stamped as well, and the last one \
                 before T6 counts",
            ),
            lesser(
                "tp_btf/sys_enter without io_uring",
                &["stream_write_called"],
                "writes of the server's other files are stamped as well, and the last one \
                 before T6 counts; writes through io_uring have no T5",
            ),
        ],
    ),
];

static TCP_T6: Stamp = required(
    "T6",
    &[exact("tp_btf/net_dev_start_xmit", &["segment_out"])],
);

const NOT_WHOSE: &str = "the kernel allows no hook for it: requests to other processes that share the server's port \
     count as the server's";

static TCP_OTHERS: [Stamp; 1] = [optional(
    "others",
    &[
        exact("tp_btf/sock_recv_length", &["read_by_other"]),
        exact("fexit/tcp_recvmsg", &["read_from_tcp_by_other"]),
    ],
    NOT_WHOSE,
)];

static UDP_OTHERS: [Stamp; 1] = [optional(
    "others",
    &[
        exact("tp_btf/sock_recv_length", &["datagram_read_by_other"]),
        exact(
            "fexit/udp_recvmsg",
            &["read_from_udp_by_other", "read_from_udpv6_by_other"],
        ),
    ],
    NOT_WHOSE,
)];

static TCP_T6_BEHIND_QUEUE: Stamp = required(
    "T6",
    &[exact(
        BEHIND_QUEUE,
        &["segment_handed_down", "segment_left"],
    )],
);

static UDP_T6_BEHIND_QUEUE: Stamp = required(
    "T6",
    &[exact(BEHIND_QUEUE, &["packet_handed_down", "packet_left"])],
);

/// For T3, and for what delays a request.
static SWITCH: Stamp = required("switch", &[exact("tp_btf/sched_switch", &["switched"])]);

static MIGRATION: [Stamp; 1] = [optional(
    "sched",
    &[exact("tp_btf/sched_migrate_task", &["migrated"])],
    "migrations between CPUs are not seen",
)];

static WAKE: [Stamp; 1] = [optional(
    "wake",
    &[exact("tp_btf/sched_waking", &["woken"])],
    "wake-ups are not seen: waiting to be woken cannot be separated from waiting for the CPU",
)];

/// An interrupt of the architecture.
const fn vector(candidates: &'static [Candidate]) -> Stamp {
    optional(
        "irq",
        candidates,
        "such interrupts are not seen: their time counts as the thread's that they interrupt",
    )
}

static IRQ: [Stamp; 7] = [
    optional(
        "irq",
        &[exact(
            "tp_btf/irq_handler_entry",
            &["interrupt_begins", "interrupt_ends"],
        )],
        "interrupts of devices are not seen: their time counts as the thread's that they \
         interrupt",
    ),
    vector(&[exact(
        "tp_btf/local_timer_entry",
        &["local_timer_begins", "local_timer_ends"],
    )]),
    vector(&[exact(
        "tp_btf/reschedule_entry",
        &["reschedule_begins", "reschedule_ends"],
    )]),
    vector(&[exact(
        "tp_btf/call_function_entry",
        &["call_function_begins", "call_function_ends"],
    )]),
    vector(&[exact(
        "tp_btf/call_function_single_entry",
        &["call_function_single_begins", "call_function_single_ends"],
    )]),
    vector(&[exact(
        "tp_btf/irq_work_entry",
        &["irq_work_begins", "irq_work_ends"],
    )]),
    vector(&[exact(
        "tp_btf/thermal_apic_entry",
        &["thermal_apic_begins", "thermal_apic_ends"],
    )]),
];

static SOFTIRQ: [Stamp; 1] = [optional(
    "softirq",
    &[exact(
        "tp_btf/softirq_entry",
        &["softirq_begins", "softirq_ends"],
    )],
    "softirqs are not seen: their time counts as the thread's that they interrupt",
)];

static IDLE: [Stamp; 1] = [optional(
    "idle",
    &[exact("tp_btf/cpu_idle", &["idle"])],
    "power states are not seen: the time to leave one counts as waking up",
)];

static FAULT: [Stamp; 2] = [
    optional(
        "fault",
        &[
            exact(
                "tp_btf/page_fault_user",
                &["page_fault", "page_fault_in_call"],
            ),
            lesser(
                "tp_btf/page_fault_user alone",
                &["page_fault"],
                "page faults within system calls are not seen",
            ),
        ],
        "page faults are not seen: their time counts as the thread's own",
    ),
    optional(
        "major_fault",
        &[exact("perf/page-faults-maj", &["major_fault"])],
        "how long page faults wait for storage is seen only where the thread sleeps",
    ),
];

static STORAGE: [Stamp; 1] = [optional(
    "storage",
    &[
        exact(
            "tp_btf/block_bio_queue",
            &["storage_asked", "pages_read", "direct_io_ended"],
        ),
        lesser(
            "tp_btf/block_bio_queue without mm_filemap_get_pages",
            &["storage_asked", "direct_io_ended"],
            "reads through the page cache wait for storage only where the thread sleeps",
        ),
    ],
    "how long reads and writes wait for storage is seen only where the thread sleeps",
)];

static LOCK: [Stamp; 1] = [optional(
    "lock",
    &[exact(
        "tp_btf/contention_begin",
        &["lock_wanted", "lock_taken"],
    )],
    "waits for locks of the kernel are not seen: they count as sleep or as the thread's own time",
)];

static FREQUENCY: [Stamp; 1] = [optional(
    "frequency",
    &[exact("tp_btf/cpu_frequency", &["frequency"])],
    "changes of frequency are not seen: a slower CPU counts as slow service",
)];

static RETRANSMIT: [Stamp; 1] = [optional(
    "retransmit",
    &[exact("tp_btf/tcp_retransmit_skb", &["retransmitted"])],
    "segments that are sent again are known only where they leave",
)];
