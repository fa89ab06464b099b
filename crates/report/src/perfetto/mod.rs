//! The slowest requests as a trace that the Perfetto UI opens.
//!
//! The format is Perfetto's own, a stream of `TracePacket` messages
//! (`protos/perfetto/trace/trace_packet.proto`, `track_event.proto`,
//! `track_descriptor.proto`, `debug_annotation.proto`): tracks are described first, then
//! slices begin and end on them. Times are those of the recording, nanoseconds since boot by
//! CLOCK_MONOTONIC, which is declared to be the clock of the trace
//! (`protos/perfetto/trace/clock_snapshot.proto`): without that they would be taken for
//! CLOCK_BOOTTIME. A flow joins each request with the slice of the worker that served it.

mod proto;

use std::collections::BTreeMap;
use std::iter;

use taillab_model::explanation::{Culprit, SlowRequest};
use taillab_model::{Stage, Tid};

use self::proto::Message;
use crate::explained;

/// The numbers of the fields in Perfetto's messages.
mod field {
    pub(super) const TRACE_PACKET: u64 = 1;

    pub(super) const PACKET_CLOCK_SNAPSHOT: u64 = 6;
    pub(super) const PACKET_TIMESTAMP: u64 = 8;
    pub(super) const PACKET_SEQUENCE: u64 = 10;
    pub(super) const PACKET_TRACK_EVENT: u64 = 11;
    pub(super) const PACKET_SEQUENCE_FLAGS: u64 = 13;
    pub(super) const PACKET_DEFAULTS: u64 = 59;
    pub(super) const PACKET_TRACK_DESCRIPTOR: u64 = 60;

    pub(super) const SNAPSHOT_CLOCK: u64 = 1;
    pub(super) const SNAPSHOT_PRIMARY_CLOCK: u64 = 2;
    pub(super) const CLOCK_ID: u64 = 1;
    pub(super) const CLOCK_TIMESTAMP: u64 = 2;
    pub(super) const DEFAULTS_CLOCK: u64 = 58;

    pub(super) const TRACK_UUID: u64 = 1;
    pub(super) const TRACK_NAME: u64 = 2;
    pub(super) const TRACK_PARENT: u64 = 5;
    pub(super) const TRACK_CHILD_ORDERING: u64 = 11;
    pub(super) const TRACK_RANK: u64 = 12;

    pub(super) const EVENT_ANNOTATION: u64 = 4;
    pub(super) const EVENT_TYPE: u64 = 9;
    pub(super) const EVENT_TRACK: u64 = 11;
    pub(super) const EVENT_CATEGORY: u64 = 22;
    pub(super) const EVENT_NAME: u64 = 23;
    pub(super) const EVENT_FLOW: u64 = 47;

    pub(super) const ANNOTATION_NUMBER: u64 = 3;
    pub(super) const ANNOTATION_TEXT: u64 = 6;
    pub(super) const ANNOTATION_NAME: u64 = 10;
}

/// `TrackEvent.Type`.
const SLICE_BEGIN: u64 = 1;
const SLICE_END: u64 = 2;
/// `TrackDescriptor.ChildTracksOrdering.EXPLICIT`.
const BY_RANK: u64 = 3;
/// `TracePacket.SequenceFlags.SEQ_INCREMENTAL_STATE_CLEARED`, set on the first packet.
const FIRST: u64 = 1;
/// `BuiltinClock.BUILTIN_CLOCK_MONOTONIC`.
const MONOTONIC: u64 = 3;
/// The id of the only sequence, since there is one writer.
const SEQUENCE: u64 = 1;

/// The trace: one track for each CPU, one for each worker, and for each request one with its
/// stages and one with the causes.
pub fn trace(target: &str, requests: &[SlowRequest]) -> Vec<u8> {
    let mut trace = Trace::default();
    let root = trace.track(None, &format!("taillab: {target}"));
    let cpus = trace.track(Some(root), "CPUs during the slowest requests");
    for (cpu, slices) in cpu_slices(requests) {
        let track = trace.track(Some(cpus), &format!("CPU {cpu}"));
        trace.slices(track, "cpu", slices);
    }
    let workers = trace.track(Some(root), "Workers");
    for ((_, name), slices) in worker_slices(requests) {
        let track = trace.track(Some(workers), &name);
        trace.slices(track, "worker", slices);
    }
    let slowest = trace.track(Some(root), "Slowest requests");
    for (i, request) in requests.iter().enumerate() {
        trace.request(slowest, i + 1, request);
    }
    trace.finish()
}

/// A stretch of time with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Slice {
    from_ns: u64,
    to_ns: u64,
    name: String,
    /// The request that it belongs to, counted from 1.
    flow: Option<u64>,
}

