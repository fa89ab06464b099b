//! The rig: testbed, server and probe for the length of a run.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use taillab_console::exit::{Exit, Failure, OrExit};
use taillab_console::fail::host;
use taillab_console::progress::{Phase, Progress};
use taillab_host::socket_buffers::{SocketBufferError, set_receive_buffers};
use taillab_host::{
    CpuLocks, CpuSet, Interrupt, Journal, JournalFolder, NetNamespace, Placement, PrivateFolder,
    RequestedCpus, Roots, ServerProcess, ServerSpec, Testbed, TestbedSpec, User, cpus, server,
};
use taillab_probe::{Addresses, Devices, Probe, ProbeSpec, ServerProcesses};

use super::client::{self, LoadClient};
use super::servers::{self, Question};
use crate::definition::{Experiment, TestbedKind, Transport};
use crate::rings::cpu_numbers;

/// How long a server may take until it answers.
const READY_WITHIN: Duration = Duration::from_secs(10);
/// How long a server may take to stop before it is killed.
const STOP_WITHIN: Duration = Duration::from_secs(2);

/// A running server with the testbed around it.
///
/// Dropping it kills the server and removes the namespaces.
pub struct Rig {
    // fields are dropped in this order: the server goes before its namespace
    server: ServerProcess,
    /// The server's working directory, if it has its own.
    folder: Option<PrivateFolder>,
    testbed: Testbed,
    journal: Journal,
    _locks: CpuLocks,
    placement: Placement,
    roots: Roots,
    progress: Progress,
    interrupt: Interrupt,
    /// The CPUs that the calling thread could use before it stepped aside.
    allowed: CpuSet,
    /// Set when the server was found dead; read by the generator.
    server_gone: Arc<AtomicBool>,
    address: SocketAddr,
}

impl Rig {
    /// Makes the testbed, starts the server in it and waits until it answers.
    ///
    /// Call this from a thread that outlives the rig: the server dies with that thread.
    pub fn start(
        experiment: &Experiment,
        progress: Progress,
        interrupt: Interrupt,
    ) -> Result<Self, Failure> {
        let roots = Roots::default();
        let placement = place(experiment, &roots)?;
        let allowed = cpus::usable([&placement.server, &placement.client]).map_err(host)?;
        // report an impossible experiment even while another measurement holds the CPUs
        servers::check(experiment)?;
        let stand_in = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), experiment.server.port);
        client::check(experiment, stand_in)?;
        client::check_threads(experiment, placement.client.len())?;
        let both = placement.server.iter().chain(placement.client.iter());
        let locks = CpuLocks::take(&roots, &both.collect()).map_err(host)?;
        let mut journal = JournalFolder::of_this_user().begin(&roots).map_err(host)?;
        match start_server(experiment, &roots, &placement, &mut journal) {
            Ok((server, folder, testbed, address)) => Ok(Self {
                server,
                folder,
                testbed,
                journal,
                _locks: locks,
                placement,
                roots,
                progress,
                interrupt,
                allowed,
                server_gone: Arc::default(),
                address,
            }),
            Err(failure) => {
                // everything else was removed when its owner was dropped
                journal.finish().map_err(host)?;
                Err(failure)
            }
        }
    }

    /// Keeps the calling thread off the server's CPUs from now on, and off the generator's too if other CPUs
    /// are left.
    pub fn step_aside(&self) -> Result<(), Failure> {
        cpus::pin_current_thread(&self.placement.spare(&self.allowed)).map_err(host)
    }

    /// CPUs for a thread that disturbs neither the server nor the generator.
    pub fn free_cpus(&self) -> CpuSet {
        self.placement.apart(&self.roots, &self.allowed)
    }

    /// Loads the probe for this server; nothing is attached yet.
    pub fn load_probe(&self, experiment: &Experiment) -> Result<Probe, Failure> {
        let device = self.testbed.server_device();
        Probe::load(&ProbeSpec {
            devices: Devices {
                netns_inode: device.netns_inode,
                ifindexes: vec![device.ifindex],
            },
            // veth and loopback have none
            queues: false,
            others: Vec::new(),
            served_ports: Vec::new(),
            transport: experiment.server.transport,
            server_port: experiment.server.port,
            addresses: Addresses::All,
            server: match self.testbed.server_namespace() {
                Some(_) => ServerProcesses::InNamespace,
                None => ServerProcesses::These(self.server.processes()),
            },
            server_cpus: cpu_numbers(&self.placement.server),
            generator_cpus: cpu_numbers(&self.placement.client),
            stamps: experiment.probe.stamps,
            disturbances: experiment.probe.disturbances,
            payload_bytes: 0,
            ring_bytes_per_cpu: experiment.probe.ring_bytes as usize,
        })
        .map_err(taillab_console::fail::probe)
    }

    /// Connects the generator's client and stores the data that its requests need.
    pub fn connect(&mut self, experiment: &Experiment) -> Result<LoadClient, Failure> {
        let address = self.address;
        let cpus = self.placement.client.clone();
        let namespace = self.testbed.client_namespace();
        let namespace = namespace.map(NetNamespace::try_clone).transpose();
        let namespace = namespace.map_err(host)?;
        let stop = self.interrupt.shared_flag();
        let (client, prefilled) = self.on_client_cpu(
            &[],
            || 0,
            || {
                let mut fleet = client::connect(experiment, address, &cpus, namespace)?;
                let endpoint = client::endpoint(experiment, address);
                let prefilled = fleet.prefill(&endpoint, &stop)?;
                Ok::<_, Failure>((fleet, prefilled))
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
    /// while this thread shows the progress (`done` within the `phases`) and watches the server.
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
            // if its state cannot be read, assume that it runs: if it does not, the load will show it
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
            // it is the generator's first thread: a recording must not take it for one that records
            let _ = rustix::thread::set_name(c"load-0");
            Ok(work())
        })
    }

    /// Set while the server is known to be dead.
    pub fn server_gone(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.server_gone)
    }

    /// The flag that Ctrl-C raises.
    pub fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }

    /// The server's processes, by their ids on the host.
    pub fn server_processes(&self) -> Vec<u32> {
        self.server.processes()
    }

    /// The source address of the client's packets.
    pub fn client_address(&self) -> IpAddr {
        self.testbed.client_address()
    }

    /// Which CPUs the server and the generator use.
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// The file systems from which facts about the machine are read.
    pub fn roots(&self) -> &Roots {
        &self.roots
    }

    /// Whether client and server share the loopback interface.
    pub fn is_loopback(&self) -> bool {
        self.testbed.is_loopback()
    }

    /// The server's death as a failure, if it died.
    pub fn server_failure(&mut self) -> Option<Failure> {
        match self.server.try_exit() {
            Ok(Some(exit)) => Some(Failure::failed(exit)),
            Ok(None) => None,
            Err(error) => Some(host(error)),
        }
    }

    /// The server's process.
    pub fn server(&self) -> &ServerProcess {
        &self.server
    }

    /// The network between server and generator.
    pub fn testbed(&self) -> &Testbed {
        &self.testbed
    }

    /// Stops the server, removes the testbed and says what could not be removed.
    pub fn take_down(self) -> Result<(), Failure> {
        self.take_down_and(|_| ())
    }

    /// Like [`Self::take_down`], but `read` first gets the folder with the files that the server left.
    pub fn take_down_and<T>(
        self,
        read: impl FnOnce(Option<&PrivateFolder>) -> T,
    ) -> Result<T, Failure> {
        // try all three before returning the first failure
        let stopped = self.server.shutdown(STOP_WITHIN).map_err(host);
        let left = read(self.folder.as_ref());
        let removed = self.testbed.remove().map_err(host);
        let finished = self.journal.finish().map_err(host);
        // the server's CPUs are free again; if this fails we are only slower
        let _ = cpus::pin_current_thread(&self.allowed);
        stopped.map(drop).and(removed).and(finished).map(|()| left)
    }
}

