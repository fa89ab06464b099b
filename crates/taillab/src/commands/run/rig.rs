//! The rig: testbed, server and probe, as long as the run needs them.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use taillab_host::socket_buffers::set_receive_buffers;
use taillab_host::{
    CpuSet, Hazard, Interrupt, Journal, JournalFolder, Placement, Roots, ServerProcess, ServerSpec,
    Testbed, TestbedSpec, User, cpus, server,
};
use taillab_load::{DatagramClient, Endpoint, LoadError, Memcached, MemcachedWorkload};
use taillab_probe::{DeviceId, Probe, ProbeSpec, ServerProcesses, Transport};

use crate::exit::{Exit, Failure, OrExit};
use crate::experiment::{Experiment, TestbedKind};
use crate::fail::host;
use crate::progress::{Phase, Progress};

/// How long a server may take until it answers.
const READY_WITHIN: Duration = Duration::from_secs(10);
/// How long a server may take to stop before it is killed.
const STOP_WITHIN: Duration = Duration::from_secs(2);

/// The generator's client, whose sockets live in the testbed's client namespace.
pub type LoadClient = DatagramClient<Memcached>;

/// A running server with the load's client and the probe beside it.
///
/// Dropping it kills the server and removes the namespaces.
pub struct Rig {
    // Order of fields is order of dropping: the server goes before its namespace.
    server: ServerProcess,
    testbed: Testbed,
    journal: Journal,
    placement: Placement,
    roots: Roots,
    progress: Progress,
    interrupt: Interrupt,
    /// Set when the server was found dead; read by the generator.
    server_gone: Arc<AtomicBool>,
    address: SocketAddr,
}

impl Rig {
    /// Makes the testbed, starts the server in it and waits until it answers.
    ///
    /// To be called from a thread that outlives the rig: the server dies with it.
    pub fn start(
        experiment: &Experiment,
        progress: Progress,
        interrupt: Interrupt,
    ) -> Result<Self, Failure> {
        let roots = Roots::default();
        let placement = place(experiment, &roots)?;
        workload(experiment)?;
        let mut journal = JournalFolder::of_this_user().begin(&roots).map_err(host)?;
        match start_server(experiment, &roots, &placement, &mut journal) {
            Ok((server, testbed, address)) => Ok(Self {
                server,
                testbed,
                journal,
                placement,
                roots,
                progress,
                interrupt,
                server_gone: Arc::default(),
                address,
            }),
            Err(failure) => {
                // What was made is gone with its owners; only the journal is left.
                journal.finish().map_err(host)?;
                Err(failure)
            }
        }
    }

    /// Keeps the calling thread off the server's CPUs from now on.
    pub fn step_aside(&self) -> Result<(), Failure> {
        let allowed = cpus::allowed().map_err(host)?;
        let rest: CpuSet = allowed
            .iter()
            .filter(|cpu| !self.placement.server.contains(*cpu))
            .collect();
        cpus::pin_current_thread(&rest).map_err(host)
    }

    /// Loads the probe for this server; nothing is attached yet.
    pub fn load_probe(&self, experiment: &Experiment) -> Result<Probe, Failure> {
        let device = self.testbed.server_device();
        Probe::load(&ProbeSpec {
            device: DeviceId {
                ifindex: device.ifindex,
                netns_inode: device.netns_inode,
            },
            transport: Transport::Udp,
            server_port: experiment.server.port,
            server: ServerProcesses::These(vec![self.server.pid()]),
            server_cpus: self
                .placement
                .server
                .iter()
                .map(|cpu| u16::try_from(cpu).unwrap_or(u16::MAX))
                .collect(),
            ring_bytes_per_cpu: experiment.probe.ring_bytes as usize,
        })
        .map_err(crate::fail::probe)
    }

    /// Connects the generator's client and stores every key.
    pub fn prefill(&mut self, experiment: &Experiment) -> Result<LoadClient, Failure> {
        let protocol = Memcached::new(workload(experiment)?).or_exit(Exit::Usage)?;
        let connections = experiment.client.connections.into();
        let address = self.address;
        let stop = self.interrupt.shared_flag();
        let (client, prefilled) = self.on_client_cpu(
            &[],
            || 0,
            || {
                let mut client = DatagramClient::connect(address, connections, protocol)?;
                let prefilled = taillab_load::prefill(&mut client, &Endpoint::Udp(address), &stop)?;
                Ok::<_, LoadError>((client, prefilled))
            },
        )??;
        if prefilled.interrupted {
            return Err(Failure::new(
                Exit::Interrupted,
                "interrupted before anything was measured",
            ));
        }
        Ok(client)
    }

    /// Runs `work` on a fresh thread pinned to the client's CPU inside the client's namespace,
    /// while this thread draws how far `done` is in the `phases` and watches the server.
    pub fn on_client_cpu<T: Send>(
        &mut self,
        phases: &[Phase],
        mut done: impl FnMut() -> u64,
        work: impl FnOnce() -> T + Send,
    ) -> Result<T, Failure> {
        let Self {
            server,
            testbed,
            placement,
            progress,
            server_gone,
            ..
        } = self;
        let watch = || {
            // A server that cannot be asked is not taken for dead: the load would show it.
            if matches!(server.try_exit(), Ok(Some(_))) {
                server_gone.store(true, Ordering::Relaxed);
            }
            done()
        };
        let namespace = testbed.client_namespace();
        let cpus = &placement.client;
        progress.during(phases, watch, move || {
            if let Some(namespace) = namespace {
                namespace.enter().map_err(host)?;
            }
            cpus::pin_current_thread(cpus).map_err(host)?;
            Ok(work())
        })
    }

