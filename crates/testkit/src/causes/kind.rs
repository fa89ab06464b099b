//! The kinds of causes that can be injected, one row each: the server, the injection, and what a right
//! explanation says. How to add one:
//! `crates/analysis/src/ledger/README.md`.

use clap::ValueEnum;
use taillab_model::Nanos;
use taillab_model::explanation::Cause;

use crate::injection::{Appetite, Schedule};

/// How the true cost of an injection is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Oracle {
    /// From the intervals in which the server was held back.
    HeldBack,
    /// From when packets were dropped and when they arrived again.
    Loss,
    /// From how the server is built: the cost for a single request is not known.
    Structure,
    /// From the client alone: what an interval on one CPU costs the requests of a queue that several workers share
    /// follows from no single worker's times.
    Client,
    /// From when the injection's own log says that its requests waited: they are not the generator's.
    Log,
    /// The injection is outside the server, so nothing may be charged for it.
    Outside,
    /// Nothing is injected.
    Nothing,
}

/// A disturbance of the machine around the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// Bursts of a thread on the server's CPU.
    Background(Schedule),
    /// Bursts of a thread on the generator's CPU.
    OnGenerator(Schedule),
    /// Every N-th thread of the server yields to all others; the threads are real-time.
    Yielding(usize),
    /// Packets received on the server's CPU.
    Flood(Schedule),
    /// Timer interrupts on the server's CPU.
    Timers(Schedule),
    /// A CPU quota.
    Quota(Schedule),
    /// Signals that stop the server.
    Stops(Schedule),
    /// Another server, which takes this long for each answer.
    Backend(Nanos),
    /// Another client, which reads slowly.
    SlowReader,
    /// A real-time thread that makes the kernel throttle all real-time threads, unless it pauses.
    RtHog(Appetite),
    /// No disturbance: the server's threads have priority over all ordinary ones.
    RealTime,
    /// One request in this number is lost.
    Loss(u32),
}

/// The forecast that is compared with what is measured without the cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fix {
    /// Which forecast is compared.
    pub promise: Promise,
    /// How the cause is removed, in words.
    pub done: &'static str,
}

/// Which forecast is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// The forecast without a cause.
    Without(Cause),
    /// The forecast of a mitigation, by its key.
    Mitigation(&'static str),
}

/// The servers that are measured; each has its own capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BaseServer {
    /// One worker on one UDP socket.
    Datagrams,
    /// One worker on one epoll instance, over TCP.
    Streams,
    /// The same with long responses.
    LongStreams,
    /// The same with many connections, each of which has one request at a time.
    ManyStreams,
    /// A thread for each TCP connection.
    Threads,
    /// Workers with their own connections, which wait and so need no CPU each.
    Assigned,
    /// The same, but any worker takes any request.
    Pooled,
    /// Four workers with their own connections, which compute on one CPU.
    Siblings,
    /// Several workers on CPUs of their own, or on one.
    Several(Workers),
}

/// The workers of a server on UDP sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Workers {
    /// How many there are.
    pub number: u32,
    /// The CPUs that they have.
    pub cpus: u32,
    /// All take from one socket; otherwise each has its own.
    pub shared: bool,
}

/// What is injected into which server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Injection {
    /// The cause that a right explanation names.
    pub(super) cause: Option<Cause>,
    /// How its true cost is known.
    pub(super) oracle: Oracle,
    /// The fault of the server, in the notation of [`taillab_load::fault::Fault`].
    pub(super) fault: Option<&'static str>,
    /// What disturbs the machine around it.
    pub(super) disturbance: Option<Disturbance>,
    /// The server is real-time, so that other programs do not disturb it.
    pub(super) real_time: bool,
    /// The server that is disturbed.
    pub(super) server: BaseServer,
    /// The service that replaces the server's own.
    pub(super) service: Option<&'static str>,
    /// What replaces the disturbance in the other block of each pair; `None`: nothing.
    pub(super) without: Option<Disturbance>,
    /// The forecast that can be compared with it; `None` where there is none that fits.
    pub(super) fix: Option<Fix>,
    /// Whether its events are counted, too, and the first finding must be about it.
    pub(super) told: JudgedQuantity,
}

/// What is judged beside the charge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JudgedQuantity {
    /// How often it happened, and for how long: as the log of the injection has it.
    pub events: bool,
    /// The first finding that is about a cause is about the right one.
    pub first: bool,
    /// The second ideal, in which each request takes as long as its own work, has this delay, too.
    pub second_ideal: bool,
    /// What is told of slow requests: how many they are and how long they work, which are the events then, and what they
    /// cost themselves and others.
    pub shadow: bool,
}

/// Defines the kinds and their rows.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $injection:expr;)+) => {
        /// What can be injected, in the order in which the kinds run.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum)]
        pub enum CauseKind {
            $($(#[$doc])* $kind,)+
        }

        impl CauseKind {
            /// What is injected.
            pub(super) const fn injection(self) -> Injection {
                match self {
                    $(Self::$kind => $injection,)+
                }
            }
        }
    };
}

