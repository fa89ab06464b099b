//! The client's own floor: the same schedule against a server that does nothing.

use taillab_analysis::load::LoadCurves;
use taillab_console::exit::{Exit, Failure, OrExit};
use taillab_host::{CpuSet, cpus};
use taillab_load::Endpoint;
use taillab_load::protocol::MessageSizes;
use taillab_load::serve::{Architecture, Listen, Responder, Spec};
use taillab_model::Nanos;
use taillab_model::load_result::Floor;

use super::context::Context;
use super::plan::LoadPlan;
use super::requests::Requests;
use super::schedule::{Schedule, Shape};
use super::session::{Sending, Session};

/// Its warm-up: there is little to warm up.
const WARM_UP: Nanos = Nanos::from_millis(200);

/// The floor, or why there is none.
pub type FloorResult<T> = Result<T, String>;

/// Sends the beginning of the load's schedule to a built-in responder.
pub fn of_schedule(
    context: &Context<'_>,
    schedule: Schedule,
    shape: &Shape,
) -> FloorResult<(Floor, LoadCurves)> {
    against_responder(context, |session, length, responder| {
        let sending = Sending {
            schedule: beginning(schedule, length),
            shape,
            utilization: None,
            seed: context.plan.seed,
            start: None,
        };
        let measured = session.open_loop("client's floor", sending)?;
        if measured.is_partial() {
            return Ok(None);
        }
        let floor = Floor {
            responder,
            load: Some(measured.analysis.summary),
            closed_loop: None,
        };
        Ok(Some((floor, measured.analysis.curves)))
    })
}

/// Runs `measure` with a client like the load's that is connected to a built-in responder on other
/// CPUs: one for each of the client's threads, as far as there are so many, so that the responder is not
/// the bottleneck. An error here does not spoil the result: there is then no floor.
pub fn against_responder<T>(
    context: &Context<'_>,
    measure: impl FnOnce(&mut Session<'_>, Nanos, String) -> Result<Option<T>, Failure>,
) -> FloorResult<T> {
    let plan = context.plan;
    let Some(length) = plan.floor else {
        return Err("switched off with --floor off".to_owned());
    };
    if context.interrupt.is_raised() {
        return Err("interrupted before it was measured".to_owned());
    }
    let rest = &plan.client.placing.rest;
    let places = &rest[..rest.len().min(plan.client.threads())];
    if places.is_empty() {
        return Err(
            "the client's threads leave no CPU for a responder: use fewer threads (-t) or more CPUs"
                .to_owned(),
        );
    }
    context.messages.step("measuring the client's own floor");
    let server = context.session.endpoint();
    let outcome = start(plan, server, places).and_then(|running| {
        let mut session = (context.session).with_server(running.endpoint.clone(), &running.echo)?;
        let description = describe(server, running.sizes, places);
        measure(&mut session, length, description)
    });
    match outcome {
        Ok(Some(floor)) => Ok(floor),
        Ok(None) => Err("interrupted while it was measured".to_owned()),
        Err(failure) => Err(format!("it could not be measured: {failure}")),
    }
}

/// A responder that runs until this is dropped. Field order matters: the socket goes before its folder.
struct RunningResponder {
    _responder: Responder,
    _folder: Option<Folder>,
    endpoint: Endpoint,
    echo: Requests,
    sizes: MessageSizes,
}

/// Starts a responder with a thread on each of these CPUs, of which there is at least one.
fn start(plan: &LoadPlan, server: &Endpoint, places: &[u32]) -> Result<RunningResponder, Failure> {
    let (echo, sizes) = plan.requests.imitated()?;
    let folder = folder_for(server)?;
    let datagrams = plan.requests.are_datagrams();
    let architecture = match datagrams {
        true if places.len() > 1 => Architecture::UdpReuseport,
        true => Architecture::UdpShared,
        false => Architecture::EpollPerWorker,
    };
    let spec = Spec {
        listen: listen(server, folder.as_ref()),
        workers: places.len(),
        sizes,
        busy: true,
        ..Spec::new(architecture)
    };
    let places = places.to_vec();
    let pin = move |thread: usize| {
        let place = places[thread % places.len()];
        cpus::pin_current_thread(&CpuSet::single(place))
    };
    let responder = Responder::start_with(&spec, pin).or_exit(Exit::Failed)?;
    let endpoint = match responder.address() {
        Listen::Inet(address) if datagrams => Endpoint::Udp(*address),
        Listen::Inet(address) => Endpoint::Tcp(*address),
        Listen::Unix(path) => Endpoint::Unix(path.clone()),
    };
    Ok(RunningResponder {
        _responder: responder,
        _folder: folder,
        endpoint,
        echo,
        sizes,
    })
}

fn describe(server: &Endpoint, sizes: MessageSizes, places: &[u32]) -> String {
    let places: CpuSet = places.iter().copied().collect();
    let transport = match server {
        Endpoint::Udp(_) => "UDP on loopback",
        Endpoint::Tcp(_) => "TCP on loopback",
        Endpoint::Unix(_) => "a Unix socket",
    };
    format!(
        "built-in null responder over {transport}, {} bytes in and {} bytes out, on CPU {places}",
        sizes.request_bytes, sizes.response_bytes,
    )
}

/// The same kind of socket as the server's, of this machine.
fn listen(server: &Endpoint, folder: Option<&Folder>) -> Listen {
    match (server, folder) {
        (_, Some(folder)) => Listen::Unix(folder.0.join("floor.sock")),
        (Endpoint::Udp(address) | Endpoint::Tcp(address), None) if address.is_ipv6() => {
            Listen::Inet(([0, 0, 0, 0, 0, 0, 0, 1_u16], 0).into())
        }
        _ => Listen::loopback(),
    }
}

/// A folder that is removed when this is dropped.
struct Folder(std::path::PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // the responder has removed its socket; an empty folder in /tmp does no harm
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// A folder of our own for the socket, where one is needed.
fn folder_for(server: &Endpoint) -> Result<Option<Folder>, Failure> {
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
            Failure::failed(what)
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
    fn a_responder_says_on_which_cpus_it_runs() {
        let server = Endpoint::Udp(([127, 0, 0, 1], 9).into());
        let on = |places: &[u32]| describe(&server, MessageSizes::default(), places);
        let one = "built-in null responder over UDP on loopback, 128 bytes in and 128 bytes out, \
                   on CPU 0";
        assert_eq!(on(&[0]), one);
        assert!(on(&[0, 1, 2]).ends_with("on CPU 0-2"));
    }

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
