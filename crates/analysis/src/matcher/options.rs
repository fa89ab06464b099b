//! How a recording is to be matched.

use taillab_model::{MiddleStamps, Nanos, RecordingContext};

use super::framing::{Framing, ParseFramingError};
use crate::matched::DatagramIds;

/// What the matcher must know about the client and about the stream of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatchOptions {
    /// How far an event may be from its place in time order; such events are put into their place.
    /// An event that comes later than that is counted ([`Matched::late_events`]).
    pub disorder: Nanos,
    /// A response that leaves longer than this after a request came in is not matched to that
    /// request. It should be longer than any sojourn to be measured (and than the client's
    /// time-out), and shorter than the time until a request id is reused.
    pub stale_after: Nanos,
    /// If a thread has answered a request that arrived this much later than another, it will not
    /// answer the other one any more: threads take requests in the order of arrival, so the probe
    /// missed that response, or it was never sent.
    pub overtaken_after: Nanos,
    /// When the recording ended, the client had the whole response to each of its requests: the end cuts none off.
    pub answered: bool,
    /// The server's protocol has no other order than that of the requests on a connection, and everything
    /// that was read from a connection is answered before more is read from it: memcached, Redis and
    /// every loop of blocking reads and writes do that. If this is set, pipelined requests that were
    /// read together can be matched, except on connections that have shown another behaviour; otherwise
    /// they are ambiguous.
    pub sequential: bool,
    /// Whether the first two bytes of a datagram are its request's id; `None`: the first thousand
    /// responses decide.
    pub datagram_ids: Option<DatagramIds>,
    /// How the requests of a connection are separated.
    pub framing: Framing,
    /// When T2 to T5 were recorded.
    pub stamps: MiddleStamps,
    /// A connection's number that was not announced tells its client's hash and port, as in version 1 of recordings
    /// ([`taillab_model::RequestKey::hashed`]). The default, for events that are made by hand.
    pub hashed_clients: bool,
}

impl Default for MatchOptions {
    fn default() -> Self {
        Self {
            disorder: Nanos::from_millis(1),
            stale_after: Nanos::from_secs(1),
            overtaken_after: Nanos::from_millis(50),
            answered: false,
            sequential: false,
            datagram_ids: None,
            framing: Framing::OneInTurn,
            stamps: MiddleStamps::All,
            hashed_clients: true,
        }
    }
}

impl MatchOptions {
    /// For a client that waits `timeout` for a response and reuses each of its request ids after
    /// `key_period` (ports × 65,536 ÷ rate).
    ///
    /// A request then goes stale after four time-outs, but before its id is reused, unless the
    /// client reuses it within its own time-out.
    pub fn for_client(timeout: Nanos, key_period: Nanos) -> Self {
        let before_reuse = Nanos::new(key_period.get() / 10 * 9);
        Self {
            stale_after: (timeout * 4).min(before_reuse).max(timeout),
            datagram_ids: Some(DatagramIds::Ids),
            hashed_clients: false,
            ..Self::default()
        }
    }

    /// The options for a recording, from its context.
    ///
    /// If the context has no time-out, requests go stale after ten seconds. Unless it says that
    /// datagrams have ids, the evidence decides.
    ///
    /// # Errors
    /// If the recording names an unknown framing.
    pub fn of(context: &RecordingContext) -> Result<Self, ParseFramingError> {
        let timeout = context.timeout_ns.unwrap_or(Nanos::from_millis(2_500));
        let framing = context.framing.as_deref().map(str::parse).transpose()?;
        Ok(Self {
            framing: framing.unwrap_or_default(),
            answered: context.answered,
            stamps: context.stamps,
            datagram_ids: context.datagram_ids.then_some(DatagramIds::Ids),
            hashed_clients: context.hashed_clients,
            ..Self::for_streams(timeout, context.sequential)
        })
    }

    /// For a client of connections (TCP) that waits `timeout` for a response.
    ///
    /// When keys are reused does not matter here: a connection's requests are separated by their
    /// order.
    pub fn for_streams(timeout: Nanos, sequential: bool) -> Self {
        Self {
            stale_after: timeout * 4,
            sequential,
            hashed_clients: false,
            ..Self::default()
        }
    }
}
