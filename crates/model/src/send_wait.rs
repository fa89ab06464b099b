//! What a response waits for that the server has written.

/// What a response waited for between the server's write and the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SendWait {
    /// Nagle's algorithm held the last, short segment back until the client acknowledged the one before, and the
    /// client waited with that for more (delayed ACK, 40 ms on Linux).
    Nagle,
    /// There was no room for more: in the client's window, the congestion window, or the send buffer.
    Window,
    /// It was longer than the congestion window, so its rest left with the acknowledgements of what had been sent:
    /// a matter of round trips.
    RoundTrips,
    /// It was in the queue of the network device.
    Device,
}

impl SendWait {
    const ALL: [Self; 4] = [Self::Nagle, Self::Window, Self::RoundTrips, Self::Device];

    /// In a few words, as results have it.
    pub const fn what(self) -> &'static str {
        match self {
            Self::Nagle => "a delayed ACK (Nagle's algorithm)",
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
        Self::ALL.into_iter().find(|wait| wait.what() == what)
    }
}
