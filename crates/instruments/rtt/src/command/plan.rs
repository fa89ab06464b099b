//! The arguments, checked and completed.

use std::net::SocketAddr;

use taillab_console::exit::Failure;
use taillab_console::fail::host;
use taillab_experiment::addresses;
use taillab_experiment::round_trips::{OURS, OpenRate, RowPlan, RttPlan, Target, failure};
use taillab_host::{CpuSet, Placement, RequestedCpus, Roots, cpus};
use taillab_load::rtt::{Proto, XdpMode};
use taillab_model::Nanos;
use taillab_model::rtt::Link;

use crate::args::{LinkKind, RttArgs, XdpKind};

/// The longest run if its rate depends on the measured capacity.
const LONGEST: Nanos = Nanos::from_secs(60);

/// The default utilisation of an open loop.
const HALF: f64 = 0.5;

/// Makes the plan, and refuses the impossible.
pub fn plan(args: &RttArgs) -> Result<RttPlan, Failure> {
    let of_target = |text| target(text, &args.proto);
    let target = args.target.as_deref().map(of_target).transpose()?;
    if args.mtu.is_some() && (args.link != LinkKind::Veth || target.is_some()) {
        return Err(Failure::usage(
            "--mtu is for devices of our own: add --link veth, or leave --mtu out",
        ));
    }
    let open = match (args.rate, args.utilization, args.open) {
        (Some(per_s), ..) => Some(OpenRate::PerS(per_s)),
        (None, Some(share), _) => Some(OpenRate::OfCapacity(share)),
        (None, None, true) => Some(OpenRate::OfCapacity(HALF)),
        (None, None, false) => None,
    };
    let (rows, left_out) = rows(args, target.as_ref(), open.is_some())?;
    let roots = Roots::default();
    let (client_cpus, server_cpus) = match &target {
        Some(_) => (client_only(args.client_cpus.as_ref())?, Vec::new()),
        None => {
            let requested = RequestedCpus {
                server: args.server_cpus.as_ref(),
                client: args.client_cpus.as_ref(),
            };
            let placement = Placement::choose(&roots, requested).map_err(host)?;
            (
                placement.client.iter().collect(),
                placement.server.iter().collect(),
            )
        }
    };
    let longest = matches!(open, Some(OpenRate::OfCapacity(_))).then_some(LONGEST);
    Ok(RttPlan {
        rows,
        left_out,
        count: args.count.get(),
        runs: args.runs.get(),
        at_most: args.at_most.or(longest),
        warm_up: args.warmup,
        timeout: args.timeout,
        link: match (&target, args.link) {
            (Some(_), _) => Link::Target,
            (None, LinkKind::Loopback) => Link::Loopback,
            (None, LinkKind::Veth) => Link::Veth,
        },
        mtu: args.mtu,
        open,
        explain: args.explain,
        xdp: match args.xdp {
            XdpKind::Copy => XdpMode::Copy,
            XdpKind::ZeroCopy => XdpMode::ZeroCopy,
        },
        server: match (&args.target, &target) {
            (Some(text), Some(target)) => named(text, target),
            _ => OURS.to_owned(),
        },
        target,
        client_cpus,
        server_cpus,
    })
}

/// Every possible combination, and in words the impossible ones; an error if none is left.
fn rows(
    args: &RttArgs,
    target: Option<&Target>,
    is_open: bool,
) -> Result<(Vec<RowPlan>, Vec<String>), Failure> {
    let mut rows = Vec::new();
    let mut left_out: Vec<String> = Vec::new();
    let mut why = None;
    for &proto in &args.proto {
        if let Some(target) = target
            && target.endpoint(proto).is_none()
        {
            return Err(Failure::usage(format!(
                "{proto} cannot be used with {}: choose the protocols of the target with \
                     --proto, or leave --target out",
                args.target.as_deref().unwrap_or_default()
            )));
        }
        let modes = match args.mode.as_slice() {
            [] => &proto.modes()[..1],
            given => given,
        };
        for &mode in modes {
            for &size in &args.size.0 {
                let checked = proto.check(mode, size);
                let checked = checked.and_then(|()| match is_open {
                    true => proto.check_open(),
                    false => Ok(()),
                });
                if let Err(error) = checked {
                    let text = error.to_string();
                    if !left_out.contains(&text) {
                        left_out.push(text);
                    }
                    why = why.or(Some(error));
                    continue;
                }
                for conns in &args.conns {
                    let row = RowPlan {
                        proto,
                        mode,
                        size,
                        conns: conns.get() as usize,
                    };
                    // named twice (--size 1K,1024): the files of the second would replace those of the first
                    if !rows.contains(&row) {
                        rows.push(row);
                    }
                }
            }
        }
    }
    match why {
        Some(error) if rows.is_empty() => Err(failure(&error)),
        _ => Ok((rows, left_out)),
    }
}

/// Of several addresses of a name, those that answer to these protocols.
fn target(text: &str, protos: &[Proto]) -> Result<Target, Failure> {
    if let Some(path) = text.strip_prefix("unix:") {
        return Ok(Target::Unix(path.into()));
    }
    let Some((host, port)) = text.rsplit_once(':') else {
        return Err(Failure::usage(format!(
            "`{text}` names no port; write HOST:PORT, or unix:PATH"
        )));
    };
    let unknown = |why: String| unknown_host(text, &why);
    let port = port
        .parse()
        .map_err(|_| unknown(format!("`{port}` is not a port")))?;
    let host = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    let all = addresses::of_host(host, port).map_err(unknown)?;
    // what is not asked for is not tried
    let asked = |is_datagram: bool| {
        protos
            .iter()
            .any(|proto| proto.is_datagram() == is_datagram)
    };
    let stream = asked(false).then(|| addresses::accepting(&all)).flatten();
    let datagrams = asked(true)
        .then(|| addresses::taking_datagrams(&all))
        .flatten();
    match (stream.or(datagrams), datagrams.or(stream)) {
        (Some(stream), Some(datagrams)) => Ok(Target::Inet { stream, datagrams }),
        _ => Err(unknown("it has no address".to_owned())),
    }
}

/// The target as it was given, with the addresses that a name stands for.
fn named(text: &str, target: &Target) -> String {
    match target {
        Target::Inet { .. } if text.parse::<SocketAddr>().is_ok() => text.to_owned(),
        Target::Inet { stream, datagrams } if stream == datagrams => format!("{text} ({stream})"),
        Target::Inet { stream, datagrams } => {
            format!("{text} (streams to {stream}, datagrams to {datagrams})")
        }
        Target::Unix(_) => text.to_owned(),
    }
}

fn unknown_host(text: &str, why: &str) -> Failure {
    Failure::usage(format!(
        "cannot find `{text}`: {why}; write HOST:PORT, or unix:PATH"
    ))
}

/// CPUs of a client whose server is elsewhere: the last one allowed, unless told.
fn client_only(wanted: Option<&CpuSet>) -> Result<Vec<u32>, Failure> {
    let Some(wanted) = wanted else {
        let allowed = cpus::allowed().map_err(host)?;
        return Ok(allowed.iter().last().into_iter().collect());
    };
    cpus::ensure_usable(wanted).map_err(host)?;
    Ok(wanted.iter().collect())
}
