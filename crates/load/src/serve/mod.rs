//! Built-in servers: the architectures that the papers argue about, answering an echo.
//!
//! A request is `request_bytes` long and its answer `response_bytes`; the answer begins
//! with the request's first bytes, so that whatever the client put there (a tag, the id
//! of a datagram) comes back to it. On a stream, requests follow one another without
//! anything between; a datagram of another length is no request and gets no answer.
//!
//! | [`Architecture`] | who serves what | queue |
//! |---|---|---|
//! | [`NullRpc`](Architecture::NullRpc) | a thread for each connection | the scheduler's run queue |
//! | [`EpollShared`](Architecture::EpollShared) | any worker any connection | one |
//! | [`EpollPerWorker`](Architecture::EpollPerWorker) | a worker its own connections | one for each worker |
//! | [`UdpShared`](Architecture::UdpShared) | any worker any datagram | one, FIFO |
//! | [`UdpReuseport`](Architecture::UdpReuseport) | a worker the datagrams of its flows | one for each worker |
//!
//! A caller can have something done before each request ([`BeforeRequest`]): the faults of
//! `taillab serve --fault` are such.
//!
//! [`Responder`] is such a server inside the process. A worker does per request what its
//! architecture demands and nothing else; it shares no memory with the other workers that
//! is written while requests are served.

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
