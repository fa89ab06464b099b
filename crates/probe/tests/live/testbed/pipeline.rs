//! Clients that pipeline: several requests in one packet, or one request in several packets.
//! They note when they sent each request and received its response.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use taillab_model::Monotonic;

use super::streams::StreamBed;
use super::{PATIENCE, now};

/// A request, bytes near the end of its response that occur nowhere else in it, and how many
/// more follow them.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    request: Vec<u8>,
    ends: Vec<u8>,
    behind: usize,
}

impl Exchange {
    pub(crate) fn new(request: impl Into<Vec<u8>>, ends: impl Into<Vec<u8>>) -> Self {
        Self {
            request: request.into(),
            ends: ends.into(),
            behind: 0,
        }
    }

    /// A request of memcached's binary protocol; its response ends 8 bytes and `more` behind the
    /// number that it repeats.
    pub(crate) fn binary(opcode: u8, number: u32, parts: [&[u8]; 3], more: usize) -> Self {
        let [extras, key, value] = parts;
        let body = (extras.len() + key.len() + value.len()) as u32;
        let mut request = vec![
            0x80,
            opcode,
            0,
            key.len() as u8,
            extras.len() as u8,
            0,
            0,
            0,
        ];
        request.extend(body.to_be_bytes());
        request.extend(number.to_be_bytes());
        request.extend([0; 8]);
        request.extend(parts.concat());
        Self {
            behind: 8 + more,
            ..Self::new(request, number.to_be_bytes())
        }
    }
}

/// One request as its client saw it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientView {
    /// The client's port.
    pub(crate) port: u16,
    pub(crate) bytes: u32,
    /// Before its last byte was written.
    pub(crate) sent: Monotonic,
    /// After the last byte of its response was read.
    pub(crate) received: Monotonic,
}

/// Bytes in each write of a round; the rest in one more.
const CUTS: [&[usize]; 4] = [&[], &[7], &[1, 30, 2], &[40, 5]];

/// Long enough for a write to be a packet of its own and to be read alone.
const APART: Duration = Duration::from_millis(1);

impl StreamBed {
    /// Talks `rounds` times on each of `connections` connections: 1 to 7 of the exchanges at once,
    /// in turn, in one write or in several. One connection does so before the others, so that
    /// what it stores is there. Returns each connection's calls in their order.
    pub(crate) fn pipeline(
        &self,
        connections: usize,
        rounds: usize,
        exchanges: &[Exchange],
    ) -> Vec<Vec<ClientView>> {
        let (address, exchanges) = (self.address(), exchanges.to_vec());
        self.client.run(move || {
            let talk = |first: usize| {
                let mut stream = TcpStream::connect(address).expect("the server listens");
                stream.set_nodelay(true).expect("an option of TCP");
                let timeout = Some(PATIENCE);
                stream.set_read_timeout(timeout).expect("an option");
                let mut turn = exchanges.iter().cycle().skip(first);
                let mut all = Vec::new();
                for round in first..first + rounds {
                    let some: Vec<_> = turn.by_ref().take(1 + round % 7).collect();
                    talk_once(&mut stream, &some, CUTS[round % CUTS.len()], &mut all);
                }
                all
            };
            std::thread::scope(|scope| {
                let talk = &talk;
                let before = talk(0);
                let clients: Vec<_> = (1..connections)
                    .map(|n| scope.spawn(move || talk(n)))
                    .collect();
                let others = clients.into_iter().map(|client| client.join());
                let others = others.map(|told| told.expect("the server answers"));
                std::iter::once(before).chain(others).collect()
            })
        })
    }
}

fn talk_once(
    stream: &mut TcpStream,
    exchanges: &[&Exchange],
    cuts: &[usize],
    all: &mut Vec<ClientView>,
) {
    let port = stream.local_addr().expect("it is connected").port();
    let mut bytes: Vec<u8> = Vec::new();
    let mut ends = Vec::new();
    for exchange in exchanges {
        bytes.extend(&exchange.request);
        ends.push(bytes.len());
    }
    let mut sent = Vec::new();
    let mut from = 0;
    for to in cuts.iter().map(|cut| Some(*cut)).chain([None]) {
        let to = to.map_or(bytes.len(), |cut| (from + cut).min(bytes.len()));
        if from > 0 && to > from {
            std::thread::sleep(APART);
        }
        let at = now();
        stream
            .write_all(&bytes[from..to])
            .expect("the server reads");
        sent.extend(
            ends.iter()
                .filter(|end| (from + 1..=to).contains(end))
                .map(|_| at),
        );
        from = to;
    }
    let (mut response, mut some) = (Vec::new(), [0; 16 << 10]);
    for (exchange, sent) in exchanges.iter().zip(sent) {
        let end = loop {
            let ends = &exchange.ends;
            let place = response.windows(ends.len()).position(|bytes| bytes == ends);
            if let Some(place) = place
                && let end = place + ends.len() + exchange.behind
                && end <= response.len()
            {
                break end;
            }
            let n = stream.read(&mut some).unwrap_or_else(|error| {
                panic!("{exchange:?}: {error} behind {:?}", response.escape_ascii())
            });
            assert!(n > 0, "the server closed the connection");
            response.extend(&some[..n]);
        };
        response.drain(..end);
        all.push(ClientView {
            port,
            bytes: exchange.request.len() as u32,
            sent,
            received: now(),
        });
    }
    assert!(response.is_empty(), "more than was asked for: {response:?}");
}
