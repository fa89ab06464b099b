//! A kind of cause as an experiment of `taillab run`.

use taillab_console::exit::Failure;
use taillab_experiment::definition::{Experiment, Override, ServerKind};
use taillab_experiment::testbed::servers::FAULT_LOG;
use taillab_testkit::causes::{BaseServer, BenchOptions, Setup};

/// The experiment, in the words of `taillab run`.
///
/// # Errors
/// Where the values given make no sense.
pub fn experiment(setup: &Setup, asked: &BenchOptions) -> Result<Experiment, Failure> {
    let text = |text: &str| toml::Value::String(text.to_owned());
    let cpus: Vec<String> = setup
        .server_cpus(asked)
        .iter()
        .map(u32::to_string)
        .collect();
    let mut settings: Vec<Override> = vec![
        ("server.cpus", text(&cpus.join(","))),
        ("client.cpus", text(&asked.client_cpu.to_string())),
        ("workload.duration", text(&asked.duration.to_exact_string())),
        ("workload.warmup", text("500ms")),
        (
            "workload.utilization",
            setup.utilization(asked.utilization).into(),
        ),
        ("workload.seed", toml::Value::Integer(asked.seed)),
        // long enough that a retransmitted or throttled request still gets its answer
        ("client.timeout", text("3s")),
        ("calibration.pairs", toml::Value::Integer(6)),
        ("calibration.block", text("300ms")),
    ];
    settings.extend(server(setup.server));
    if let Some(service) = setup.service {
        settings.push(("server.service", service.into()));
    }
    if let Some(fault) = setup.fault {
        let args = ["--fault", fault, "--fault-log", FAULT_LOG].map(text);
        settings.push(("server.args", toml::Value::Array(args.into())));
    }
    Experiment::resolve(Some(ServerKind::NullRpc), None, settings)
}

/// A slow reader takes 70 ms for a response of so many bytes.
const LONG_BYTES: i64 = 60_000;

/// The settings of a server.
fn server(base: BaseServer) -> Vec<Override> {
    let architecture = |name: &str| ("server.architecture", name.into());
    let number = toml::Value::Integer;
    match base {
        BaseServer::Datagrams => vec![
            architecture("udp-shared"),
            ("server.transport", "udp".into()),
        ],
        BaseServer::Streams => vec![architecture("epoll-shared")],
        BaseServer::LongStreams => vec![
            architecture("epoll-shared"),
            ("workload.response_bytes", number(LONG_BYTES)),
        ],
        // often enough that the clients acknowledge late, and one at a time: two responses that are kept back on one
        // connection leave in one segment, and count as one
        BaseServer::ManyStreams => vec![
            architecture("epoll-shared"),
            ("client.connections", number(128)),
            ("client.pipeline", number(1)),
        ],
        BaseServer::Siblings => vec![
            architecture("epoll-per-worker"),
            ("server.workers", number(4)),
            ("client.connections", number(64)),
            ("client.reserve", number(192)),
        ],
        BaseServer::Threads => vec![
            architecture("null-rpc"),
            ("client.connections", number(64)),
            ("client.reserve", number(192)),
        ],
        BaseServer::Several(workers) => vec![
            architecture(if workers.shared {
                "udp-shared"
            } else {
                "udp-reuseport"
            }),
            ("server.transport", "udp".into()),
            ("server.workers", number(workers.number.into())),
        ],
        BaseServer::Assigned | BaseServer::Pooled => vec![
            architecture(match base {
                BaseServer::Pooled => "epoll-shared",
                _ => "epoll-per-worker",
            }),
            ("server.workers", number(4)),
            ("server.service", "wait:deterministic:1ms".into()),
            ("client.connections", number(64)),
            ("client.reserve", number(192)),
        ],
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;
    use taillab_load::fault::Fault;
    use taillab_model::Nanos;
    use taillab_testkit::causes::CauseKind;

    use super::*;

    #[test]
    fn every_kind_is_an_experiment_that_makes_sense() {
        let asked = BenchOptions {
            duration: Nanos::from_secs(2),
            utilization: 0.5,
            server_cpu: 0,
            client_cpu: 1,
            seed: 3,
        };
        for setup in CauseKind::value_variants().iter().copied().map(Setup::of) {
            let made = experiment(&setup, &asked).unwrap();
            assert_eq!(made.workload.duration, asked.duration);
            assert_eq!(made.server.args.is_empty(), setup.fault.is_none());
            if let Some(fault) = setup.fault {
                fault.parse::<Fault>().unwrap();
            }
            for without in [setup.undisturbed(), setup.without()] {
                let made = experiment(&without, &asked).unwrap();
                assert!(made.server.args.is_empty());
            }
        }
    }
}
