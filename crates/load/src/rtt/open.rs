//! Messages on a schedule that does not wait for answers: the generator's open loop over the
//! protocols of round trips, except RDMA.
//!
//! Sockets use the generator's own clients. A [`Wire`] carries one message at a time on each of its
//! connections: a message takes the connection that has been idle for longest, or waits for
//! one. That wait is part of its latency, which counts from when it was due.

use std::collections::VecDeque;

use taillab_model::rtt::XdpAttachment;

use super::error::RttError;
use super::kinds::{Mode, Proto};
use super::peer::Peer;
use super::shm::Memory;
use super::wire::{WaitOutcome, Wire};
use super::xdp::Xdp;
use crate::protocol::DatagramProtocol;
use crate::protocol::echo::{Echo, EchoDatagrams, EchoStream, MAX_STREAM_BYTES};
use crate::transport::{DatagramTransport, NotSent, Receipt, Sockets};
use crate::{
    AnyClient, ClosedLoop, Codec, DatagramClient, EchoWorkload, Hooks, KernelStamps, LoadError,
    LoadRun, NoHooks, OpenLoop, Saturation, open_loop, saturate,
};

/// The most looks for late answers when a transport discards what is under way.
const LAST_LOOKS: u32 = 1 << 20;

/// A client that sends by a schedule, on one thread.
pub struct OpenClient {
    kind: Kind,
    xdp_attachment: Option<XdpAttachment>,
}

#[expect(
    clippy::large_enum_variant,
    reason = "there is one, and a box would cost an indirection for each request"
)]
enum Kind {
    Sockets(AnyClient),
    Wire(DatagramClient<InTurn>),
}

impl OpenClient {
    /// Connects to the peer in the calling thread's network namespace, with `connections`
    /// connections for messages of `size` bytes both ways.
    ///
    /// # Errors
    /// When a connection cannot be made, the size is not allowed, or the protocol has no open loop.
    pub fn connect(
        proto: Proto,
        size: usize,
        connections: usize,
        peer: &Peer,
    ) -> Result<Self, RttError> {
        // RDMA's endpoint is where its connections are set up, and is no echo server
        proto.check_open()?;
        let workload = EchoWorkload {
            request_bytes: size,
            response_bytes: size,
        };
        if let Some(endpoint) = peer.endpoint(0) {
            let codec = match proto.is_datagram() {
                true => Codec::Datagrams(Box::new(EchoDatagrams::new(workload)?)),
                false => Codec::Streams(Box::new(EchoStream::new(workload)?)),
            };
            let client = AnyClient::connect(&endpoint, connections, codec, KernelStamps::NONE)?;
            return Ok(Self {
                kind: Kind::Sockets(client),
                xdp_attachment: None,
            });
        }
        let (wire, protocol): (Box<dyn Wire>, Box<dyn DatagramProtocol>) = match peer.xdp_server() {
            Some(server) => (
                Box::new(Xdp::open(server, Mode::Nonblocking, connections)?),
                Box::new(EchoDatagrams::new(workload)?),
            ),
            // memory has no packets, which would limit the size
            None => (
                Box::new(Memory::new(peer.pairs().unwrap_or_default().to_vec())),
                Box::new(Echo::<2, MAX_STREAM_BYTES>::new(workload)?),
            ),
        };
        let xdp_attachment = wire.xdp_attachment();
        let transport = InTurn::new(wire, connections, proto.is_datagram());
        Ok(Self {
            kind: Kind::Wire(DatagramClient::new(transport, protocol)),
            xdp_attachment,
        })
    }

    /// Where the kernel takes the packets of AF_XDP, if it is that.
    pub fn xdp_attachment(&self) -> Option<XdpAttachment> {
        self.xdp_attachment
    }

    /// As [`saturate()`]: the peak of the server with this client.
    ///
    /// # Errors
    /// As there.
    pub fn saturate(
        &mut self,
        load: &ClosedLoop<'_>,
        hooks: &mut impl Hooks,
    ) -> Result<Saturation, LoadError> {
        match &mut self.kind {
            Kind::Sockets(client) => saturate(client, load, hooks),
            Kind::Wire(client) => saturate(client, load, hooks),
        }
    }

    /// As [`open_loop()`].
    ///
    /// # Errors
    /// As there.
    pub fn open_loop(&mut self, load: OpenLoop<'_>) -> Result<LoadRun, LoadError> {
        match &mut self.kind {
            Kind::Sockets(client) => open_loop(client, load, &mut NoHooks),
            Kind::Wire(client) => open_loop(client, load, &mut NoHooks),
        }
    }
}

/// All connections of a wire, used as one connection.
struct InTurn {
    wire: Box<dyn Wire>,
    connections: usize,
    /// Messages can be lost, so a connection does not wait for its answer.
    is_lossy: bool,
    /// Idle connections, the longest idle first.
    idle: VecDeque<usize>,
    waiting: VecDeque<Vec<u8>>,
    /// Unused buffers for messages that wait.
    spare: Vec<Vec<u8>>,
    received: Vec<u8>,
}

impl InTurn {
    fn new(wire: Box<dyn Wire>, connections: usize, is_lossy: bool) -> Self {
        Self {
            wire,
            connections,
            is_lossy,
            idle: (0..connections).collect(),
            waiting: VecDeque::new(),
            spare: Vec::new(),
            received: Vec::new(),
        }
    }

    /// A connection has delivered its answer: it takes the next message that waits.
    fn is_free(&mut self, connection: usize) {
        if self.is_lossy {
            return;
        }
        let Some(message) = self.waiting.pop_front() else {
            self.idle.push_back(connection);
            return;
        };
        // the engine counts a message that cannot be sent as unanswered
        if self.wire.send(connection, &message).is_err() {
            self.idle.push_back(connection);
        }
        self.spare.push(message);
    }
}

