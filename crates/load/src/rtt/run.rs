//! One run: all connections at once, on the client's threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use taillab_model::Nanos;

use super::engine::{ConnectionEnd, Play, RoundTrips, ThreadTask};
use super::error::RttError;
use super::kinds::{Mode, Proto};
use super::peer::Peer;
use super::rdma::{Verb, Verbs};
use super::shm::Memory;
use super::socket::Sockets;
use super::uring::Ring;
use super::xdp::Xdp;
use crate::clock::{now, thread_cpu_time};
use crate::transport::descriptors::make_room;

/// The parameters of one run.
#[derive(Debug)]
pub struct RunSpec<'a> {
    /// What carries the messages.
    pub proto: Proto,
    /// How the client waits.
    pub mode: Mode,
    /// Bytes of a message.
    pub size: usize,
    /// Connections at once.
    pub conns: usize,
    /// Round trips of all connections together, without the warm-up.
    pub count: u64,
    /// Round trips on each connection before those, not recorded.
    pub warm_up: u64,
    /// A message unanswered for this long is lost.
    pub timeout: Nanos,
    /// The most threads, where one thread can wait for several connections.
    pub threads: usize,
    /// Ends the run early when it becomes true.
    pub stop: &'a AtomicBool,
    /// Round trips done so far, including the warm-up, for a progress display.
    pub progress: &'a AtomicU64,
}

/// Makes one run on new connections. Each thread of the client, counted from 0, runs `prepare`
/// first, for example to bind itself to a CPU.
///
/// # Errors
/// When a connection cannot be made: then nothing has been measured. Later failures are in
/// [`RoundTrips::failure`].
pub fn round_trips(
    spec: &RunSpec<'_>,
    peer: &Peer,
    prepare: impl Fn(usize) -> Result<(), String> + Sync,
) -> Result<RoundTrips, RttError> {
    spec.proto.check(spec.mode, spec.size)?;
    // both ends of a connection may be files of this process
    if peer.endpoint(0).is_some() && make_room(2 * spec.conns).is_err() {
        make_room(spec.conns)?;
    }
    let groups = groups(spec);
    let barrier = Barrier::new(groups.len());
    let unready = AtomicBool::new(false);
    let results: Vec<Result<RoundTrips, RttError>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (groups.iter().enumerate())
            .map(|(thread, group)| {
                let (barrier, unready, prepare) = (&barrier, &unready, &prepare);
                scope.spawn(move || {
                    let ready = || {
                        prepare(thread).map_err(RttError::Thread)?;
                        connect(spec, peer, group.clone())
                    };
                    // a panic too must reach the barrier, where the others wait
                    let ready = catch_unwind(AssertUnwindSafe(ready));
                    let ready = ready.unwrap_or_else(|_| Err(panicked()));
                    if ready.is_err() {
                        unready.store(true, Relaxed);
                    }
                    barrier.wait();
                    let mut wire = ready?;
                    if unready.load(Relaxed) {
                        return Ok(RoundTrips::default());
                    }
                    let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
                    let end = |port| ConnectionEnd {
                        port,
                        thread: own,
                        client: thread,
                    };
                    let ends = wire.ports().into_iter().map(end).collect();
                    let before = thread_cpu_time();
                    let played = wire.play(&task(spec, peer, group.clone()));
                    Ok(RoundTrips {
                        cpu: thread_cpu_time().saturating_sub(before),
                        ends,
                        functional_only: wire.functional_only(),
                        xdp_attachment: wire.xdp_attachment(),
                        ..played
                    })
                })
            })
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err(panicked()))
        };
        threads.into_iter().map(join).collect()
    });
    let mut all = RoundTrips::default();
    for result in results {
        add(&mut all, result?);
    }
    if spec.conns > 1 {
        all.round_trips.sort_unstable_by_key(|trip| trip.sent);
    }
    let first = all.round_trips.first().map_or_else(now, |trip| trip.sent);
    let ends = all.round_trips.iter().map(|trip| trip.sent + trip.rtt);
    all.length = ends
        .max()
        .map_or(Nanos::ZERO, |end| end.saturating_since(first));
    Ok(all)
}

