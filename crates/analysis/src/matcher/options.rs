//! How a recording is to be matched.

use taillab_model::{MiddleStamps, Nanos, RecordingContext};

use super::framing::{Framing, ParseFramingError};
use crate::matched::DatagramIds;

/// What the matcher must know of the client and of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatchOptions {
    /// How far an event may be from its place in the order of time; such events are
    /// put back. An event that comes later than that is counted ([`Matched::late_events`]).
    pub disorder: Nanos,
    /// A response that leaves longer than this after a request came in is not taken for
    /// its own. Longer than any sojourn to be measured (and than the client's time-out),
    /// shorter than the time until a request id is used again.
    pub stale_after: Nanos,
    /// A thread that has answered a request which arrived this much later than another
    /// will not answer that other one any more: threads take requests in the order of
    /// arrival, so its response was lost to the probe, or never sent.
    pub overtaken_after: Nanos,
    /// Each connection's requests are handled in their order, and all that was read of a
    /// connection is answered before more of it is read, as memcached, nginx, Redis and
    /// every loop of blocking reads and writes do. With it, pipelined requests
    /// that were read together can be matched; without it they are ambiguous.
    pub sequential: bool,
    /// Whether the first two bytes of a datagram are its request's id; `None`: as the first
    /// thousand responses show.
    pub datagram_ids: Option<DatagramIds>,
    /// How the requests of a connection are separated.
    pub framing: Framing,
    /// When T2 to T5 were recorded.
    pub stamps: MiddleStamps,
}

impl Default for MatchOptions {
    fn default() -> Self {
        Self {
            disorder: Nanos::from_millis(1),
            stale_after: Nanos::from_secs(1),
            overtaken_after: Nanos::from_millis(50),
            sequential: false,
            datagram_ids: None,
            framing: Framing::OneInTurn,
            stamps: MiddleStamps::All,
        }
    }
}

impl MatchOptions {
    /// For a client that waits `timeout` for a response and uses each of its request
    /// ids again after `key_period` (ports × 65,536 ÷ rate).
    ///
    /// A request then goes stale after four time-outs, but before its id is used
    /// again, except where the client itself uses it sooner than its time-out.
    pub fn for_client(timeout: Nanos, key_period: Nanos) -> Self {
        let before_reuse = Nanos::new(key_period.get() / 10 * 9);
        Self {
            stale_after: (timeout * 4).min(before_reuse).max(timeout),
            datagram_ids: Some(DatagramIds::Ids),
            ..Self::default()
        }
    }

    /// As a recording says that it wants to be read.
    ///
    /// Without a time-out a response is waited for ten seconds. Unless it says that
    /// datagrams have ids, that is left to the evidence.
    ///
    /// # Errors
    /// When the recording names a framing that there is not.
    pub fn of(context: &RecordingContext) -> Result<Self, ParseFramingError> {
        let timeout = context.timeout_ns.unwrap_or(Nanos::from_millis(2_500));
        let framing = context.framing.as_deref().map(str::parse).transpose()?;
        Ok(Self {
            framing: framing.unwrap_or_default(),
            stamps: context.stamps,
            datagram_ids: context.datagram_ids.then_some(DatagramIds::Ids),
            ..Self::for_streams(timeout, context.sequential)
        })
    }

    /// For a client of connections (TCP) that waits `timeout` for a response.
    ///
    /// It does not matter there when keys are used again: a connection's requests are separated
    /// by their order.
    pub fn for_streams(timeout: Nanos, sequential: bool) -> Self {
        Self {
            stale_after: timeout * 4,
            sequential,
            ..Self::default()
        }
    }
}
