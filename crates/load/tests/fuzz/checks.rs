//! What must hold for any bytes that a server sends. The bounded run in `main.rs` and
//! the long runs of cargo-fuzz (`crates/taillab/fuzz`) call the same functions.

// each target uses a part of it, and for clippy these are not tests
#![allow(dead_code, clippy::unwrap_used)]

use taillab_load::protocol::{
    Ask, Codec, DatagramProtocol, Decoded, Planned, Protocol, StreamProtocol, Workload,
};
use taillab_load::{EchoWorkload, Resource, StoreWorkload};
use taillab_model::Operation;

/// The tag of every request.
pub(crate) const TAG: u32 = 0x0a0b_0c0d;

/// The key that every request asks for: `0042`.
pub(crate) const KEY: u32 = 42;

/// A stream's protocol and a request of it.
pub(crate) struct StreamRequest {
    protocol: Box<dyn StreamProtocol>,
    what: Planned,
}

impl StreamRequest {
    pub(crate) fn request(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.protocol.encode(self.what, TAG, &mut bytes);
        bytes
    }
}

/// What requests of this protocol do.
pub(crate) fn operations(protocol: &Protocol) -> &'static [Operation] {
    match protocol.asks(Ask::Keys) {
        true => &[Operation::Get, Operation::Set],
        false => &[Operation::Call],
    }
}

/// Small messages: values of 12 bytes, and echoes of 16.
fn workload() -> Workload {
    Workload {
        store: StoreWorkload {
            keys: 100,
            key_bytes: 4,
            value_bytes: 12,
            ..StoreWorkload::default()
        },
        resource: Resource::at("a", "/"),
        echo: EchoWorkload {
            request_bytes: 16,
            response_bytes: 16,
        },
    }
}

/// An operation of a protocol on a stream.
pub(crate) fn on_stream(protocol: &Protocol, operation: Operation) -> StreamRequest {
    let Codec::Streams(codec) = protocol.codec(&workload(), false).unwrap() else {
        panic!("{} has streams", protocol.label);
    };
    StreamRequest {
        protocol: codec,
        what: planned(operation),
    }
}

fn planned(operation: Operation) -> Planned {
    let key = match operation {
        Operation::Call => 0,
        _ => KEY,
    };
    Planned::new(operation, key)
}

/// A protocol in datagrams.
pub(crate) fn in_datagrams(protocol: &Protocol) -> DatagramRequest {
    let Codec::Datagrams(protocol) = protocol.codec(&workload(), true).unwrap() else {
        panic!("{} has datagrams", protocol.label);
    };
    DatagramRequest { protocol }
}

/// Feeds an answer in every way that a network can, and checks that
/// - the decision does not depend on the pieces it came in,
/// - a decision once made stays the same when more bytes come,
/// - nothing is complete before there are as many bytes as the decoder asked for,
/// - an answer is not longer than the bytes there are.
///
/// Returns the decision.
///
/// # Panics
/// When one of these does not hold.
pub(crate) fn check_stream(asked: &StreamRequest, bytes: &[u8]) -> Decoded {
    let look = |n: usize| asked.protocol.decode(asked.what, TAG, &bytes[..n]);
    let all = look(bytes.len());
    let mut least = 0;
    let mut decided = None;
    for n in 0..=bytes.len() {
        let found = look(n);
        if let Some(before) = decided {
            assert_eq!(found, before, "changed its mind at {n} bytes");
            continue;
        }
        match found {
            Decoded::Partial { at_least } => {
                assert!(at_least > n, "{n} bytes, and {at_least} are enough");
                least = least.max(at_least);
            }
            Decoded::Answer { bytes: end, .. } | Decoded::LastAnswer { bytes: end, .. } => {
                assert_eq!(end, n, "complete with {n} bytes at last");
                assert!(n >= least, "{n} bytes were enough, not {least}");
                decided = Some(found);
            }
            Decoded::Malformed | Decoded::NotTaken | Decoded::UntilClosed { .. } => {
                decided = Some(found);
            }
        }
    }
    if decided.is_none() {
        assert!(matches!(all, Decoded::Partial { .. }));
    }
    // as a client does: decodes only once there are as many bytes as the decoder asked for
    let mut n = 0;
    loop {
        match look(n) {
            Decoded::Partial { at_least } if at_least <= bytes.len() => n = at_least,
            Decoded::Partial { .. } => {
                assert!(!matches!(
                    all,
                    Decoded::Answer { .. } | Decoded::LastAnswer { .. }
                ));
                break;
            }
            other => {
                assert_eq!(other, all, "the client and the whole differ");
                break;
            }
        }
    }
    all
}

/// A datagram protocol and its two kinds of requests.
pub(crate) struct DatagramRequest {
    protocol: Box<dyn DatagramProtocol>,
}

impl DatagramRequest {
    pub(crate) fn request(&mut self, operation: Operation, id: u16) -> Vec<u8> {
        self.protocol.encode(planned(operation), id).to_vec()
    }
}

/// Reads and judges one datagram; returns whether it is the answer to a request.
///
/// # Panics
/// When the result contradicts itself.
pub(crate) fn check_datagram(asked: &DatagramRequest, datagram: &[u8]) -> bool {
    let Ok(response) = asked.protocol.decode(datagram) else {
        return false;
    };
    assert!(response.sequence < response.datagrams);
    assert_eq!(datagram[..2], response.id.to_be_bytes());
    [Operation::Get, Operation::Set, Operation::Call]
        .map(|operation| {
            let what = Planned::new(operation, KEY);
            asked.protocol.judge(what, &response.body).is_some()
        })
        .contains(&true)
}
