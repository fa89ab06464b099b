//! Which kernel hooks can give each stamp, best first.

use std::io;

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

/// All stamps of a transport.
pub(crate) type Stamps = [Stamp; 6];

/// The stamps of datagrams. T3 has no hook of its own: the thread that T4 names came onto
/// its CPU at one of the `switch` events.
pub(crate) static UDP: Stamps = [
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
                hook: "fentry/sock_def_readable",
                programs: &["packet_received", "to_wake_reader"],
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
        candidates: &[
            Candidate {
                hook: "tp_btf/sock_recv_length",
                programs: &["read_done"],
                lost_precision: Some(
                    "stamped when the socket has given the datagram, about 0.1 µs before the \
                     system call returns",
                ),
            },
            Candidate {
                hook: "tp_btf/sys_exit",
                programs: &["read_returned"],
                lost_precision: Some(
                    "reads of the server's other sockets are stamped as well, and reads of \
                     empty datagrams are not",
                ),
            },
        ],
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
    SWITCH,
];

/// The stamps of streams.
pub(crate) static TCP: Stamps = [
    Stamp {
        name: "T1",
        candidates: &[Candidate {
            hook: "tp_btf/netif_rx",
            programs: &["segment_in"],
            lost_precision: None,
        }],
        without: None,
    },
    Stamp {
        name: "T2",
        candidates: &[
            Candidate {
                hook: "tp_btf/sk_data_ready",
                programs: &["segment_queued"],
                lost_precision: None,
            },
            Candidate {
                hook: "fentry/sock_def_readable",
                programs: &["to_wake_stream_reader"],
                lost_precision: None,
            },
        ],
        without: Some("the kernel allows no hook for it: T1–T2 and T2–T3 are not told apart"),
    },
    Stamp {
        name: "T4",
        candidates: &[
            Candidate {
                hook: "tp_btf/sock_recv_length",
                programs: &["segment_read"],
                lost_precision: Some(
                    "stamped when the socket has given the data, about 0.1 µs before the \
                     system call returns",
                ),
            },
            Candidate {
                hook: "tp_btf/sys_exit",
                programs: &["stream_read_returned"],
                lost_precision: Some(
                    "reads of the server's other files are stamped as well, and a read is \
                     taken for the thread's next response, whichever connection it is of",
                ),
            },
        ],
        without: None,
    },
    Stamp {
        name: "T5",
        candidates: &[Candidate {
            hook: "tp_btf/sys_enter",
            programs: &["stream_write_called"],
            lost_precision: None,
        }],
        without: None,
    },
    Stamp {
        name: "T6",
        candidates: &[Candidate {
            hook: "tp_btf/net_dev_start_xmit",
            programs: &["segment_out"],
            lost_precision: None,
        }],
        without: None,
    },
    SWITCH,
];

/// For T3, and for what delays a request.
const SWITCH: Stamp = Stamp {
    name: "switch",
    candidates: &[Candidate {
        hook: "tp_btf/sched_switch",
        programs: &["switched"],
        lost_precision: None,
    }],
    without: None,
};

/// What gives each of the [`Stamps`]; `None`: nothing does.
pub(crate) type Choice = [Option<&'static Candidate>; 6];

/// A trial that failed.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// What was being done.
    pub(crate) phase: &'static str,
    /// It failed for want of memory, which says nothing about the hook.
    pub(crate) out_of_memory: bool,
    /// The kernel's answer.
    pub(crate) source: io::Error,
}

/// The stamp that cannot be had, its best hook, and why.
pub(crate) type Failure = (&'static str, &'static str, Refusal);