kinds! {
    /// Nothing: an undisturbed run, whose excess must not be charged to what is not there
    Control = NOTHING;
    /// Bursts of another thread on the server's CPU
    Background = Injection {
        real_time: false,
        ..held_back(Cause::Background, Disturbance::Background(BURSTS))
    };
    /// Packets of others, received on the server's CPU
    Softirq = Injection {
        // a forecast without softirqs would also remove the server's own packets
        fix: None,
        ..held_back(Cause::Softirq, Disturbance::Flood(BURSTS))
    };
    /// Timer interrupts on the server's CPU
    // the handlers take half of this time
    Irq = held_back(Cause::Irq, Disturbance::Timers(schedule(120, 16_000)));
    /// Threads that yield to those of later requests
    Order = Injection {
        disturbance: Some(Disturbance::Yielding(ONE_IN)),
        real_time: false,
        server: BaseServer::Threads,
        without: Some(Disturbance::RealTime),
        ..structure(Cause::OwnThreads, "server-threads", "gave all workers the same priority")
    };
    /// Four workers on one CPU, of which one yields to the others
    Siblings = Injection {
        disturbance: Some(Disturbance::Yielding(ONE_IN)),
        real_time: false,
        server: BaseServer::Siblings,
        without: Some(Disturbance::RealTime),
        told: FIRST,
        ..structure(Cause::OwnThreads, "server-threads", "gave all workers the same priority")
    };
    /// Every other connection belongs to one of four workers
    Imbalance = Injection {
        fault: Some("skew:2"),
        server: BaseServer::Assigned,
        service: None,
        ..structure(Cause::Imbalance, "shared-queue", "let all workers take from one queue")
    };
    /// A thread of the server that holds the lock of all workers
    Lock = fault(Cause::BlockedLock, "lock:120ms,8ms");
    /// The same, but that thread reads from disk meanwhile
    LockRead = Injection {
        // a forecast without storage also takes the work of reads away
        fix: None,
        told: BOTH,
        ..fault(Cause::BlockedIo, "lock:120ms,8ms,read")
    };
    /// Page faults that wait for the disk
    Fault = fault(Cause::BlockedFault, "major-fault:100,6");
    /// First touches of memory
    MinorFault = fault(Cause::SlowService, "fault:100,4096");
    /// Reads from disk
    Io = fault(Cause::BlockedIo, "io:100,6");
    /// One request in 100 burns 5 ms
    Slow = Injection {
        told: JudgedQuantity {
            shadow: true,
            ..BOTH
        },
        ..fault(Cause::SlowService, "slow:100,5ms")
    };
    /// Requests of two kinds: one in ten burns 1 ms more
    Mixed = Injection {
        fix: None,
        told: JudgedQuantity {
            second_ideal: true,
            ..FIRST
        },
        ..fault(Cause::SlowService, "slow:10,1ms")
    };
    /// A CPU quota of the server's control group
    Quota = Injection {
        real_time: false,
        // a group without a quota
        without: Some(Disturbance::Quota(NEVER)),
        fix: ended(Cause::Throttled, "lifted the quota of the server's group"),
        told: BOTH,
        ..held_back(Cause::Throttled, Disturbance::Quota(schedule(150, 12_000)))
    };
    /// Signals that stop the whole server
    Pause = Injection {
        // a pause ends when who made it says so
        fix: None,
        told: BOTH,
        ..held_back(Cause::Pause, Disturbance::Stops(BURSTS))
    };
    /// One request in 100 asks another server, which takes 5 ms
    Upstream = Injection {
        disturbance: Some(Disturbance::Backend(Nanos::from_millis(5))),
        told: BOTH,
        ..fault(Cause::Upstream, "upstream:100,7998")
    };
    /// Another client, which takes 8 kB of its responses every 10 ms
    SlowReader = Injection {
        oracle: Oracle::Log,
        server: BaseServer::LongStreams,
        // only that client can end it
        fix: None,
        told: BOTH,
        ..held_back(Cause::Client, Disturbance::SlowReader)
    };
    /// One response in 20 is written in two pieces, without TCP_NODELAY
    Nagle = Injection {
        oracle: Oracle::Client,
        server: BaseServer::ManyStreams,
        fix: None,
        told: FIRST,
        ..fault(Cause::Client, "nagle:20")
    };
    /// A real-time server, and a real-time thread that uses up the time that both share
    RtThrottle = Injection {
        real_time: false,
        // without the other thread each request would also be cheaper
        without: Some(Disturbance::RtHog(Appetite::WithPauses)),
        fix: ended(Cause::Throttled, "made the other real-time thread pause"),
        ..held_back(Cause::Throttled, Disturbance::RtHog(Appetite::All))
    };
    /// A CPU that sleeps while it waits
    Idle = NOTHING;
    /// Requests that are lost once
    Loss = Injection {
        oracle: Oracle::Loss,
        server: BaseServer::Streams,
        ..held_back(Cause::Retransmit, Disturbance::Loss(300))
    };
    /// Background bursts and slow requests at once
    // a forecast would cover one of the two; the bursts cause most of the delay
    Two = Injection {
        fault: Some("slow:200,2ms"),
        real_time: false,
        fix: None,
        ..held_back(Cause::Background, Disturbance::Background(BURSTS))
    };
    /// Bursts on the CPU of two workers that take from one socket
    #[value(name = "shared-2-on-1")]
    SharedTwoOnOne = bursts_beside(2, 1, true);
    /// Bursts on one of two CPUs, whose workers take from one socket; needs a third CPU
    #[value(name = "shared-2")]
    SharedTwo = bursts_beside(2, 2, true);
    /// Bursts on one of four CPUs, whose workers take from one socket; needs a fifth CPU
    #[value(name = "shared-4")]
    SharedFour = bursts_beside(4, 4, true);
    /// Bursts on one of two CPUs, whose workers have a socket each; needs a third CPU
    #[value(name = "own-2")]
    OwnTwo = bursts_beside(2, 2, false);
    /// Bursts on one of four CPUs, whose workers have a socket each; needs a fifth CPU
    #[value(name = "own-4")]
    OwnFour = bursts_beside(4, 4, false);
    /// Bursts of another thread on the generator's CPU, for which the server is not to blame
    Generator = Injection {
        oracle: Oracle::Outside,
        disturbance: Some(Disturbance::OnGenerator(BURSTS)),
        ..NOTHING
    };
}