/// A trace under construction; each event comes with the instant by which it is ordered.
#[derive(Default)]
struct Trace {
    descriptors: Vec<Message>,
    events: Vec<(u64, Message)>,
    tracks: u64,
}

impl Trace {
    /// A new track under its parent, after the existing ones.
    fn track(&mut self, parent: Option<u64>, name: &str) -> u64 {
        self.tracks += 1;
        // a uuid can be any number except 0, which is the default track
        let uuid = self.tracks;
        let mut descriptor = Message::default()
            .number(field::TRACK_UUID, uuid)
            .text(field::TRACK_NAME, name);
        if let Some(parent) = parent {
            descriptor = descriptor.number(field::TRACK_PARENT, parent);
        }
        self.descriptors.push(
            descriptor
                .number(field::TRACK_CHILD_ORDERING, BY_RANK)
                .number(field::TRACK_RANK, uuid),
        );
        uuid
    }

    /// Begins a slice; `event` holds its further fields.
    fn begin(&mut self, track: u64, at_ns: u64, category: &str, name: &str, event: Message) {
        let event = event
            .number(field::EVENT_TYPE, SLICE_BEGIN)
            .number(field::EVENT_TRACK, track)
            .text(field::EVENT_CATEGORY, category)
            .text(field::EVENT_NAME, name);
        self.events.push((at_ns, event));
    }

    fn end(&mut self, track: u64, at_ns: u64) {
        let event = Message::default()
            .number(field::EVENT_TYPE, SLICE_END)
            .number(field::EVENT_TRACK, track);
        self.events.push((at_ns, event));
    }

    /// The slices, set [`apart`].
    fn slices(&mut self, track: u64, category: &str, slices: Vec<Slice>) {
        for slice in apart(slices) {
            let flow = |flow| Message::default().fixed(field::EVENT_FLOW, flow);
            let event = slice.flow.map_or_else(Message::default, flow);
            self.begin(track, slice.from_ns, category, &slice.name, event);
            self.end(track, slice.to_ns);
        }
    }

    fn request(&mut self, parent: u64, place: usize, request: &SlowRequest) {
        let t1 = request.t1.nanos_since_boot();
        let t6 = t1.saturating_add(request.sojourn_ns.get());
        let name = format!("#{place}: {}", request.sojourn_ns);
        let track = self.track(Some(parent), &name);
        let mut event = Message::default()
            .fixed(field::EVENT_FLOW, place as u64)
            .message(
                field::EVENT_ANNOTATION,
                &number_note("port", u64::from(request.port)),
            );
        let ideal = request.ideal_ns.map(|ideal| ("ideal_ns", ideal));
        for (name, length) in [("sojourn_ns", request.sojourn_ns)]
            .into_iter()
            .chain(ideal)
        {
            event = event.message(field::EVENT_ANNOTATION, &number_note(name, length.get()));
        }
        if let Some(worker) = &request.worker {
            let note = text_note("worker", &worker.to_string());
            event = event.message(field::EVENT_ANNOTATION, &note);
        }
        self.begin(track, t1, "request", &name, event);
        // a stage lies between two known stamps; a missing stamp joins the two stages around it
        let mut from = (1, t1);
        for (i, stamp) in request.stamps_ns.iter().enumerate() {
            let Some(at) = stamp.map(|at| t1.saturating_add(at.get()).clamp(from.1, t6)) else {
                continue;
            };
            let number = i + 2;
            let stage = (number == from.0 + 1).then(|| Stage::ALL[i].label());
            let name = format!(
                "T{}–T{number} {}",
                from.0,
                stage.unwrap_or("several stages")
            );
            self.begin(track, from.1, "stage", &name, Message::default());
            self.end(track, at);
            from = (number, at);
        }
        self.end(track, t6);

        let why = self.track(Some(track), "why");
        let mut free_from = t1;
        for stretch in &request.stretches {
            let from = t1.saturating_add(stretch.from_ns.get()).max(free_from);
            let until_ns = (stretch.from_ns + stretch.lasted_ns).get();
            let to = t1.saturating_add(until_ns).max(from);
            let name = explained::stretch_reason(request, stretch);
            let inherited = if stretch.inherited { "yes" } else { "no" };
            let notes = [("cause", stretch.cause.key()), ("inherited", inherited)];
            let event = (notes.into_iter()).fold(Message::default(), |event, (name, text)| {
                event.message(field::EVENT_ANNOTATION, &text_note(name, text))
            });
            self.begin(why, from, "cause", &name, event);
            self.end(why, to);
            free_from = to;
        }
    }