    /// Set while the server is known to be dead.
    pub fn server_gone(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.server_gone)
    }

    /// The interrupt flag.
    pub fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// Which CPUs do what.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Where the facts about the machine are read.
    pub fn roots(&self) -> &Roots {
        &self.roots
    }

    /// What about this testbed colours the result.
    pub fn hazards(&self) -> Vec<Hazard> {
        self.testbed.hazards()
    }

    /// The server's death as a failure, if it died.
    pub fn server_failure(&mut self) -> Option<Failure> {
        match self.server.try_exit() {
            Ok(Some(exit)) => Some(Failure::new(Exit::Failed, exit)),
            Ok(None) => None,
            Err(error) => Some(host(error)),
        }
    }

    /// Stops the server, removes the testbed and says what could not be removed.
    pub fn take_down(self) -> Result<(), Failure> {
        // All three are tried before the first failure is told.
        let stopped = self.server.shutdown(STOP_WITHIN).map_err(host);
        let removed = self.testbed.remove().map_err(host);
        let finished = self.journal.finish().map_err(host);
        stopped.map(drop).and(removed).and(finished)
    }
}

/// Makes the testbed and starts the server in it.
fn start_server(
    experiment: &Experiment,
    roots: &Roots,
    placement: &Placement,
    journal: &mut Journal,
) -> Result<(ServerProcess, Testbed, SocketAddr), Failure> {
    let testbed = match experiment.testbed.kind {
        TestbedKind::Veth => Testbed::veth(&TestbedSpec {
            placement: placement.clone(),
        }),
        TestbedKind::Loopback => Testbed::loopback(),
    }
    .map_err(host)?;
    let address = SocketAddr::new(testbed.server_address(), experiment.server.port);
    testbed
        .run_at_server(|| server::ensure_udp_port_free(address))
        .map_err(host)?
        .map_err(host)?;
    let mark = journal
        .plan_server(experiment.server.kind.name())
        .map_err(host)?;
    let spec = ServerSpec {
        program: experiment.server.program.clone(),
        args: memcached_args(experiment, testbed.server_address()),
        env: vec![mark],
        namespace: testbed.server_namespace(),
        cpus: placement.server.clone(),
        user: Some(User::find(roots, &experiment.server.user).map_err(host)?),
    };
    let mut server = ServerProcess::spawn(&spec).map_err(host)?;
    journal.server_started(roots, server.pid()).map_err(host)?;
    server
        .wait_ready(READY_WITHIN, || {
            testbed
                .run_at_client(|| answers(address))
                .unwrap_or_default()
        })
        .map_err(host)?;
    if experiment.server.receive_buffer_bytes > 0 {
        set_receive_buffers(roots, server.pid(), experiment.server.receive_buffer_bytes)
            .map_err(host)?;
    }
    Ok((server, testbed, address))
}

/// What is asked of memcached; a usage failure where its protocol does not allow it.
fn workload(experiment: &Experiment) -> Result<MemcachedWorkload, Failure> {
    let workload = MemcachedWorkload {
        keys: experiment.workload.keys,
        key_bytes: experiment.workload.key_bytes.into(),
        value_bytes: experiment.workload.value_bytes as usize,
        get_share: experiment.workload.get_share,
        ..MemcachedWorkload::default()
    };
    workload.validate_datagrams().or_exit(Exit::Usage)?;
    Ok(workload)
}

/// The CPUs of both sides, as asked for.
fn place(experiment: &Experiment, roots: &Roots) -> Result<Placement, Failure> {
    let server: CpuSet = experiment.server.cpus.parse().or_exit(Exit::Usage)?;
    let client: CpuSet = std::iter::once(experiment.client.cpu).collect();
    Placement::choose(roots, Some(&server), Some(&client)).map_err(host)
}

/// `memcached -u nobody -t 1`, UDP only.
fn memcached_args(experiment: &Experiment, address: IpAddr) -> Vec<OsString> {
    let server = &experiment.server;
    // Room for every key many times over: an eviction would turn gets into misses.
    let item =
        usize::from(experiment.workload.key_bytes) + experiment.workload.value_bytes as usize + 64;
    let megabytes = (2 * item * experiment.workload.keys as usize / 1_000_000).max(64);
    let mut args: Vec<OsString> = [
        "-u".to_owned(),
        server.user.clone(),
        "-t".to_owned(),
        server.threads.to_string(),
        "-U".to_owned(),
        server.port.to_string(),
        "-p".to_owned(),
        "0".to_owned(),
        "-l".to_owned(),
        address.to_string(),
        "-m".to_owned(),
        megabytes.to_string(),
    ]
    .into_iter()
    .map(OsString::from)
    .collect();
    args.extend(server.args.iter().map(OsString::from));
    args
}

/// Whether a memcached answers a UDP `version` request within a moment.
fn answers(address: SocketAddr) -> bool {
    const REQUEST: &[u8] = b"\0\x01\0\0\0\x01\0\0version\r\n";
    let ask = || -> std::io::Result<bool> {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        socket.connect(address)?;
        socket.send(REQUEST)?;
        let mut answer = [0; 256];
        let length = socket.recv(&mut answer)?;
        Ok(answer[..length]
            .windows(7)
            .any(|window| window == b"VERSION"))
    };
    ask().unwrap_or(false)
}