/// Large enough to outweigh other disturbances of the machine, like every injection here.
const BURSTS: Schedule = schedule(120, 8_000);

/// One in this number of the server's threads is delayed in `order`.
const ONE_IN: usize = 4;

/// So rare that the group has no quota during a measurement.
const NEVER: Schedule = schedule(3_600_000, 1_000);

/// The service: long enough that the arrivals, not a few bad moments of the machine, shape the queue.
const SERVICE: &str = "spin:deterministic:300us";

const fn schedule(every_ms: u64, lasts_us: u64) -> Schedule {
    Schedule {
        every: Nanos::from_millis(every_ms),
        lasts: Nanos::from_micros(lasts_us),
    }
}

const NOTHING: Injection = Injection {
    cause: None,
    oracle: Oracle::Nothing,
    fault: None,
    disturbance: None,
    real_time: true,
    server: BaseServer::Datagrams,
    service: Some(SERVICE),
    without: None,
    fix: None,
    told: NOT_TOLD,
};

const NOT_TOLD: JudgedQuantity = JudgedQuantity {
    events: false,
    first: false,
    second_ideal: false,
    shadow: false,
};

const FIRST: JudgedQuantity = JudgedQuantity {
    first: true,
    ..NOT_TOLD
};

const BOTH: JudgedQuantity = JudgedQuantity {
    events: true,
    ..FIRST
};

/// Something outside the server holds it back.
const fn held_back(cause: Cause, by: Disturbance) -> Injection {
    Injection {
        disturbance: Some(by),
        ..injected(cause)
    }
}

/// Bursts on one of the CPUs of several workers.
const fn bursts_beside(number: u32, cpus: u32, shared: bool) -> Injection {
    Injection {
        oracle: Oracle::Client,
        real_time: false,
        server: BaseServer::Several(Workers {
            number,
            cpus,
            shared,
        }),
        ..held_back(Cause::Background, Disturbance::Background(BURSTS))
    }
}

/// The server holds itself back.
const fn fault(cause: Cause, fault: &'static str) -> Injection {
    Injection {
        fault: Some(fault),
        ..injected(cause)
    }
}

const fn injected(cause: Cause) -> Injection {
    Injection {
        cause: Some(cause),
        oracle: Oracle::HeldBack,
        fix: ended(cause, "ended what was injected"),
        ..NOTHING
    }
}

/// The server is built so that requests wait for each other; `mitigation` ends it.
const fn structure(cause: Cause, mitigation: &'static str, done: &'static str) -> Injection {
    Injection {
        cause: Some(cause),
        oracle: Oracle::Structure,
        fix: Some(Fix {
            promise: Promise::Mitigation(mitigation),
            done,
        }),
        ..NOTHING
    }
}

const fn ended(cause: Cause, done: &'static str) -> Option<Fix> {
    Some(Fix {
        promise: Promise::Without(cause),
        done,
    })
}

impl CauseKind {
    /// The name on the command line.
    pub fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// The names of all kinds.
    pub(super) fn names() -> Vec<String> {
        Self::value_variants()
            .iter()
            .map(|kind| kind.name())
            .collect()
    }
}
