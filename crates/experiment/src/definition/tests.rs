//! Layers, defaults and refusals of experiments.

use std::io::Write;

use taillab_load::{KeyDistribution, StoreWorkload};

use taillab_model::Nanos;
use taillab_model::summary::Connect;

use super::*;

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn resolve(text: &str, flags: Vec<Override>) -> Result<Experiment, Failure> {
    let file = file(text);
    Experiment::resolve(Some(ServerKind::Memcached), Some(file.path()), flags)
}

#[test]
fn flags_go_over_the_file_and_the_file_over_the_defaults() {
    let experiment = resolve(
        "[workload]\nduration = \"5s\"\nseed = 7\n",
        vec![("workload.seed", toml::Value::Integer(9))],
    )
    .unwrap();
    assert_eq!(experiment.workload.duration, Nanos::from_secs(5));
    assert_eq!(experiment.workload.seed, 9);
    assert_eq!(experiment.client.connections, 16);
}

/// A file of somebody else's must not have its program run as root without a word.
#[test]
fn a_file_whose_server_runs_as_root_is_warned_of() {
    let warned = |text: &str, flags| {
        let file = file(text);
        let kind = Some(ServerKind::Memcached);
        let experiment = Experiment::resolve(kind, Some(file.path()), flags).unwrap();
        experiment.root_by_file(Some(file.path()))
    };
    let as_root = "[server]\nprogram = \"/tmp/mine\"\nuser = \"root\"\n";
    let said = warned(as_root, vec![]).unwrap();
    assert!(
        said.contains("line 3: ") && said.contains("/tmp/mine"),
        "{said}"
    );
    let flag = |user: &str| vec![("server.user", toml::Value::String(user.to_owned()))];
    assert_eq!(warned(as_root, flag("nobody")), None);
    assert_eq!(warned("[server]\nuser = \"nobody\"\n", vec![]), None);
    // who says it on the command line knows it
    assert_eq!(warned("", flag("root")), None);
}

#[test]
fn a_utilisation_on_the_command_line_replaces_a_rate_in_the_file() {
    let experiment = resolve(
        "[workload]\nrate_per_s = 5000.0\n",
        vec![("workload.utilization", toml::Value::Float(0.5))],
    )
    .unwrap();
    assert_eq!(experiment.workload.rate_per_s, None);
}

#[test]
fn what_is_written_runs_the_same_experiment_again() {
    let mut experiment = resolve("", vec![]).unwrap();
    experiment.workload.rate_per_s = Some(1234.5);
    experiment.calibration.service_time = Some(Nanos::new(14_523));
    let again = resolve(&experiment.to_toml().unwrap(), vec![]).unwrap();
    assert_eq!(again, experiment);
}

#[test]
fn a_wrong_setting_is_a_usage_error_that_names_it() {
    for (text, named) in [
        ("[workload]\nutilization = 1.6\n", "workload.utilization"),
        ("[workload]\nutilisation = 0.5\n", "utilisation"),
        ("[workload]\nduration = \"20\"\n", "20"),
        (
            "[workload]\nprecision = \"p99\"\n",
            "workload.precision must name a percentile",
        ),
        (
            "[workload]\nmax_duration = \"60s\"\n",
            "limit of workload.precision",
        ),
        (
            "[workload]\nprecision = \"p99=20%\"\nmax_duration = \"1s\"\n",
            "workload.max_duration must be at least",
        ),
        ("[workload]\nrate_per_s = -1\n", "rate_per_s"),
        ("[workload]\nrate_per_s = nan\n", "rate_per_s"),
        ("[server]\nport = 0\n", "server.port"),
        ("[server]\nport = 70000\n", "port"),
        ("[probe]\nring_bytes = 1000000\n", "ring_bytes"),
        ("[client\n", "TOML"),
    ] {
        let failure = resolve(text, vec![]).unwrap_err();
        assert_eq!(failure.exit, Exit::Usage, "{text}");
        assert!(failure.message.contains(named), "{text}: {failure}");
    }
}

fn value(text: &str) -> toml::Value {
    match text.parse() {
        Ok(number) => toml::Value::Integer(number),
        Err(_) => text.into(),
    }
}