/// Makes the testbed and starts the server in it.
fn start_server(
    experiment: &Experiment,
    roots: &Roots,
    placement: &Placement,
    journal: &mut Journal,
) -> Result<(ServerProcess, Option<PrivateFolder>, Testbed, SocketAddr), Failure> {
    let testbed = match experiment.testbed.kind {
        TestbedKind::Veth => Testbed::veth(&TestbedSpec {
            placement: placement.clone(),
        }),
        TestbedKind::Loopback => Testbed::loopback(),
    }
    .map_err(host)?;
    let asked = &experiment.server;
    let address = SocketAddr::new(testbed.server_address(), asked.port);
    client::check(experiment, address)?;
    let user = User::find(roots, &asked.user).map_err(host)?;
    let (args, folder) = servers::launch(experiment, address, &user)?;
    testbed
        .run_at_server(|| match asked.transport {
            Transport::Udp => server::ensure_udp_port_free(address),
            Transport::Tcp => server::ensure_tcp_port_free(address),
        })
        .map_err(host)?
        .map_err(host)?;
    let mark = journal.plan_server(&asked.name()).map_err(host)?;
    let spec = ServerSpec {
        name: asked.name(),
        program: asked.program.clone(),
        args,
        env: vec![mark],
        namespace: testbed.server_namespace(),
        cpus: placement.server.clone(),
        user: Some(user),
        folder: folder.as_ref(),
        open_files: servers::open_files(experiment),
    };
    let mut server = ServerProcess::spawn(&spec).map_err(host)?;
    journal.server_started(roots, server.pid()).map_err(host)?;
    let question = Question::of(experiment);
    server
        .wait_ready(READY_WITHIN, || {
            testbed
                .run_at_client(|| question.is_answered(address))
                .unwrap_or_default()
        })
        .map_err(host)?;
    if let Some(bytes) = asked.receive_buffer_bytes.filter(|bytes| *bytes > 0) {
        set_all_receive_buffers(roots, &server.processes(), bytes)?;
    }
    Ok((server, folder, testbed, address))
}

/// Sets the receive buffers of a server's UDP sockets, in all of its processes. Fails if there is no socket.
fn set_all_receive_buffers(roots: &Roots, processes: &[u32], bytes: u32) -> Result<(), Failure> {
    let mut given = Err(SocketBufferError::NoSocket);
    for pid in processes {
        match set_receive_buffers(roots, *pid, bytes) {
            Err(SocketBufferError::NoSocket) => {}
            Err(error) => return Err(host(error)),
            Ok(_) => given = Ok(()),
        }
    }
    given.map_err(host)
}

/// Chooses the CPUs of server and generator that the experiment asks for.
fn place(experiment: &Experiment, roots: &Roots) -> Result<Placement, Failure> {
    let server: CpuSet = experiment.server.cpus.parse().or_exit(Exit::Usage)?;
    let client: CpuSet = experiment.client.cpus.parse().or_exit(Exit::Usage)?;
    let requested = RequestedCpus {
        server: Some(&server),
        client: Some(&client),
    };
    Placement::choose(roots, requested).map_err(host)
}