/// Adds the result of one thread.
fn add(all: &mut RoundTrips, thread: RoundTrips) {
    all.cpu += thread.cpu;
    all.ends.extend(thread.ends);
    all.functional_only = all.functional_only.or(thread.functional_only);
    all.xdp_attachment = all.xdp_attachment.max(thread.xdp_attachment);
    all.counts += thread.counts;
    if all.round_trips.is_empty() {
        all.round_trips = thread.round_trips;
    } else {
        all.round_trips.extend(thread.round_trips);
    }
    all.failure = all.failure.take().or(thread.failure);
}

fn panicked() -> RttError {
    RttError::Thread("it panicked, see above".to_owned())
}

/// The connections of each thread.
fn groups(spec: &RunSpec<'_>) -> Vec<std::ops::Range<usize>> {
    let conns = spec.conns.max(1);
    let threads = match spec.mode.is_shared() {
        // a device has one socket
        _ if spec.proto == Proto::Xdp => 1,
        true => spec.threads.clamp(1, conns),
        false => conns,
    };
    let begin = |thread: usize| thread * conns / threads;
    (0..threads).map(|t| begin(t)..begin(t + 1)).collect()
}

fn connect(
    spec: &RunSpec<'_>,
    peer: &Peer,
    group: std::ops::Range<usize>,
) -> Result<Box<dyn Play>, RttError> {
    if let Some(pairs) = peer.pairs() {
        return Ok(Box::new(Memory::new(pairs[group].to_vec())));
    }
    if let Some(server) = peer.xdp_server() {
        return Ok(Box::new(Xdp::open(server, spec.mode, group.len())?));
    }
    let endpoints: Vec<_> = group.filter_map(|c| peer.endpoint(c)).collect();
    if let Some(verb) = Verb::of(spec.proto) {
        let verbs = Verbs::connect(&endpoints, verb, spec.mode, spec.size, spec.timeout);
        return Ok(Box::new(verbs?));
    }
    match spec.proto {
        Proto::Tcp | Proto::Udp | Proto::Unix => {}
        proto => {
            return Err(RttError::Unavailable {
                proto,
                why: "it needs a server that taillab starts itself: remove --target".to_owned(),
            });
        }
    }
    Ok(match spec.mode {
        Mode::IoUring => Box::new(Ring::connect(&endpoints, spec.size, spec.timeout)?),
        mode => Box::new(Sockets::connect(&endpoints, mode, spec.size, spec.timeout)?),
    })
}

fn task<'a>(spec: &RunSpec<'a>, peer: &'a Peer, group: std::ops::Range<usize>) -> ThreadTask<'a> {
    let conns = spec.conns.max(1) as u64;
    let share = |c: usize| {
        let c = c as u64;
        (c + 1) * spec.count / conns - c * spec.count / conns
    };
    ThreadTask {
        first_connection: group.start as u16,
        counts: group.map(share).collect(),
        warm_up: spec.warm_up,
        size: spec.size,
        timeout: spec.timeout,
        is_datagram: spec.proto.is_datagram(),
        server: peer.name(),
        stop: spec.stop,
        progress: spec.progress,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::Endpoint;

    #[test]
    fn a_panic_in_one_thread_ends_the_others_too() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = Peer::at(Endpoint::Tcp(listener.local_addr().unwrap()));
        let spec = RunSpec {
            proto: Proto::Tcp,
            mode: Mode::Blocking,
            size: 64,
            conns: 2,
            count: 2,
            warm_up: 0,
            timeout: Nanos::from_secs(1),
            threads: 2,
            stop: &AtomicBool::new(false),
            progress: &AtomicU64::new(0),
        };
        let prepare = |thread: usize| match thread {
            0 => Ok(()),
            _ => panic!("as the test wants"),
        };
        let error = round_trips(&spec, &peer, prepare).unwrap_err();
        assert!(error.to_string().contains("it panicked"), "{error}");
    }
}
