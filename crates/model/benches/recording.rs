//! Speed of writing and reading recordings, on events of a real server.
//!
//! `cargo bench -p taillab-model` also prints how many bytes an event takes in a file.
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]
#![allow(missing_docs, reason = "criterion writes its main function")]

use std::fs::File;
use std::hint::black_box;
use std::io;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use taillab_model::{
    CpuStream, EventSink, LostEvents, Nanos, PackedEvent, Recording, RecordingReader,
    RecordingWriter,
};

const EVENTS: u64 = 2_000_000;

/// The recording in this file, repeated until it is long enough.
fn repeated(path: &str) -> Recording {
    let short = Recording::read(File::open(path).unwrap()).unwrap();
    let first = |stream: &CpuStream| Some(stream.events().first()?.since_base());
    let last = |stream: &CpuStream| Some(stream.events().last()?.since_base());
    let from = short.streams.iter().filter_map(first).min().unwrap();
    let length = short.streams.iter().filter_map(last).max().unwrap() + Nanos::new(1_000) - from;
    let times = EVENTS.div_ceil(short.len());
    let streams = short.streams.iter().map(|stream| {
        let events = (0..times).flat_map(|i| {
            stream.events().iter().map(move |event| {
                PackedEvent::new(event.since_base() - from + length * i, event.kind())
            })
        });
        CpuStream::new(stream.cpu(), events.collect())
    });
    Recording {
        streams: streams.collect(),
        ..Recording::default()
    }
}

fn recordings(c: &mut Criterion) {
    let path = std::env::var("TAILLAB_RECORDING").unwrap_or_else(|_| {
        let golden = "/../analysis/tests/golden/memcached_90_percent.tlc";
        format!("{}{golden}", env!("CARGO_MANIFEST_DIR"))
    });
    let recording = repeated(&path);
    let mut file = Vec::new();
    recording.write(&mut file).unwrap();
    println!(
        "{} events on {} CPUs, {:.2} bytes each in a file",
        recording.len(),
        recording.streams.len(),
        file.len() as f64 / recording.len() as f64
    );
    let mut group = c.benchmark_group("recording");
    group.sample_size(10);
    group.throughput(Throughput::Elements(recording.len()));
    group.bench_function("write", |b| {
        b.iter(|| {
            let base = recording.base;
            let mut writer = RecordingWriter::new(io::sink(), base, &recording.context).unwrap();
            for stream in &recording.streams {
                for part in stream.events().chunks(512) {
                    writer.take(stream.cpu(), part).unwrap();
                }
            }
            writer
                .finish(&recording.context, LostEvents::default())
                .unwrap();
        });
    });
    group.bench_function("read in order of time", |b| {
        b.iter(|| {
            let reader = RecordingReader::open(file.as_slice()).unwrap();
            reader.fold(0, |sum, event| sum ^ black_box(event).at.nanos_since_boot())
        });
    });
    group.bench_function("read into memory", |b| {
        b.iter(|| Recording::read(black_box(file.as_slice())).unwrap().len());
    });
    group.bench_function("memory in order of time", |b| {
        b.iter(|| {
            let events = recording.events();
            events.fold(0, |sum, event| sum ^ black_box(event).at.nanos_since_boot())
        });
    });
    group.finish();
}

criterion_group!(benches, recordings);
criterion_main!(benches);
