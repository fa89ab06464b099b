//! Two network namespaces joined by a veth pair, made with iproute2.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::process::{self, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use std::{fs, io};

use crate::netns::{NetNamespace, NetnsError};
use crate::programs::{self, MissingProgram};
use crate::sysfs::{Sysfs, SysfsError};

/// Why the pair could not be made or removed.
#[derive(Debug, thiserror::Error)]
pub enum VethError {
    /// A network namespace cannot be made or entered.
    #[error(transparent)]
    Namespace(#[from] NetnsError),
    /// `ip` or `rdma` is not installed.
    #[error(transparent)]
    Missing(#[from] MissingProgram),
    /// It could not be started.
    #[error("cannot run {program}: {source}; reinstall the package iproute2")]
    Start {
        /// Its path.
        program: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// It failed.
    #[error("\"{command}\" failed: {message}{}", remedy_for(message))]
    Command {
        /// Its name and its arguments.
        command: String,
        /// The last line that it wrote.
        message: String,
    },
    /// A setting of the namespace could not be written.
    #[error(
        "cannot set {path} inside the namespace: {source}; run on a host whose /proc/sys is writable"
    )]
    Setting {
        /// The file.
        path: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Soft RoCE is not there.
    #[error(
        "soft RoCE needs the module rdma_rxe, which is not loaded: `modprobe rdma_rxe ib_uverbs`, on a kernel that has it"
    )]
    NoSoftRoce,
    /// The RDMA device does not get the address of its network device.
    #[error("the RDMA device {device} has no address after {} s: see `rdma link` and dmesg", waited.as_secs())]
    NoGid {
        /// The device.
        device: String,
        /// How long it was watched.
        waited: Duration,
    },
    /// The link's state could not be read.
    #[error(transparent)]
    Sysfs(#[from] SysfsError),
    /// The link did not come up.
    #[error("the link {device} is still {state} after {} s: see dmesg, or use loopback (run: --testbed loopback; rtt: --link loopback)", waited.as_secs())]
    Down {
        /// The interface.
        device: &'static str,
        /// Its operational state.
        state: String,
        /// How long it was watched.
        waited: Duration,
    },
}

impl VethError {
    /// Whether a privilege, veth or soft RoCE is missing.
    pub(crate) fn is_unsupported(&self) -> bool {
        match self {
            Self::Command { message, .. } => !remedy_for(message).is_empty(),
            Self::NoSoftRoce => true,
            _ => false,
        }
    }
}

fn remedy_for(message: &str) -> &'static str {
    if message.contains("not permitted") {
        "; run as root (sudo), or with CAP_NET_ADMIN"
    } else if message.contains("Unknown device type") || message.contains("not supported") {
        "; this kernel has no veth (modprobe veth), use loopback (run: --testbed loopback; rtt: --link loopback)"
    } else {
        ""
    }
}

/// The longest the kernel may take to bring a link up.
const LINK_TIMEOUT: Duration = Duration::from_secs(5);

/// One end of the pair.
#[derive(Debug)]
pub(crate) struct LinkEnd {
    pub(crate) namespace: NetNamespace,
    pub(crate) device: &'static str,
    pub(crate) ifindex: u32,
    pub(crate) address: Ipv4Addr,
    mac: &'static str,
}

impl LinkEnd {
    /// Runs `ip` inside the namespace.
    fn ip(&self, arguments: &str) -> Result<(), VethError> {
        self.run("ip", arguments)
    }

