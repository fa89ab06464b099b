//! What it costs to write a request and to read its answer, on one core.
//!
//! An open loop should cost its client a few microseconds per request, and only a small part of that
//! here: the aim is 100 ns each.
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]
#![allow(missing_docs, reason = "criterion writes its main function")]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use taillab_load::protocol::echo::{EchoDatagrams, EchoStream};
use taillab_load::protocol::http::Http;
use taillab_load::protocol::memcached::{Dialect, MemcachedStream, MemcachedUdp};
use taillab_load::protocol::redis::Redis;
use taillab_load::protocol::{DatagramProtocol, Decoded, Planned, StreamProtocol};
use taillab_load::{EchoWorkload, Resource, StoreWorkload};
use taillab_model::Operation;

const TAG: u32 = 7;
const KEY: u32 = 42;

/// A get of the key, where there are keys.
fn what(planned: Planned) -> Planned {
    match planned.operation() {
        Operation::Call => planned,
        _ => Planned::new(Operation::Get, KEY),
    }
}

/// Writing the request, and reading a complete answer.
fn stream(c: &mut Criterion, name: &str, mut protocol: impl StreamProtocol, answer: &[u8]) {
    let what = what(protocol.plan(1, 1)[0]);
    let found = protocol.decode(what, TAG, answer);
    assert!(
        matches!(found, Decoded::Answer { bytes, .. } if bytes == answer.len()),
        "{name}: {found:?}"
    );
    let mut group = c.benchmark_group(name);
    let mut out = Vec::with_capacity(1 << 16);
    group.bench_function("encode", |b| {
        b.iter(|| {
            out.clear();
            protocol.encode(black_box(what), black_box(TAG), &mut out);
            black_box(&out);
        });
    });
    group.bench_function("decode", |b| {
        b.iter(|| black_box(protocol.decode(black_box(what), TAG, black_box(answer))));
    });
}

/// The same for a datagram, judgement included.
fn datagrams(c: &mut Criterion, name: &str, mut protocol: impl DatagramProtocol, answer: &[u8]) {
    let what = what(protocol.plan(1, 1)[0]);
    let response = protocol.decode(answer).unwrap();
    assert!(protocol.judge(what, &response.body).is_some(), "{name}");
    let mut group = c.benchmark_group(name);
    group.bench_function("encode", |b| {
        b.iter(|| {
            black_box(protocol.encode(black_box(what), black_box(7)));
        });
    });
    group.bench_function("decode", |b| {
        b.iter(|| {
            let response = protocol.decode(black_box(answer)).unwrap();
            black_box(protocol.judge(black_box(what), &response.body))
        });
    });
}

fn binary_hit(opaque: u32, value: &str) -> Vec<u8> {
    let mut bytes = vec![0x81, 0, 0, 0, 4, 0, 0, 0];
    bytes.extend_from_slice(&(value.len() as u32 + 4).to_be_bytes());
    bytes.extend_from_slice(&opaque.to_be_bytes());
    bytes.extend_from_slice(&[0; 12]);
    bytes.extend_from_slice(value.as_bytes());
    bytes
}

fn codecs(c: &mut Criterion) {
    let value = "v".repeat(1024);
    let key = format!("{KEY:064}");
    let workload = StoreWorkload::default;
    let ascii = format!("VALUE {key} 0 1024\r\n{value}\r\nEND\r\n");
    let meta = format!("VA 1024 O{TAG:08x} k{key}\r\n{value}\r\n");
    let binary = binary_hit(TAG, &value);
    for (name, dialect, answer) in [
        ("memcached ascii", Dialect::Ascii, ascii.as_bytes()),
        ("memcached binary", Dialect::Binary, &binary),
        ("memcached meta", Dialect::Meta, meta.as_bytes()),
    ] {
        stream(
            c,
            name,
            MemcachedStream::new(dialect, workload()).unwrap(),
            answer,
        );
    }
    let udp = [b"\0\x07\0\0\0\x01\0\0", ascii.as_bytes()].concat();
    let protocol = MemcachedUdp::new(Dialect::Ascii, workload()).unwrap();
    datagrams(c, "memcached ascii over UDP", protocol, &udp);

    let redis = format!("$1024\r\n{value}\r\n");
    let protocol = Redis::new(workload()).unwrap();
    stream(c, "redis", protocol, redis.as_bytes());

    // as nginx 1.22 answers
    let http = format!(
        "HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nDate: Fri, 20 Nov 2026 23:53:19 GMT\r\n\
         Content-Type: text/html\r\nContent-Length: 612\r\n\
         Last-Modified: Fri, 20 Nov 2026 20:00:00 GMT\r\nConnection: keep-alive\r\n\
         ETag: \"65d0f0a0-264\"\r\nAccept-Ranges: bytes\r\n\r\n{}",
        "x".repeat(612)
    );
    let protocol = Http::new(&Resource {
        request_bytes: Some(85),
        ..Resource::at("10.0.0.1", "/index.html")
    });
    stream(c, "http", protocol.unwrap(), http.as_bytes());

    let sizes = EchoWorkload::default();
    let answer = [&TAG.to_be_bytes()[..], &[b'e'; 124]].concat();
    stream(c, "echo", EchoStream::new(sizes).unwrap(), &answer);
    let protocol = EchoDatagrams::new(sizes).unwrap();
    datagrams(c, "echo over UDP", protocol, &answer);
}

criterion_group!(benches, codecs);
criterion_main!(benches);
