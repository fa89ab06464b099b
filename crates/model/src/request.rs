//! One request with its six server stamps and the client's three times.

use crate::{Monotonic, Nanos};

/// The five parts of a sojourn, between neighbouring stamps (Tales of the Tail, 3.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// T1–T2: the network stack receives.
    StackReceive,
    /// T2–T3: waiting for the worker, and its wake-up.
    QueueAndWakeup,
    /// T3–T4: copying to user space and returning there.
    CopyAndReturn,
    /// T4–T5: the application.
    Application,
    /// T5–T6: the stack transmits.
    Transmit,
}

impl Stage {
    /// All five, in the order of time.
    pub const ALL: [Self; 5] = [
        Self::StackReceive,
        Self::QueueAndWakeup,
        Self::CopyAndReturn,
        Self::Application,
        Self::Transmit,
    ];

    /// The key in JSON and Parquet: `t1_t2` … `t5_t6`.
    pub const fn key(self) -> &'static str {
        match self {
            Self::StackReceive => "t1_t2",
            Self::QueueAndWakeup => "t2_t3",
            Self::CopyAndReturn => "t3_t4",
            Self::Application => "t4_t5",
            Self::Transmit => "t5_t6",
        }
    }

    /// What a person reads.
    pub const fn label(self) -> &'static str {
        match self {
            Self::StackReceive => "stack receive",
            Self::QueueAndWakeup => "queueing and wake-up",
            Self::CopyAndReturn => "copy and return",
            Self::Application => "application",
            Self::Transmit => "transmit",
        }
    }
}

/// The server's stamps of one request. T1 and T6 are always present, and bound the sojourn. A
/// middle stamp may be missing (lost in a blind window); its time is then unobserved, but the
/// request stays in every distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamps {
    /// T1: the driver handed the packet to the stack.
    pub t1: Monotonic,
    /// T2: TCP or UDP queued it at the socket.
    pub t2: Option<Monotonic>,
    /// T3: the thread that will read it was on a core.
    pub t3: Option<Monotonic>,
    /// T4: its read returned.
    pub t4: Option<Monotonic>,
    /// T5: the thread called write.
    pub t5: Option<Monotonic>,
    /// T6: the driver took the response.
    pub t6: Monotonic,
}

impl Stamps {
    /// The stamps in order, where `middle` is T2 … T5.
    pub const fn new(t1: Monotonic, middle: [Option<Monotonic>; 4], t6: Monotonic) -> Self {
        let [t2, t3, t4, t5] = middle;
        Self {
            t1,
            t2,
            t3,
            t4,
            t5,
            t6,
        }
    }

    /// T2 … T5, each `None` where it was not seen.
    pub const fn middle(&self) -> [Option<Monotonic>; 4] {
        [self.t2, self.t3, self.t4, self.t5]
    }

    /// T6 − T1, the server's latency; `None` if the stamps are out of order.
    pub fn sojourn(&self) -> Option<Nanos> {
        self.t6.checked_since(self.t1)
    }

    /// Whether all six are there and T1 ≤ T2 ≤ T3 ≤ T4 ≤ T5 ≤ T6.
    pub fn is_complete(&self) -> bool {
        self.stages().is_some()
    }

    /// The five stages, whose sum is exactly the sojourn; `None` when a stamp is
    /// missing or out of order.
    pub fn stages(&self) -> Option<[Nanos; 5]> {
        let t = [self.t1, self.t2?, self.t3?, self.t4?, self.t5?, self.t6];
        let mut stages = [Nanos::ZERO; 5];
        for (stage, pair) in stages.iter_mut().zip(t.windows(2)) {
            *stage = pair[1].checked_since(pair[0])?;
        }
        Some(stages)
    }
}

/// What the client knows of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientTimes {
    /// When the schedule wanted it sent.
    pub intended: Monotonic,
    /// When it was sent (before the system call).
    pub sent: Monotonic,
    /// When its response was read; `None` if none came.
    pub received: Option<Monotonic>,
}

/// How the connection that a request had to itself came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connecting {
    /// From the call that sends the SYN until the request was sent, at once after the connection was up; if it never
    /// was, until it failed or was given up.
    pub took: Nanos,
    /// How it ended.
    pub end: ConnectEnd,
}

/// How opening a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectEnd {
    /// It was up, and the request was sent.
    Connected,
    /// The server's host refused it: nothing listens there.
    Refused,
    /// It was not up within the time-out.
    TimedOut,
    /// The kernel could not open it: no port, no route.
    Failed,
}

impl Connecting {
    /// How long it took, if the connection came up.
    pub fn connected_after(self) -> Option<Nanos> {
        (self.end == ConnectEnd::Connected).then_some(self.took)
    }
}

/// What the kernel of the client's host knows of one request (SO_TIMESTAMPING), on the
/// clock of [`ClientTimes`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireTimes {
    /// When the request's last byte was given to the driver; `None` if that was not stamped.
    pub sent: Option<Monotonic>,
    /// When the response's packet came in; `None` if that was not stamped.
    pub received: Option<Monotonic>,
}

/// What the request asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A read.
    Get,
    /// A write.
    Set,
    /// A remote procedure call that is neither, e.g. an echo.
    Call,
}

/// How a request ended at the client. The numbers are those of the generator's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Outcome {
    /// No answer within the time-out, or none at all.
    TimedOut = 1,
    /// The kernel refused the send.
    SendFailed = 2,
    /// A get that found its value.
    Hit = 3,
    /// A get that found nothing.
    Miss = 4,
    /// A set that was stored.
    Stored = 5,
    /// The server answered with an error.
    ServerError = 6,
    /// A call that was answered as it should be.
    Done = 9,
    /// Its connection ended before its answer.
    ConnectionLost = 10,
    /// What came as its answer is not valid in the protocol.
    Malformed = 11,
}

impl Outcome {
    /// The name in machine-readable outputs.
    pub const fn key(self) -> &'static str {
        match self {
            Self::TimedOut => "timed_out",
            Self::SendFailed => "send_failed",
            Self::Hit => "hit",
            Self::Miss => "miss",
            Self::Stored => "stored",
            Self::ServerError => "server_error",
            Self::Done => "done",
            Self::ConnectionLost => "connection_lost",
            Self::Malformed => "malformed",
        }
    }
}

/// One request, from the client's schedule to the response's departure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The server's stamps.
    pub server: Stamps,
    /// The client's times, where the client is ours.
    pub client: Option<ClientTimes>,
    /// What it asked for, where known.
    pub operation: Option<Operation>,
}

/// A request whose client's side is not known.
impl From<Stamps> for Request {
    fn from(server: Stamps) -> Self {
        Self {
            server,
            client: None,
            operation: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(n: u64) -> Monotonic {
        Monotonic::from_nanos_since_boot(n)
    }

    #[test]
    fn stages_add_up_to_the_sojourn() {
        let middle = [110, 110, 140, 200].map(|n| Some(at(n)));
        let stamps = Stamps::new(at(100), middle, at(205));
        let stages = stamps.stages().unwrap();
        assert_eq!(stages.into_iter().sum::<Nanos>(), stamps.sojourn().unwrap());
    }

    #[test]
    fn a_missing_or_disordered_stamp_leaves_the_sojourn_but_no_stages() {
        let middle = [None, Some(at(110)), Some(at(140)), Some(at(200))];
        let mut stamps = Stamps::new(at(100), middle, at(205));
        assert_eq!(stamps.sojourn(), Some(Nanos::new(105)));
        assert_eq!(stamps.stages(), None);
        stamps.t2 = Some(at(120));
        assert!(!stamps.is_complete());
    }
}
