//! The built-in servers against ordinary blocking clients, on loopback.

mod clients;
mod datagrams;
mod life;
mod streams;
