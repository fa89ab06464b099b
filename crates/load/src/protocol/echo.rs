//! Raw echo: requests and answers of fixed sizes, the "null RPC" of Tales of the Tail,
//! section 3.1 (128 bytes both ways).
//!
//! An answer must begin as its request does: with the four bytes of the tag on a stream, with the
//! two bytes of the request id in a datagram, both big endian. The id is where memcached's frame
//! has it, so that the probe reads both from the same place.

use taillab_model::Outcome;

use super::{
    Ask, Body, DatagramProtocol, Decoded, EchoWorkload, MAX_DATAGRAM_BYTES, Malformed,
    MessageSizes, Planned, Planner, Protocol, Question, Response, StreamProtocol,
};
use crate::LoadError;

/// Echo in the table of protocols; its port is RFC 862's.
pub const PROTOCOL: Protocol = Protocol {
    name: "echo",
    scheme: "echo",
    label: "echo",
    default_port: 7,
    pipelines: true,
    asks: &[Ask::RequestBytes, Ask::ResponseBytes],
    stream: |workload| Ok(Box::new(EchoStream::new(workload.echo)?)),
    datagrams: Some(|workload| Ok(Box::new(EchoDatagrams::new(workload.echo)?))),
    question: |workload, _| Question {
        bytes: vec![0; workload.echo.request_bytes],
        answer: b"",
    },
};

/// The largest message on a stream.
pub const MAX_STREAM_BYTES: usize = 16 << 20;

/// Echo. A message begins with a tag of `TAG` bytes and has at most `MOST` bytes.
#[derive(Clone, Debug)]
pub struct Echo<const TAG: usize, const MOST: usize> {
    workload: EchoWorkload,
    request: Vec<u8>,
}

/// Echo on a stream.
pub type EchoStream = Echo<4, MAX_STREAM_BYTES>;

/// Echo in datagrams.
pub type EchoDatagrams = Echo<2, MAX_DATAGRAM_BYTES>;

impl<const TAG: usize, const MOST: usize> Echo<TAG, MOST> {
    /// Prepares the request.
    ///
    /// # Errors
    /// [`LoadError::MessageSize`]
    pub fn new(workload: EchoWorkload) -> Result<Self, LoadError> {
        for (what, bytes) in [
            ("an echo's request", workload.request_bytes),
            ("an echo's response", workload.response_bytes),
        ] {
            if !(TAG..=MOST).contains(&bytes) {
                return Err(LoadError::MessageSize {
                    what,
                    bytes,
                    min: TAG,
                    max: MOST,
                });
            }
        }
        Ok(Self {
            workload,
            request: vec![b'e'; workload.request_bytes],
        })
    }
}

impl<const TAG: usize, const MOST: usize> Planner for Echo<TAG, MOST> {
    fn sizes(&self) -> MessageSizes {
        self.workload
    }
}

impl StreamProtocol for EchoStream {
    #[inline]
    fn encode(&mut self, _what: Planned, tag: u32, out: &mut Vec<u8>) {
        let at = out.len();
        out.extend_from_slice(&self.request);
        out[at..][..size_of::<u32>()].copy_from_slice(&tag.to_be_bytes());
    }

    #[inline]
    fn decode(&self, _what: Planned, tag: u32, bytes: &[u8]) -> Decoded {
        let tag = tag.to_be_bytes();
        let common = bytes.len().min(tag.len());
        if bytes[..common] != tag[..common] {
            return Decoded::Malformed;
        }
        let wanted = self.workload.response_bytes;
        if bytes.len() < wanted {
            return Decoded::Partial { at_least: wanted };
        }
        Decoded::Answer {
            bytes: wanted,
            outcome: Outcome::Done,
        }
    }
}

impl<const MOST: usize> DatagramProtocol for Echo<2, MOST> {
    #[inline]
    fn encode(&mut self, _what: Planned, id: u16) -> &[u8] {
        self.request[..2].copy_from_slice(&id.to_be_bytes());
        &self.request
    }

    #[inline]
    fn decode<'a>(&self, datagram: &'a [u8]) -> Result<Response<'a>, Malformed> {
        let id = datagram.first_chunk().ok_or(Malformed)?;
        if datagram.len() != self.workload.response_bytes {
            return Err(Malformed);
        }
        Ok(Response {
            id: u16::from_be_bytes(*id),
            sequence: 0,
            datagrams: 1,
            body: Body::Done,
        })
    }

    #[inline]
    fn judge(&self, _what: Planned, body: &Body<'_>) -> Option<Outcome> {
        matches!(body, Body::Done).then_some(Outcome::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(request_bytes: usize, response_bytes: usize) -> EchoWorkload {
        EchoWorkload {
            request_bytes,
            response_bytes,
        }
    }

    #[test]
    fn a_stream_s_request_carries_its_tag_and_its_answer_must() {
        let mut echo = EchoStream::new(sizes(6, 5)).unwrap();
        let what = echo.plan(1, 0)[0];
        let mut out = b"before".to_vec();
        echo.encode(what, 0x0102_0304, &mut out);
        assert_eq!(out, b"before\x01\x02\x03\x04ee");
        let decode = |bytes: &[u8]| echo.decode(what, 0x0102_0304, bytes);
        let done = Decoded::Answer {
            bytes: 5,
            outcome: Outcome::Done,
        };
        assert_eq!(decode(b"\x01\x02\x03\x04e"), done);
        assert_eq!(decode(b"\x01\x02\x03\x04x\x01\x02"), done);
        let partial = Decoded::Partial { at_least: 5 };
        assert_eq!(decode(b""), partial);
        assert_eq!(decode(b"\x01\x02\x03\x04"), partial);
        assert_eq!(decode(b"\x01\x03"), Decoded::Malformed);
        assert_eq!(decode(b"\x01\x02\x03\x05e"), Decoded::Malformed);
    }

    #[test]
    fn a_datagram_carries_its_id_and_has_one_size() {
        let mut echo = EchoDatagrams::new(sizes(4, 3)).unwrap();
        let what = echo.plan(1, 0)[0];
        assert_eq!(echo.encode(what, 0x0102), b"\x01\x02ee");
        let response = echo.decode(b"\x01\x02e").unwrap();
        assert_eq!((response.id, response.datagrams), (0x0102, 1));
        assert_eq!(echo.judge(what, &response.body), Some(Outcome::Done));
        assert_eq!(echo.judge(what, &Body::Miss), None);
        for bad in [&b""[..], b"\x01", b"\x01\x02", b"\x01\x02ee"] {
            assert_eq!(echo.decode(bad), Err(Malformed));
        }
    }

    #[test]
    fn sizes_without_room_for_the_tag_or_beyond_one_packet_are_refused() {
        assert!(EchoStream::new(sizes(4, 4)).is_ok());
        assert!(EchoDatagrams::new(sizes(2, MAX_DATAGRAM_BYTES)).is_ok());
        for error in [
            EchoStream::new(sizes(3, 4)).unwrap_err(),
            EchoStream::new(sizes(4, 3)).unwrap_err(),
            EchoStream::new(sizes(4, MAX_STREAM_BYTES + 1)).unwrap_err(),
            EchoDatagrams::new(sizes(1, 2)).unwrap_err(),
            EchoDatagrams::new(sizes(2, MAX_DATAGRAM_BYTES + 1)).unwrap_err(),
        ] {
            let text = error.to_string();
            assert!(text.contains("bytes") && text.contains("use"), "{text}");
        }
    }
}
