//! What a response waits for that the server has written.

/// What a response waited for between the server's write and the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SendWait {
    /// Nagle's algorithm held the last, short segment back until the client acknowledged the one before, and the
    /// client waited with that for more (delayed ACK, 40 ms on Linux).
    Nagle,
    /// The client's window had no room for more: it had not read what came before.
    ClientWindow,
    /// The congestion window had no room for more.
    CongestionWindow,
    /// There was no room for more, and which of the two it was is not known; or the send buffer was full.
    Window,
    /// It was longer than the congestion window, so its rest left with the acknowledgements of what had been sent:
    /// a matter of round trips.
    RoundTrips,
    /// It was in the queue of the network device.
    Device,
}

impl SendWait {
    /// Those that end with an acknowledgement.
    pub const FOR_ACKNOWLEDGEMENTS: [Self; 5] = [
        Self::Nagle,
        Self::ClientWindow,
        Self::CongestionWindow,
        Self::Window,
        Self::RoundTrips,
    ];

    /// In a few words, as results have it.
    pub const fn what(self) -> &'static str {
        match self {
            Self::Nagle => "a delayed ACK (Nagle's algorithm)",
            Self::ClientWindow => "room in the client's window (it reads slowly)",
            Self::CongestionWindow => "room in the congestion window (the path is slow)",
            Self::Window => "room in the client's window or the congestion window",
            Self::RoundTrips => {
                "the acknowledgements of its beginning (it takes several round trips)"
            }
            Self::Device => "the queue of the network device",
        }
    }

    /// What makes it shorter or rarer.
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Nagle => {
                "Set TCP_NODELAY on the server's connections (JDK: \
                 `-Dsun.net.httpserver.nodelay=true`), or write each response in one call."
            }
            Self::ClientWindow => {
                "The client reads more slowly than the server answers. Only the client can change that: read on \
                 while it works, or ask for less at once; a larger receive buffer there (`net.ipv4.tcp_rmem`) \
                 takes more of a response in advance."
            }
            Self::CongestionWindow => {
                "The path takes no more at once: `ss -ti` shows cwnd, rtt and retransmissions. Shorter responses \
                 take fewer round trips; a connection that was idle starts anew with a small window unless \
                 `net.ipv4.tcp_slow_start_after_idle` is 0."
            }
            Self::Window => {
                "The client reads slowly, or the path is slow: `ss -ti` shows rwnd_limited, \
                 sndbuf_limited and cwnd of each connection. Only the client, the path or \
                 shorter responses change it."
            }
            Self::RoundTrips => {
                "Shorter responses take fewer round trips; on a path that can take more at once, so does a \
                 larger initial window (`initcwnd` of `ip route`)."
            }
            Self::Device => "A shaper or a full queue holds packets back: see `tc -s qdisc show`.",
        }
    }

    /// The one with this name in results.
    pub(crate) fn named(what: &str) -> Option<Self> {
        let mut all = Self::FOR_ACKNOWLEDGEMENTS.into_iter().chain([Self::Device]);
        all.find(|wait| wait.what() == what)
    }
}
