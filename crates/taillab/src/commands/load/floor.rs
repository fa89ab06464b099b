//! The client's own floor: the same schedule against a server that does nothing.

use taillab_analysis::load::LoadCurves;
use taillab_host::{CpuSet, Interrupt, cpus};
use taillab_load::Endpoint;
use taillab_load::serve::{Architecture, Listen, Responder, Spec};
use taillab_model::Nanos;
use taillab_model::load_result::Floor;

use super::plan::Plan;
use super::say::Say;
use super::schedule::Schedule;
use super::session::{Sending, Session};
use crate::exit::{Exit, Failure, OrExit};

/// Its warm-up: there is little to warm up.
const WARM_UP: Nanos = Nanos::from_millis(200);

/// The floor, or why there is none.
pub enum Outcome {
    Measured(Box<Floor>, LoadCurves),
    Absent(String),
}

impl Outcome {
    /// As results have it: exactly one of the two is there.
    pub fn into_result(self) -> (Option<Floor>, Option<String>, Option<LoadCurves>) {
        match self {
            Self::Measured(floor, curves) => (Some(*floor), None, Some(curves)),
            Self::Absent(why) => (None, Some(why), None),
        }
    }
}

/// What the floor repeats.
pub struct Repeated<'a> {
    /// The load's schedule.
    pub schedule: Schedule,
    pub process: &'a str,
    pub poisson: bool,
    pub seed: u64,
}

/// Sends the beginning of the schedule to a built-in responder on another CPU. What goes
/// wrong with it spoils no result: it is then absent.
pub fn measure(
    plan: &Plan,
    server: &Endpoint,
    repeated: Repeated<'_>,
    interrupt: &Interrupt,
    say: Say,
) -> Outcome {
    let Some(length) = plan.floor else {
        return Outcome::Absent("switched off with --floor off".to_owned());
    };
    if interrupt.is_raised() {
        return Outcome::Absent("interrupted before it was measured".to_owned());
    }
    let Some(&cpu) = plan.client.placing.rest.first() else {
        return Outcome::Absent(
            "the client's threads leave no CPU to a responder; with fewer threads (-t) or more CPUs \
             there is one"
                .to_owned(),
        );
    };
    say.step("measuring the client's own floor");
    match against_responder(plan, server, repeated, interrupt, say, length, cpu) {
        Ok(outcome) => outcome,
        Err(failure) => Outcome::Absent(format!("it could not be measured: {failure}")),
    }
}

fn against_responder(
    plan: &Plan,
    server: &Endpoint,
    repeated: Repeated<'_>,
    interrupt: &Interrupt,
    say: Say,
    length: Nanos,
    cpu: u32,
) -> Result<Outcome, Failure> {
    let (echo, sizes) = plan.requests.imitated()?;
    let place = tempfile_folder(server)?;
    let architecture = match plan.requests.are_datagrams() {
        true => Architecture::UdpShared,
        false => Architecture::EpollPerWorker,
    };
    let spec = Spec {
        listen: listen(server, place.as_ref())?,
        sizes,
        busy: true,
        ..Spec::new(architecture)
    };
    let pin = move |_| cpus::pin_current_thread(&CpuSet::single(cpu));
    let responder = Responder::start_with(&spec, pin).or_exit(Exit::Failed)?;
    let endpoint = match (responder.address(), responder.socket_address()) {
        (_, Some(address)) if plan.requests.are_datagrams() => Endpoint::Udp(address),
        (_, Some(address)) => Endpoint::Tcp(address),
        (Listen::Unix(path), None) => Endpoint::Unix(path.clone()),
        (Listen::Inet(address), None) => Endpoint::Tcp(*address),
    };
    let mut session = Session::connect(endpoint, &echo, &plan.client, interrupt, say)?;
    let sending = Sending {
        schedule: beginning(repeated.schedule, length),
        process: repeated.process,
        poisson: repeated.poisson,
        utilization: None,
        seed: repeated.seed,
    };
    let measured = session.open_loop("client's floor", sending)?;
    drop(session);
    responder.stop();
    if measured.is_partial() {
        return Ok(Outcome::Absent(
            "interrupted while it was measured".to_owned(),
        ));
    }
    let floor = Floor {
        responder: format!(
            "built-in null responder over {}, {} bytes in and {} bytes out, on CPU {cpu}",
            match server {
                Endpoint::Udp(_) => "UDP on loopback",
                Endpoint::Tcp(_) => "TCP on loopback",
                Endpoint::Unix(_) => "a Unix socket",
            },
            sizes.request_bytes,
            sizes.response_bytes,
        ),
        load: measured.analysis.summary,
    };
    Ok(Outcome::Measured(Box::new(floor), measured.analysis.curves))
}

/// The same kind of socket as the server's, of this machine.
fn listen(server: &Endpoint, folder: Option<&Folder>) -> Result<Listen, Failure> {
    Ok(match (server, folder) {
        (_, Some(folder)) => Listen::Unix(folder.0.join("floor.sock")),
        (Endpoint::Udp(address) | Endpoint::Tcp(address), None) if address.is_ipv6() => {
            Listen::Inet(([0, 0, 0, 0, 0, 0, 0, 1_u16], 0).into())
        }
        _ => Listen::loopback(),
    })
}

/// A folder that goes when it is dropped.
struct Folder(std::path::PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // the socket has gone with its responder; an empty folder in /tmp harms nobody
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// A folder of our own for the socket, where one is needed.
fn tempfile_folder(server: &Endpoint) -> Result<Option<Folder>, Failure> {
    use std::os::unix::fs::DirBuilderExt;
    if !matches!(server, Endpoint::Unix(_)) {
        return Ok(None);
    }
    let path = std::env::temp_dir().join(format!("taillab-floor-{}", std::process::id()));
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(&path)
        .map_err(|error| {
            let what = format!("cannot make {}: {error}; set TMPDIR", path.display());
            Failure::new(Exit::Failed, what)
        })?;
    Ok(Some(Folder(path)))
}

/// The schedule's first part, with a short warm-up.
fn beginning(mut schedule: Schedule, length: Nanos) -> Schedule {
    schedule.measure_from = schedule.measure_from.min(WARM_UP);
    schedule.length = schedule.length.min(schedule.measure_from + length);
    for due in &mut schedule.by_thread {
        due.truncate(due.partition_point(|t| *t < schedule.length));
    }
    schedule
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_takes_the_beginning_of_the_schedule() {
        let due: Vec<Nanos> = (0..50).map(|i| Nanos::from_millis(100) * i).collect();
        let schedule = Schedule {
            by_thread: vec![due.clone(), due.clone()],
            measure_from: Nanos::from_secs(1),
            length: Nanos::from_secs(5),
            rate_per_s: 20.0,
        };
        let begun = beginning(schedule, Nanos::from_secs(1));
        assert_eq!(begun.measure_from, WARM_UP);
        assert_eq!(begun.length, Nanos::from_millis(1_200));
        assert_eq!(begun.by_thread, [&due[..12], &due[..12]]);
    }
}