fn of(kind: ServerKind, flags: &[(&'static str, &str)]) -> Result<Experiment, Failure> {
    let flags = flags.iter().map(|(key, text)| (*key, value(text)));
    Experiment::resolve(Some(kind), None, flags.collect())
}

const CUSTOM: [(&str, &str); 2] = [("server.program", "server"), ("server.port", "7000")];

#[test]
fn each_server_has_the_papers_workload() {
    let memcached = of(ServerKind::Memcached, &[]).unwrap();
    assert_eq!(memcached.server.transport, Transport::Udp);
    assert_eq!(memcached.client.connections, 16);
    assert_eq!(memcached.server.receive_buffer_bytes, Some(8 << 20));
    let values = StoreWorkload {
        get_share: 0.9,
        keys: 10_000,
        key_bytes: 64,
        value_bytes: 1024,
        distribution: KeyDistribution::Uniform,
    };
    assert_eq!(memcached.requests().store, values);
    let over_tcp = of(ServerKind::Memcached, &[("server.transport", "tcp")]).unwrap();
    assert_eq!(over_tcp.client.kind, ClientKind::Independent);
    assert_eq!(over_tcp.client.all_connections(), 1024);
    assert_eq!(over_tcp.server.receive_buffer_bytes, None);
    assert_eq!(over_tcp.requests().store, values);
    let nginx = of(ServerKind::Nginx, &[]).unwrap();
    let page = nginx.requests().resource;
    assert_eq!(
        (page.path.as_str(), page.request_bytes),
        ("/index.html", Some(85))
    );
    assert_eq!(nginx.workload.response_bytes, Some(849));
    let null_rpc = of(ServerKind::NullRpc, &[]).unwrap();
    let echo = null_rpc.requests().echo;
    assert_eq!((echo.request_bytes, echo.response_bytes), (128, 128));
    // a thread for each connection
    assert_eq!(null_rpc.server.workers, None);
    assert_eq!(null_rpc.workers(), 1024);
}

#[test]
fn the_architecture_chooses_the_transport_and_the_transport_an_architecture() {
    let shared = of(
        ServerKind::NullRpc,
        &[("server.architecture", "udp-shared")],
    )
    .unwrap();
    assert_eq!(shared.server.transport, Transport::Udp);
    assert_eq!(shared.workers(), 1);
    let udp = of(ServerKind::NullRpc, &[("server.transport", "udp")]).unwrap();
    assert_eq!(udp.server.architecture, Some(Architecture::UdpShared));
}

#[test]
fn each_thread_of_the_generator_has_a_connection() {
    let connections = |more: &[(&'static str, &str)]| {
        let both = [("server.cpus", "0-39"), ("client.cpus", "40-59")];
        let flags = both.into_iter().chain(more.iter().copied());
        let flags: Vec<(&'static str, &str)> = flags.collect();
        let experiment = of(ServerKind::Memcached, &flags).unwrap();
        experiment.client.connections
    };
    assert_eq!(connections(&[]), 20);
    assert_eq!(connections(&[("server.transport", "tcp")]), 1024);
    // what is asked for stays: too few are refused when the threads are known
    assert_eq!(connections(&[("client.connections", "4")]), 4);
}

#[test]
fn a_pool_keeps_its_reserve_and_independent_clients_have_none() {
    let client = |kind, flags: &[(&'static str, &str)]| of(kind, flags).unwrap().client;
    let found = |client: Client| (client.kind, client.connections, client.reserve);
    let pooled = |connections, reserve| (ClientKind::Pooled, connections, reserve);
    let flags = [("client.kind", "pooled")];
    assert_eq!(found(client(ServerKind::Nginx, &flags)), pooled(256, 3840));
    assert_eq!(found(client(ServerKind::NullRpc, &flags)), pooled(256, 768));
    // as older experiment files have it
    let flags = [("client.connections", "64"), ("client.reserve", "192")];
    assert_eq!(found(client(ServerKind::NullRpc, &flags)), pooled(64, 192));
    let flags = [("client.connections", "64"), ("client.reserve", "0")];
    let independent = (ClientKind::Independent, 64, 0);
    assert_eq!(found(client(ServerKind::NullRpc, &flags)), independent);
}

#[test]
fn connections_are_kept_unless_each_request_is_to_have_its_own() {
    let connect = |flags: &[(&'static str, &str)]| {
        let client = of(ServerKind::Nginx, flags).unwrap().client;
        (client.connect, client.connections)
    };
    assert_eq!(connect(&[]), (Connect::Once, 1024));
    assert_eq!(
        connect(&[("client.connect", "each")]),
        (Connect::Each, 1024)
    );
}

/// A server of HTTP or Redis that reads one request per read would lose a second one.
#[test]
fn one_request_at_a_time_where_clients_do_not_pipeline() {
    let pipeline = |kind, flags: &[(&'static str, &str)]| of(kind, flags).unwrap().client.pipeline;
    assert_eq!(pipeline(ServerKind::Nginx, &[]), 1);
    assert_eq!(pipeline(ServerKind::NullRpc, &[]), 0);
    assert_eq!(pipeline(ServerKind::Memcached, &[]), 0);
    let tcp = ("server.transport", "tcp");
    assert_eq!(pipeline(ServerKind::Memcached, &[tcp]), 0);
    assert_eq!(
        pipeline(ServerKind::Memcached, &[tcp, ("client.pipeline", "4")]),
        4
    );
    let redis = [CUSTOM[0], CUSTOM[1], ("server.protocol", "redis")];
    assert_eq!(pipeline(ServerKind::Custom, &redis), 1);
}

#[test]
fn a_server_of_the_users_own_says_what_it_speaks_and_where() {
    let with = |more: &[(&'static str, &str)]| {
        let flags: Vec<(&'static str, &str)> = CUSTOM.iter().chain(more).copied().collect();
        of(ServerKind::Custom, &flags)
    };
    let redis = with(&[("server.protocol", "redis")]).unwrap();
    assert_eq!(redis.server.title(), "server (redis) over TCP");
    assert_eq!(redis.workload.keys, Some(10_000));
    let web = with(&[("server.protocol", "http"), ("workload.path", "/a")]).unwrap();
    let page = web.requests().resource;
    assert_eq!((page.path.as_str(), page.request_bytes), ("/a", None));
    let udp = with(&[
        ("server.protocol", "memcached"),
        ("server.transport", "udp"),
    ])
    .unwrap();
    assert_eq!(udp.server.receive_buffer_bytes, Some(8 << 20));
}

#[test]
fn a_key_of_other_protocols_is_refused() {
    let with = |protocol: &str, more: Vec<Override>| {
        let custom = CUSTOM.iter().map(|(key, text)| (*key, value(text)));
        let flags = custom.chain([("server.protocol", protocol.into())]);
        Experiment::resolve(Some(ServerKind::Custom), None, flags.chain(more).collect())
    };
    let workload = |protocol| {
        let experiment = with(protocol, Vec::new()).unwrap();
        toml::Table::try_from(experiment.workload).unwrap()
    };
    for owner in taillab_load::Protocol::names() {
        for other in taillab_load::Protocol::names() {
            let own = workload(other);
            for (key, value) in workload(owner) {
                let path: &'static str = format!("workload.{key}").leak();
                let refused = with(other, vec![(path, value)]).is_err();
                // HTTP fills a request up to a length, but not by default
                let applies =
                    own.contains_key(&key) || (other, path) == ("http", "workload.request_bytes");
                assert_eq!(
                    refused, !applies,
                    "{path} with {other}: see size_rules in check.rs"
                );
            }
        }
    }
}

#[test]
fn what_does_not_fit_the_server_is_refused_by_name() {
    use ServerKind::{Custom, Memcached, Nginx, NullRpc};
    for (kind, flags, named) in [
        (
            Nginx,
            &[("server.transport", "udp")][..],
            "over TCP, not UDP",
        ),
        (Nginx, &[("workload.keys", "5")], "workload.keys"),
        (Nginx, &[("workload.path", "index.html")], "workload.path"),
        (Nginx, &[("server.protocol", "redis")], "speaks http"),
        (Memcached, &[("workload.path", "/x")], "workload.path"),
        (
            Memcached,
            &[("workload.response_bytes", "9")],
            "response_bytes",
        ),
        (Memcached, &[("server.service", "none")], "built-in server"),
        (
            Memcached,
            &[
                ("server.transport", "tcp"),
                ("server.receive_buffer_bytes", "9"),
            ],
            "UDP only",
        ),
        (
            Memcached,
            &[("client.connections", "2000")],
            "between 1 and 1024",
        ),
        (NullRpc, &[("server.workers", "2")], "for each connection"),
        (
            NullRpc,
            &[("client.connections", "10001")],
            "between 1 and 10000",
        ),
        (
            NullRpc,
            &[("client.connections", "9900"), ("client.kind", "pooled")],
            "together",
        ),
        (Memcached, &[("client.reserve", "8")], "reserve is for TCP"),
        (
            NullRpc,
            &[("client.reserve", "8"), ("client.kind", "independent")],
            "belongs to a pool",
        ),
        (
            Memcached,
            &[("client.pipeline", "1")],
            "pipeline is for TCP",
        ),
        (Memcached, &[("client.connect", "each")], "--transport tcp"),
        (
            NullRpc,
            &[("client.connect", "each"), ("client.kind", "pooled")],
            "a pool keeps its connections",
        ),
        (
            NullRpc,
            &[("client.connect", "each"), ("client.pipeline", "4")],
            "carries one request",
        ),
        (NullRpc, &[("client.connect", "never")], "never"),
        (NullRpc, &[("workload.request_bytes", "3")], "request_bytes"),
        (NullRpc, &[("server.architecture", "apache")], "apache"),
        (NullRpc, &[("server.service", "burn:1ms")], "burn"),
        (
            NullRpc,
            &[
                ("server.architecture", "epoll-shared"),
                ("server.transport", "udp"),
            ],
            "choose udp-shared",
        ),
        (
            NullRpc,
            &[
                ("server.service", "wait:deterministic:1ms"),
                ("calibration.outstanding", "1023"),
            ],
            "calibration.outstanding",
        ),
        (
            NullRpc,
            &[
                ("server.service", "wait:deterministic:1ms"),
                ("client.connections", "4500"),
            ],
            "calibration.outstanding",
        ),
        (Custom, &CUSTOM, "--protocol"),
        (
            Custom,
            &[("server.protocol", "echo"), ("server.port", "7000")],
            "--server",
        ),
        (
            Custom,
            &[("server.protocol", "echo"), ("server.program", "x")],
            "--port",
        ),
        (
            Custom,
            &[
                CUSTOM[0],
                CUSTOM[1],
                ("server.protocol", "http"),
                ("server.transport", "udp"),
            ],
            "http goes over TCP",
        ),
        (
            Custom,
            &[
                CUSTOM[0],
                CUSTOM[1],
                ("server.protocol", "http"),
                ("workload.response_bytes", "9"),
            ],
            "response_bytes",
        ),
    ] {
        let failure = of(kind, flags).unwrap_err();
        assert_eq!(failure.exit, Exit::Usage, "{flags:?}");
        assert!(failure.message.contains(named), "{flags:?}: {failure}");
    }
}

#[test]
fn the_file_can_name_the_server_and_is_not_contradicted() {
    let file = file("[server]\nkind = \"nginx\"\nworkers = 2\n");
    let resolve = |kind| Experiment::resolve(kind, Some(file.path()), vec![]);
    let nginx = resolve(None).unwrap();
    assert_eq!((nginx.server.kind, nginx.workers()), (ServerKind::Nginx, 2));
    assert_eq!(resolve(Some(ServerKind::Nginx)).unwrap(), nginx);
    let failure = resolve(Some(ServerKind::Memcached)).unwrap_err();
    assert!(
        failure
            .message
            .contains("measures nginx, and the command line names memcached"),
        "{failure}"
    );
    let nothing = Experiment::resolve(None, None, vec![]).unwrap_err();
    assert!(nothing.message.contains("which server?"), "{nothing}");
}

#[test]
fn every_kind_of_experiment_is_written_and_read_back() {
    let waits = [
        ("server.architecture", "epoll-per-worker"),
        ("server.workers", "4"),
        ("server.service", "wait:lognormal:1ms,cv=2"),
    ];
    let custom = [CUSTOM[0], CUSTOM[1], ("server.protocol", "http")];
    for (kind, flags) in [
        (ServerKind::Nginx, &[][..]),
        (ServerKind::Memcached, &[("server.transport", "tcp")]),
        (ServerKind::NullRpc, &[]),
        (ServerKind::NullRpc, &waits),
        (ServerKind::Custom, &custom),
    ] {
        let experiment = of(kind, flags).unwrap();
        let written = file(&experiment.to_toml().unwrap());
        let again = Experiment::resolve(None, Some(written.path()), vec![]).unwrap();
        assert_eq!(again, experiment);
    }
}

/// Whatever a file says, it is an experiment or a refusal.
#[test]
fn no_file_does_harm() {
    let whole = resolve("", vec![]).unwrap().to_toml().unwrap();
    let words = [
        "",
        "\n",
        "=",
        "[",
        "]",
        "\"",
        "-1",
        "0",
        "1e999",
        "nan",
        "inf",
        "18446744073709551615",
        "4294967296",
        "true",
        "[[workload]]",
        "\u{0}",
        "1us",
        "99999999999999999999s",
        "0s",
        "{}",
        "é",
    ];
    // a linear congruential generator (Knuth, MMIX): the same files each time
    let mut state = 1_u64;
    let mut below = |limit: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % limit
    };
    let mut refused = 0;
    for _ in 0..3_000 {
        let mut lines: Vec<String> = whole.lines().map(str::to_owned).collect();
        for _ in 0..=below(3) {
            let at = below(lines.len());
            let word = words[below(words.len())];
            match (below(4), lines[at].split_once(" = ")) {
                // another value
                (0 | 1, Some((key, _))) => lines[at] = format!("{key} = {word}"),
                (2, _) => drop(lines.remove(at)),
                _ => lines.insert(at, word.to_owned()),
            }
        }
        refused += usize::from(resolve(&lines.join("\n"), vec![]).is_err());
    }
    assert!((300..3_000).contains(&refused), "{refused} were refused");
}

#[test]
fn the_side_whose_cpus_are_not_named_gets_others() {
    let usable = taillab_host::cpus::allowed().unwrap();
    for cpu in usable.iter().take(2).map(|cpu| cpu.to_string()) {
        let flag = |key| vec![(key, toml::Value::String(cpu.clone()))];
        let client = resolve("", flag("server.cpus")).unwrap().client.cpus;
        let server = resolve("", flag("client.cpus")).unwrap().server.cpus;
        for other in [client, server] {
            let other: CpuSet = other.parse().unwrap();
            assert!(!other.contains(cpu.parse().unwrap()), "{cpu}: {other}");
        }
    }
    let failure = resolve("[server]\ncpus = \"1023\"\n", vec![]).unwrap_err();
    assert!(failure.message.contains("choose among"), "{failure}");
}

#[test]
fn each_preset_is_an_experiment_of_its_own_with_a_comment() {
    for preset in PRESETS {
        let experiment = Experiment::resolve_on(Some(preset), None, None, vec![]);
        let experiment = experiment.unwrap_or_else(|failure| panic!("{}: {failure}", preset.name));
        assert!(preset.text.starts_with("# "), "{}", preset.name);
        assert!(preset.text.contains(preset.name), "{}", preset.name);
        // written with the result, it runs again without the preset
        let file = file(&experiment.to_toml().unwrap());
        let again = Experiment::resolve(None, Some(file.path()), vec![]).unwrap();
        assert_eq!(again, experiment, "{}", preset.name);
    }
}

#[test]
fn flags_and_a_file_go_over_a_preset() {
    let file = file("[background]\nprocesses = 7\n");
    let flags = vec![("workload.seed", toml::Value::Integer(9))];
    let experiment =
        Experiment::resolve_on(Some(PRESETS[0]), None, Some(file.path()), flags).unwrap();
    assert_eq!(experiment.workload.seed, 9);
    let background = experiment.background.unwrap();
    assert_eq!(background.processes, 7);
    assert_eq!(background.busy, Nanos::from_millis(3));
}

#[test]
fn a_background_that_needs_more_than_a_cpu_is_refused() {
    for (text, named) in [
        (
            "processes = 0\nbusy = \"1ms\"\nevery = \"2ms\"",
            "background.processes",
        ),
        (
            "processes = 1\nbusy = \"2ms\"\nevery = \"2ms\"",
            "background.busy",
        ),
    ] {
        let failure = resolve(&format!("[background]\n{text}\n"), vec![]).unwrap_err();
        assert!(failure.to_string().contains(named), "{failure}");
    }
}
