//! Which kernel hooks can give each stamp, best first.

use taillab_model::summary::Hook;

/// A way to get one stamp.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// The hook that gives the stamp.
    pub(crate) hook: &'static str,
    /// The eBPF programs that it takes.
    pub(crate) programs: &'static [&'static str],
    /// What it lacks against the best one known.
    pub(crate) lost_precision: Option<&'static str>,
}

/// A stamp and the ways to get it.
#[derive(Debug)]
pub(crate) struct Stamp {
    /// Its name in the result.
    pub(crate) name: &'static str,
    /// Best first.
    pub(crate) candidates: &'static [Candidate],
    /// What the result lacks where no candidate works; `None` when there is no result
    /// worth having without this stamp.
    pub(crate) without: Option<&'static str>,
}

/// All stamps. T3 has no hook of its own: the thread that T4 names came onto its CPU
/// at one of the `switch` events.
pub(crate) const STAMPS: [Stamp; 6] = [
    Stamp {
        name: "T1",
        candidates: &[Candidate {
            hook: "tp_btf/netif_rx",
            programs: &["packet_in"],
            lost_precision: None,
        }],
        without: None,
    },
    Stamp {
        name: "T2",
        candidates: &[
            Candidate {
                hook: "tp_btf/sk_data_ready",
                programs: &["packet_received", "enqueued"],
                lost_precision: None,
            },
            Candidate {
                hook: "fexit/__udp_enqueue_schedule_skb",
                programs: &["enqueued_late"],
                lost_precision: Some(
                    "stamped after the reader was woken, up to some microseconds late, and \
                     possibly later than T3",
                ),
            },
        ],
        without: Some("the kernel allows no hook for it: T1–T2 and T2–T3 are not told apart"),
    },
    Stamp {
        name: "T4",
        candidates: &[Candidate {
            hook: "tp_btf/sys_exit",
            programs: &["read_returned"],
            lost_precision: None,
        }],
        without: None,
    },
    Stamp {
        name: "T5",
        candidates: &[Candidate {
            hook: "tp_btf/sys_enter",
            programs: &["write_called"],
            lost_precision: None,
        }],
        without: None,
    },
    Stamp {
        name: "T6",
        candidates: &[Candidate {
            hook: "tp_btf/net_dev_start_xmit",
            programs: &["packet_out"],
            lost_precision: None,
        }],
        without: None,
    },
    Stamp {
        name: "switch",
        candidates: &[Candidate {
            hook: "tp_btf/sched_switch",
            programs: &["switched"],
            lost_precision: None,
        }],
        without: None,
    },
];

/// What gives each stamp of [`STAMPS`]; `None`: nothing does.
pub(crate) type Choice = [Option<&'static Candidate>; STAMPS.len()];

/// The best candidate of each stamp.
pub(crate) fn best() -> Choice {
    STAMPS.each_ref().map(|stamp| stamp.candidates.first())
}

/// The programs of a choice.
pub(crate) fn programs(choice: &Choice) -> Vec<&'static str> {
    choice
        .iter()
        .flatten()
        .flat_map(|candidate| candidate.programs)
        .copied()
        .collect()
}

/// A choice as the result shows it.
pub(crate) fn describe(choice: &Choice) -> Vec<Hook> {
    let describe = |(stamp, chosen): (&Stamp, &Option<&Candidate>)| {
        let (hook, lost_precision) = match chosen {
            Some(candidate) => (candidate.hook, candidate.lost_precision),
            None => ("none", stamp.without),
        };
        Hook {
            stamp: stamp.name.into(),
            hook: hook.into(),
            lost_precision: lost_precision.map(Into::into),
        }
    };
    STAMPS.iter().zip(choice).map(describe).collect()
}