/// The best choice that `load` accepts, and what it made of it.
///
/// `load` is given programs to load and attach. Where every best hook works, as on
/// most kernels, it is called once; else each candidate is tried alone first.
pub(crate) fn choose<T>(
    stamps: &'static Stamps,
    avoided: &[&str],
    mut load: impl FnMut(&[&'static str]) -> Result<T, Refusal>,
) -> Result<(T, Choice), Failure> {
    let candidates = |stamp: &'static Stamp| {
        let allowed = |candidate: &&Candidate| !avoided.contains(&candidate.hook);
        stamp.candidates.iter().filter(allowed)
    };
    let best = stamps.each_ref().map(|stamp| candidates(stamp).next());
    let complete = best
        .iter()
        .zip(stamps)
        .all(|(chosen, stamp)| chosen.is_some() || stamp.without.is_some());
    if complete && let Ok(loaded) = load(&programs(&best)) {
        return Ok((loaded, best));
    }

    let mut choice: Choice = [None; 6];
    for (chosen, stamp) in choice.iter_mut().zip(stamps) {
        let mut best_refusal = None;
        for candidate in candidates(stamp) {
            match load(candidate.programs) {
                Ok(_) => {
                    *chosen = Some(candidate);
                    break;
                }
                Err(refusal) if refusal.out_of_memory => {
                    return Err((stamp.name, candidate.hook, refusal));
                }
                Err(refusal) => {
                    best_refusal.get_or_insert((stamp.name, candidate.hook, refusal));
                }
            }
        }
        if chosen.is_none() && stamp.without.is_none() {
            let avoided = || Refusal {
                phase: "choosing",
                out_of_memory: false,
                source: io::Error::other("every hook for it is to be avoided"),
            };
            let hook = stamp.candidates[0].hook;
            return Err(best_refusal.unwrap_or_else(|| (stamp.name, hook, avoided())));
        }
    }
    let loaded = load(&programs(&choice));
    // each of them was accepted alone: the first stands for all
    let loaded = loaded.map_err(|refusal| (stamps[0].name, "all together", refusal))?;
    Ok((loaded, choice))
}

/// The programs of a choice.
fn programs(choice: &Choice) -> Vec<&'static str> {
    choice
        .iter()
        .flatten()
        .flat_map(|candidate| candidate.programs)
        .copied()
        .collect()
}

/// A choice as the result shows it.
pub(crate) fn describe(stamps: &Stamps, choice: &Choice) -> Vec<Hook> {
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
    stamps.iter().zip(choice).map(describe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let mut hooks = describe(&UDP, choice).into_iter();
        hooks.find(|hook| hook.stamp == stamp).unwrap()
    }

    #[test]
    fn a_kernel_that_allows_everything_is_asked_once() {
        let mut loads = 0;
        let (loaded, choice) = choose(&UDP, &[], kernel(&[], &mut loads)).unwrap();
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
        let (loaded, choice) = choose(&UDP, &[], kernel(old, &mut loads)).unwrap();
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
        let (loaded, choice) = choose(&UDP, &[], kernel(refused, &mut loads)).unwrap();
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
        let (_, choice) = choose(&UDP, &[], kernel(refused, &mut loads)).unwrap();
        let t2 = hook_of(&choice, "T2");
        assert_eq!(t2.hook, "none");
        assert!(t2.lost_precision.is_some());
    }

    #[test]
    fn a_stamp_that_must_not_be_missing_is_an_error_with_its_best_hook() {
        let mut loads = 0;
        let refused = &["read_done", "read_returned"];
        let (stamp, hook, refusal) = choose(&UDP, &[], kernel(refused, &mut loads)).unwrap_err();
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
        assert!(choose(&UDP, &[], broke).unwrap_err().2.out_of_memory);
        assert_eq!(loads, 2);
    }

    #[test]
    fn streams_have_programs_of_their_own_and_fall_back_alike() {
        let mut loads = 0;
        let (loaded, _) = choose(&TCP, &[], kernel(&[], &mut loads)).unwrap();
        assert_eq!(loads, 1);
        let (datagrams, _) = choose(&UDP, &[], kernel(&[], &mut loads)).unwrap();
        let shared: Vec<_> = loaded.iter().filter(|p| datagrams.contains(p)).collect();
        assert_eq!(shared, [&"switched"]);
        // Linux 6.1
        let old = &["segment_queued", "segment_read"];
        let (_, choice) = choose(&TCP, &[], kernel(old, &mut loads)).unwrap();
        let hooks: Vec<String> = describe(&TCP, &choice)
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
        let (_, choice) = choose(&UDP, avoided, kernel(&[], &mut loads)).unwrap();
        assert_eq!(loads, 1);
        assert_eq!(hook_of(&choice, "T4").hook, "tp_btf/sys_exit");
        let (stamp, ..) = choose(&UDP, &["tp_btf/netif_rx"], kernel(&[], &mut loads)).unwrap_err();
        assert_eq!(stamp, "T1");
    }
}