impl Sockets for InTurn {
    /// One: the wire's connection is chosen when a message is sent.
    fn connections(&self) -> usize {
        1
    }
}

impl DatagramTransport for InTurn {
    fn port(&self, _connection: usize) -> u16 {
        0
    }

    fn send(&mut self, _connection: usize, datagram: &[u8]) -> Result<(), NotSent> {
        let Some(connection) = self.idle.pop_front() else {
            let mut message = self.spare.pop().unwrap_or_default();
            message.clear();
            message.extend_from_slice(datagram);
            self.waiting.push_back(message);
            return Ok(());
        };
        let sent = self.wire.send(connection, datagram);
        if self.is_lossy || sent.is_err() {
            self.idle.push_back(connection);
        }
        sent.map_err(|_| NotSent::Failed)
    }

    fn receive(&mut self) -> Receipt<'_> {
        let connection = match self.wire.look() {
            Ok(WaitOutcome::Message { connection, bytes }) => {
                self.received.clear();
                self.received.extend_from_slice(bytes);
                connection
            }
            Ok(WaitOutcome::Nothing) | Err(_) => return Receipt::Nothing,
        };
        self.is_free(connection);
        Receipt::Datagram {
            connection: 0,
            bytes: &self.received,
        }
    }

    fn discard(&mut self) {
        self.spare.extend(self.waiting.drain(..));
        for _ in 0..LAST_LOOKS {
            let nothing = matches!(self.receive(), Receipt::Nothing);
            if nothing && self.idle.len() == self.connections {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::net::{Ipv4Addr, TcpListener};
    use std::rc::Rc;

    use super::*;
    use crate::Endpoint;
    use crate::rtt::peer::PeerSpec;

    /// What is under way, as connection and bytes.
    type InFlight = Rc<RefCell<VecDeque<(usize, Vec<u8>)>>>;

    /// Returns what it was sent, unless it is told to hold it.
    struct Mirror {
        under_way: InFlight,
        holds: Rc<RefCell<bool>>,
        received: Vec<u8>,
    }

    impl Wire for Mirror {
        fn send(&mut self, connection: usize, message: &[u8]) -> Result<(), RttError> {
            let message = (connection, message.to_vec());
            self.under_way.borrow_mut().push_back(message);
            Ok(())
        }

        fn receive(&mut self) -> Result<WaitOutcome<'_>, RttError> {
            if *self.holds.borrow() {
                return Ok(WaitOutcome::Nothing);
            }
            let Some((connection, bytes)) = self.under_way.borrow_mut().pop_front() else {
                return Ok(WaitOutcome::Nothing);
            };
            self.received = bytes;
            Ok(WaitOutcome::Message {
                connection,
                bytes: &self.received,
            })
        }
    }

    #[test]
    fn rdma_is_refused_although_its_server_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = Peer::at(Endpoint::Tcp(listener.local_addr().unwrap()));
        let refused = OpenClient::connect(Proto::RdmaSend, 64, 1, &peer);
        let text = refused.err().unwrap().to_string();
        assert!(text.contains("no open loop"), "{text}");
    }

    #[test]
    fn messages_in_shared_memory_may_be_larger_than_a_packet() {
        let size = 4096;
        let spec = PeerSpec {
            proto: Proto::Shm,
            mode: Mode::Nonblocking,
            size,
            conns: 1,
            threads: 1,
            address: Ipv4Addr::LOCALHOST.into(),
            port: 0,
            path: "unused".into(),
            xdp: None,
        };
        let peer = Peer::start(&spec, |_| Ok(())).unwrap();
        let connected = OpenClient::connect(Proto::Shm, size, 1, &peer);
        assert!(connected.is_ok(), "{:?}", connected.err());
    }

    #[test]
    fn a_message_takes_an_idle_connection_or_waits_for_one() {
        let under_way = InFlight::default();
        let holds = Rc::new(RefCell::new(true));
        let mirror = Mirror {
            under_way: Rc::clone(&under_way),
            holds: Rc::clone(&holds),
            received: Vec::new(),
        };
        let mut all = InTurn::new(Box::new(mirror), 2, false);
        for message in [b"a", b"b", b"c", b"d"] {
            all.send(0, message).unwrap();
        }
        let sent = |at: usize| under_way.borrow()[at].clone();
        assert_eq!(under_way.borrow().len(), 2);
        assert_eq!([sent(0), sent(1)], [(0, b"a".to_vec()), (1, b"b".to_vec())]);
        assert_eq!(all.receive(), Receipt::Nothing);
        *holds.borrow_mut() = false;
        // each answer frees its connection for the next message
        for (message, next) in [
            (b"a", Some((0, b"c"))),
            (b"b", Some((1, b"d"))),
            (b"c", None),
        ] {
            let bytes: &[u8] = message;
            assert_eq!(
                all.receive(),
                Receipt::Datagram {
                    connection: 0,
                    bytes
                }
            );
            let last = under_way.borrow().back().cloned();
            if let Some((connection, bytes)) = next {
                assert_eq!(last, Some((connection, bytes.to_vec())));
            }
        }
        all.discard();
        assert_eq!((all.idle.len(), under_way.borrow().len()), (2, 0));
    }

    #[test]
    fn where_messages_get_lost_none_waits_for_an_answer() {
        let under_way = InFlight::default();
        let mirror = Mirror {
            under_way: Rc::clone(&under_way),
            holds: Rc::new(RefCell::new(true)),
            received: Vec::new(),
        };
        let mut all = InTurn::new(Box::new(mirror), 1, true);
        for _ in 0..3 {
            all.send(0, b"x").unwrap();
        }
        assert_eq!(under_way.borrow().len(), 3);
    }
}