    fn finish(mut self) -> Vec<u8> {
        // a stable sort keeps what happens at one instant in the order of nesting
        self.events.sort_by_key(|(at, _)| *at);
        let began = self.events.first().map_or(0, |(at, _)| *at);
        let described = self.descriptors.into_iter().map(|descriptor| {
            Message::default().message(field::PACKET_TRACK_DESCRIPTOR, &descriptor)
        });
        let happened = self.events.into_iter().map(|(at, event)| {
            Message::default()
                .number(field::PACKET_TIMESTAMP, at)
                .message(field::PACKET_TRACK_EVENT, &event)
        });
        let mut trace = Message::default();
        for packet in iter::once(clock(began)).chain(described).chain(happened) {
            let packet = packet.number(field::PACKET_SEQUENCE, SEQUENCE);
            trace = trace.message(field::TRACE_PACKET, &packet);
        }
        trace.finish()
    }
}

/// The first packet: the clock of all times in the trace.
fn clock(at_ns: u64) -> Message {
    let reading = Message::default()
        .number(field::CLOCK_ID, MONOTONIC)
        .number(field::CLOCK_TIMESTAMP, at_ns);
    let snapshot = Message::default()
        .message(field::SNAPSHOT_CLOCK, &reading)
        .number(field::SNAPSHOT_PRIMARY_CLOCK, MONOTONIC);
    let defaults = Message::default().number(field::DEFAULTS_CLOCK, MONOTONIC);
    Message::default()
        .number(field::PACKET_SEQUENCE_FLAGS, FIRST)
        .message(field::PACKET_DEFAULTS, &defaults)
        .message(field::PACKET_CLOCK_SNAPSHOT, &snapshot)
}

fn number_note(name: &str, value: u64) -> Message {
    Message::default()
        .text(field::ANNOTATION_NAME, name)
        .number(field::ANNOTATION_NUMBER, value)
}

fn text_note(name: &str, value: &str) -> Message {
    Message::default()
        .text(field::ANNOTATION_NAME, name)
        .text(field::ANNOTATION_TEXT, value)
}

/// What each CPU did during any of the requests. [`apart`] joins an activity that two requests
/// contain into one slice.
fn cpu_slices(requests: &[SlowRequest]) -> BTreeMap<u16, Vec<Slice>> {
    let mut cpus: BTreeMap<u16, Vec<Slice>> = BTreeMap::new();
    for request in requests {
        let t1 = request.t1.nanos_since_boot();
        for activity in &request.activities {
            let from_ns = t1.saturating_add(activity.from_ns.get());
            let who = activity.who.as_ref();
            cpus.entry(activity.cpu).or_default().push(Slice {
                from_ns,
                to_ns: from_ns.saturating_add(activity.lasted_ns.get()),
                name: who.map_or_else(|| "idle".to_owned(), Culprit::to_string),
                flow: None,
            });
        }
    }
    cpus
}

/// The requests of each worker, each from T3 to T6; in order of the workers' thread ids.
fn worker_slices(requests: &[SlowRequest]) -> BTreeMap<(Option<Tid>, String), Vec<Slice>> {
    let mut workers: BTreeMap<_, Vec<Slice>> = BTreeMap::new();
    for (i, request) in requests.iter().enumerate() {
        let (Some(worker), Some(t3)) = (&request.worker, request.stamps_ns[1]) else {
            continue;
        };
        let t1 = request.t1.nanos_since_boot();
        let key = (explained::tid_of(worker), worker.to_string());
        workers.entry(key).or_default().push(Slice {
            from_ns: t1.saturating_add(t3.get()),
            to_ns: t1.saturating_add(request.sojourn_ns.get()),
            name: format!("#{}: T3–T6", i + 1),
            flow: Some(i as u64 + 1),
        });
    }
    workers
}

/// Slices in order of time without overlaps: pieces of one slice are joined, and a slice that
/// overlaps an earlier one begins where that ends.
fn apart(mut slices: Vec<Slice>) -> Vec<Slice> {
    slices.sort_by_key(|slice| (slice.from_ns, slice.to_ns));
    let mut kept: Vec<Slice> = Vec::with_capacity(slices.len());
    for mut slice in slices {
        if let Some(last) = kept.last_mut() {
            if slice.from_ns < last.to_ns && slice.name == last.name {
                last.to_ns = last.to_ns.max(slice.to_ns);
                continue;
            }
            slice.from_ns = slice.from_ns.max(last.to_ns);
        }
        if slice.to_ns > slice.from_ns {
            kept.push(slice);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(from_ns: u64, to_ns: u64, name: &str) -> Slice {
        Slice {
            from_ns,
            to_ns,
            name: name.to_owned(),
            flow: None,
        }
    }

    #[test]
    fn slices_are_set_apart() {
        let given = vec![
            slice(50, 80, "b"),
            slice(0, 60, "a"),
            slice(10, 55, "a"),
            slice(80, 90, "b"),
            slice(85, 88, "c"),
        ];
        assert_eq!(
            apart(given),
            [slice(0, 60, "a"), slice(60, 80, "b"), slice(80, 90, "b")]
        );
    }
}
