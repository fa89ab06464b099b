//! Recorded streams of events (`golden/*.tlc`), each with what the matcher makes of it (`*.txt` in
//! the same folder).
//!
//! A change here is either a defect or an improvement that a person has looked at. A test that
//! fails leaves the new files in a directory of the build and names the command that accepts
//! them; a new capture gets its text the same way.

use crate::common;
use crate::ledger::crew::Crew;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::PathBuf;

use common::server::Server;
use taillab_analysis::matcher::InOrder;
use taillab_analysis::statistics::distribution_of;
use taillab_analysis::{MatchOptions, Matcher, Requests, match_events};
use taillab_model::{Event, Monotonic, Nanos, Recording, Stage, Tid};

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden"))
}

/// Leaves a file to be looked at, and says how to accept it.
fn propose(name: &str, contents: &[u8]) -> String {
    let new = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&new, contents).unwrap();
    let old = folder().join(name);
    format!("to accept it: cp {} {}", new.display(), old.display())
}

/// Two threads on two CPUs, blind windows, and so few ids that some are in use twice.
fn simulated() -> Recording {
    let server = Server {
        seed: 4,
        requests: 600,
        threads: 2,
        load: 0.7,
        ids: 8,
        ports: 2,
        preemption: 0.02,
        ..Server::default()
    };
    let mut traffic = server.run();
    traffic.hide_behind_init(4, 0.1);
    let base = traffic.events.iter().map(|event| event.at).min();
    let mut recording = Recording {
        base: base.unwrap(),
        ..Recording::default()
    };
    recording.insert(traffic.events);
    recording
}

/// Four workers that take from one socket. Another thread takes the CPU of one of them.
fn shared_queue() -> Recording {
    let crew = Crew::of_golden();
    let events = crew.run().events;
    let mut recording = Recording {
        base: events[0].at,
        context: crew.context(),
        ..Recording::default()
    };
    recording.insert(events);
    recording
}

/// The requests, taken bit by bit while the events come.
fn taken(events: &[Event], options: &MatchOptions) -> Requests {
    let mut matcher = Matcher::new(*options);
    let mut requests = Requests::default();
    for event in InOrder::new(events.iter().copied(), options.disorder) {
        matcher.observe(&event);
        if let Some(upto) = matcher.settled() {
            requests.extend(matcher.take_settled(upto).requests.iter());
        }
    }
    requests.extend(matcher.finish().requests.iter());
    requests
}

/// Everything that the matcher decides, short enough to read and to compare.
fn describe(recording: Recording) -> String {
    let mut text = String::new();
    let lost = recording.lost.total();
    let framing = recording.context.framing.as_deref();
    let options = MatchOptions {
        sequential: true,
        framing: framing
            .map(|name| name.parse().unwrap())
            .unwrap_or_default(),
        ..MatchOptions::default()
    };
    let events: Vec<Event> = recording.into_events().collect();
    let found = match_events(events.iter().copied(), &options);
    assert_eq!(taken(&events, &options), found.requests);
    let start = Monotonic::from_nanos_since_boot(0);
    let counts = found.counts(start);
    writeln!(
        text,
        "events {} lost {lost} late {}",
        found.events, found.late_events
    )
    .unwrap();
    writeln!(text, "{counts:#?}").unwrap();
    // FNV-1a over every stamp of every request: any change shows
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for request in found.requests.iter() {
        let s = request.server;
        let [t2, t3, t4, t5] = s.middle();
        for stamp in [Some(s.t1), t2, t3, t4, t5, Some(s.t6)] {
            let ns = stamp.map_or(u64::MAX, Monotonic::nanos_since_boot);
            for byte in ns.to_le_bytes() {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
            }
        }
    }
    writeln!(text, "stamps {hash:016x}").unwrap();
    let mut workers: BTreeMap<Tid, usize> = BTreeMap::new();
    for &worker in &found.workers {
        *workers.entry(worker).or_default() += 1;
    }
    let unknown = workers.remove(&0).unwrap_or(0);
    let most = workers.values().max();
    writeln!(
        text,
        "workers {}, the busiest served {most:?}, of {unknown} unknown",
        workers.len()
    )
    .unwrap();
    let requests = &found.requests;
    let sojourns: Vec<Nanos> = (0..requests.len()).map(|i| requests.sojourn(i)).collect();
    let sojourn = distribution_of(&sojourns);
    writeln!(text, "sojourn {:?} to {:?}", sojourn.min, sojourn.max).unwrap();
    for quantile in sojourn.quantiles.iter().filter(|q| q.value.is_some()) {
        writeln!(text, "  {quantile:?}").unwrap();
    }
    for stage in Stage::ALL {
        let complete = found.requests.iter().filter_map(|r| r.server.stages());
        let total: u64 = complete.map(|stages| stages[stage as usize].get()).sum();
        writeln!(text, "{}: {total} ns in all", stage.label()).unwrap();
    }
    text
}

#[test]
fn the_simulated_captures_are_what_the_simulators_make() {
    let made = [
        ("simulated.tlc", simulated()),
        ("simulated_shared_queue.tlc", shared_queue()),
    ];
    for (name, found) in made {
        let stored = File::open(folder().join(name));
        let stored = stored.map(|file| Recording::read(file).unwrap());
        if !stored.is_ok_and(|stored| found.events().eq(stored.events())) {
            let mut file = Vec::new();
            found.write(&mut file).unwrap();
            panic!("other events; {}", propose(name, &file));
        }
    }
}

#[test]
fn recorded_streams_give_what_they_gave_before() {
    let mut captures = 0;
    let mut changed = Vec::new();
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "tlc") {
            continue;
        }
        captures += 1;
        let found = describe(Recording::read(File::open(&path).unwrap()).unwrap());
        let golden = path.with_extension("txt");
        let expected = fs::read_to_string(&golden).unwrap_or_default();
        if found != expected {
            let name = golden.file_name().unwrap().to_str().unwrap();
            let accept = propose(name, found.as_bytes());
            changed.push(format!("{name}:\n{expected}is now:\n{found}{accept}"));
        }
    }
    assert!(captures > 0, "no capture in {}", folder().display());
    assert!(changed.is_empty(), "{}", changed.join("\n\n"));
}