    /// Runs a program of iproute2 inside the namespace. No argument has a space in it.
    fn run(&self, name: &str, arguments: &str) -> Result<(), VethError> {
        let program = programs::find(name.as_ref())?;
        let output = self
            .namespace
            .run(|| {
                Command::new(&program)
                    .args(arguments.split(' '))
                    .env("LC_ALL", "C")
                    .stdin(Stdio::null())
                    .output()
            })?
            .map_err(|source| VethError::Start {
                program: program.display().to_string(),
                source,
            })?;
        if output.status.success() {
            return Ok(());
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        Err(VethError::Command {
            command: format!("{name} {arguments}"),
            message: match errors.lines().rfind(|line| !line.trim().is_empty()) {
                Some(line) => line.trim().to_owned(),
                None => output.status.to_string(),
            },
        })
    }

    /// Sets addresses and a static neighbour, brings the links up, and switches IPv6 off (it would
    /// send router and neighbour solicitations into the measurement).
    fn configure(&self, peer: &Self) -> Result<(), VethError> {
        for interfaces in ["all", "default"] {
            let path = format!("/proc/sys/net/ipv6/conf/{interfaces}/disable_ipv6");
            // the file shows the network namespace of the thread that opens it
            let written = self.namespace.run(|| fs::write(&path, "1"))?;
            match written {
                Ok(()) => {}
                // a kernel without IPv6 has nothing to switch off
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(source) => return Err(VethError::Setting { path, source }),
            }
        }
        let device = self.device;
        self.ip("link set lo up")?;
        self.ip(&format!("link set {device} multicast off"))?;
        self.ip(&format!("address add {}/30 dev {device}", self.address))?;
        self.ip(&format!("link set {device} up"))?;
        self.ip(&format!(
            "neighbour add {} lladdr {} dev {device} nud permanent",
            peer.address, peer.mac
        ))
    }

    /// Adds an RDMA device in software on top of the network device, where there is none yet. The
    /// kernel removes it with the network device.
    fn add_soft_roce(&self, sysfs: &Path) -> Result<(), VethError> {
        // no other namespace has a device of this index
        let device = format!("taillab-{}", self.ifindex);
        let gids = sysfs.join(format!("class/infiniband/{device}/ports/1/gids"));
        if !gids.exists() {
            // `rdma` would load the module, which then stays loaded
            if !sysfs.join("module/rdma_rxe").exists() {
                return Err(VethError::NoSoftRoce);
            }
            let link = format!("link add {device} type rxe netdev {}", self.device);
            self.run("rdma", &link)?;
        }
        // the kernel hands over the addresses a moment later
        let wanted = self.address.to_ipv6_mapped();
        let start = Instant::now();
        let is_there = || {
            let entries = fs::read_dir(&gids).into_iter().flatten().flatten();
            let gids = entries.filter_map(|entry| fs::read_to_string(entry.path()).ok());
            let mut gids = gids.filter_map(|gid| gid.trim().parse::<Ipv6Addr>().ok());
            gids.any(|gid| gid == wanted)
        };
        while !is_there() {
            let waited = start.elapsed();
            if waited > LINK_TIMEOUT {
                return Err(VethError::NoGid { device, waited });
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Waits until the link carries packets: before that the kernel drops them silently
    /// (its queueing discipline is attached by a work queue after the carrier).
    fn wait_up(&self, sysfs: &Sysfs) -> Result<(), VethError> {
        let path = format!("class/net/{}/operstate", self.device);
        let start = Instant::now();
        loop {
            let state = sysfs.read(&path)?;
            let waited = start.elapsed();
            if state == "up" {
                return Ok(());
            }
            if waited > LINK_TIMEOUT {
                return Err(VethError::Down {
                    device: self.device,
                    state,
                    waited,
                });
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// The pair, server's end first.
#[derive(Debug)]
pub(crate) struct Veth {
    pub(crate) server: LinkEnd,
    pub(crate) client: LinkEnd,
    pub(crate) server_sysfs: Sysfs,
    pub(crate) client_sysfs: Sysfs,
}

impl Veth {
    pub(crate) fn new() -> Result<Self, VethError> {
        let end = |device, host, mac| -> Result<LinkEnd, VethError> {
            let namespace = NetNamespace::new()?;
            Ok(LinkEnd {
                ifindex: ifindex_for(namespace.inode()),
                namespace,
                device,
                address: Ipv4Addr::new(10, 77, 0, host),
                mac,
            })
        };
        // locally administered addresses ("tl"), known in advance for the neighbours
        let server = end("tl-server", 1, "02:74:6c:00:00:01")?;
        let client = end("tl-client", 2, "02:74:6c:00:00:02")?;
        let peer_namespace = format!(
            "/proc/{}/fd/{}",
            process::id(),
            client.namespace.as_fd().as_raw_fd()
        );
        // One queue at each end: every packet meets the same RPS mask.
        let described = |end: &LinkEnd| {
            format!(
                "name {} index {} address {} numtxqueues 1 numrxqueues 1",
                end.device, end.ifindex, end.mac
            )
        };
        server.ip(&format!(
            "link add {} type veth peer {} netns {peer_namespace}",
            described(&server),
            described(&client)
        ))?;
        server.configure(&client)?;
        client.configure(&server)?;
        let server_sysfs = Sysfs::of(&server.namespace)?;
        let client_sysfs = Sysfs::of(&client.namespace)?;
        server.wait_up(&server_sysfs)?;
        client.wait_up(&client_sysfs)?;
        Ok(Self {
            server,
            client,
            server_sysfs,
            client_sysfs,
        })
    }

    /// Sets the MTU of both ends.
    pub(crate) fn set_mtu(&self, bytes: u32) -> Result<(), VethError> {
        for end in [&self.server, &self.client] {
            end.ip(&format!("link set {} mtu {bytes}", end.device))?;
        }
        Ok(())
    }

    /// Adds an RDMA device in software (soft RoCE) at each end; `sysfs` is `/sys`.
    pub(crate) fn add_soft_roce(&self, sysfs: &Path) -> Result<(), VethError> {
        self.server.add_soft_roce(sysfs)?;
        self.client.add_soft_roce(sysfs)
    }

    /// Removes the pair now. Without this it goes with the namespaces, a moment after
    /// their last descriptor is closed.
    pub(crate) fn remove(self) -> Result<(), VethError> {
        let link = format!("link delete {}", self.server.device);
        self.server.ip(&link)
    }
}

/// An interface index that no other namespace of the host uses: derived from the
/// namespace's inode, which is unique. So the two ends differ, and a probe that
/// compares the index alone does not take another run's packets for its own.
fn ifindex_for(inode: u64) -> u32 {
    // dynamic namespace inodes count up from 0xF000_0000 (include/linux/proc_fs.h)
    const FIRST: u32 = 1 << 20;
    FIRST + (inode & 0x0FFF_FFFF) as u32
}
