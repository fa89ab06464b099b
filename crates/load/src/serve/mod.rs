//! Built-in echo servers, in the architectures that the literature compares.
//!
//! A request has `request_bytes` bytes and its response `response_bytes`. The response begins with
//! the request's first bytes, so the client gets back what it wrote there (a tag, the id of a
//! datagram). On a stream, requests follow one another with nothing between them. A datagram of
//! another length is not a request and gets no response.
//!
//! | [`Architecture`] | which thread serves what | queues |
//! |---|---|---|
//! | [`NullRpc`](Architecture::NullRpc) | a thread for each connection | the scheduler's run queue |
//! | [`EpollShared`](Architecture::EpollShared) | any worker any connection | one |
//! | [`EpollPerWorker`](Architecture::EpollPerWorker) | a worker its own connections | one for each worker |
//! | [`UdpShared`](Architecture::UdpShared) | any worker any datagram | one, FIFO |
//! | [`UdpReuseport`](Architecture::UdpReuseport) | a worker the datagrams of its flows | one for each worker |
//!
//! A caller can have a function run before each request ([`BeforeRequest`]), as
//! `taillab serve --fault` does.
//!
//! [`Responder`] is such a server inside the process. For each request, a worker does what its
//! architecture needs and nothing else. Workers share no counters for answered requests, and only one
//! worker at a time uses a connection.

mod accept;
mod architecture;
mod connection;
mod datagram;
mod epoll;
mod error;
mod listen;
mod null_rpc;
mod responder;
mod service;
mod spec;
mod stop;
mod tally;

pub use architecture::{Architecture, UnknownArchitecture};
pub use error::ServeError;
pub use listen::{BadListen, Listen};
pub use responder::Responder;
pub use service::{BadServiceTime, BeforeRequest, ServiceTime};
pub use spec::Spec;
pub use tally::Served;
