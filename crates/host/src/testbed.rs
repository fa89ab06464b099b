//! Where server and load generator run: the network between them.

use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};

use crate::cpus::{CpuSet, Placement};
use crate::netns::{NetNamespace, NetnsError};
use crate::roots::Roots;
use crate::sysfs::{Sysfs, SysfsError};
use crate::veth::{Veth, VethError};

/// Why the testbed could not be made or removed.
#[derive(Debug, thiserror::Error)]
pub enum TestbedError {
    /// The namespaces or the link between them cannot be made, set up or removed.
    #[error(transparent)]
    Veth(#[from] VethError),
    /// The namespace of this process could not be identified.
    #[error(transparent)]
    Namespace(#[from] NetnsError),
    /// The steering file is not there.
    #[error(
        "cannot steer the receive work of {device}: {source}; the kernel needs CONFIG_RPS, and the \
         CPUs must not be isolated (isolcpus, nohz_full)"
    )]
    Steering {
        /// The interface.
        device: String,
        /// What failed.
        source: SysfsError,
    },
    /// The kernel accepted the steering mask and uses another.
    #[error(
        "the receive work of {device} was steered to CPU {wanted}, but the kernel steers it to CPU \
         {effective}: choose CPUs that are online and not isolated"
    )]
    SteeringDiffers {
        /// The interface.
        device: String,
        /// The CPUs that were written.
        wanted: CpuSet,
        /// What was read back (the raw text if it is not a mask).
        effective: String,
    },
}

/// The specification of a testbed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestbedSpec {
    /// Who runs on which CPUs: each end's receive softirq goes to its owner's CPUs.
    pub placement: Placement,
}

/// What identifies a network device for the probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceId {
    /// Index of the interface within its namespace.
    pub ifindex: u32,
    /// Inode of the network namespace (`net->ns.inum`).
    pub netns_inode: u64,
}

/// The network between server and load generator. Dropping it removes all that was
/// made for it; [`Testbed::remove`] does so and says whether it worked.
#[derive(Debug)]
pub struct Testbed(Network);

#[derive(Debug)]
enum Network {
    Veth(Box<Veth>),
    Loopback { netns_inode: u64 },
}

/// Index of the loopback interface in every namespace (`LOOPBACK_IFINDEX`).
const LOOPBACK_IFINDEX: u32 = 1;

impl Testbed {
    /// Two namespaces joined by veth, with the receive work of each end steered
    /// (RPS) to the CPUs of the process at that end, as a NIC's interrupt affinity
    /// would.
    ///
    /// Offloads stay as the kernel makes them, because they match a NIC: checksums
    /// are offloaded, segmentation concerns TCP only, generic receive offload is
    /// off on veth (it would replace `netif_rx` by NAPI). The queueing discipline is
    /// `noqueue`.
    ///
    /// # Errors
    /// [`TestbedError`]; everything made on the way is gone again.
    pub fn veth(spec: &TestbedSpec) -> Result<Self, TestbedError> {
        let veth = Veth::new()?;
        let ends = [
            (
                &veth.server_sysfs,
                veth.server.device,
                &spec.placement.server,
            ),
            (
                &veth.client_sysfs,
                veth.client.device,
                &spec.placement.client,
            ),
        ];
        for (sysfs, device, cpus) in ends {
            steer(sysfs, device, cpus)?;
        }
        Ok(Self(Network::Veth(Box::new(veth))))
    }

    /// Gives both devices this MTU. Over loopback nothing is changed: the interface is not ours.
    ///
    /// # Errors
    /// [`TestbedError`] when the kernel refuses it.
    pub fn set_mtu(&self, bytes: u32) -> Result<(), TestbedError> {
        Ok(self.pair().map_or(Ok(()), |veth| veth.set_mtu(bytes))?)
    }

    /// The loopback interface of the namespace we are in: nothing is made.
    ///
    /// # Errors
    /// [`TestbedError::Namespace`] when /proc is not mounted.
    pub fn loopback() -> Result<Self, TestbedError> {
        Ok(Self(Network::Loopback {
            netns_inode: NetNamespace::current()?.inode(),
        }))
    }

    /// The two ends; `None` on loopback.
    fn pair(&self) -> Option<&Veth> {
        match &self.0 {
            Network::Veth(veth) => Some(veth),
            Network::Loopback { .. } => None,
        }
    }

    /// The address at which the server listens.
    pub fn server_address(&self) -> IpAddr {
        let address = self.pair().map(|veth| veth.server.address);
        address.unwrap_or(Ipv4Addr::LOCALHOST).into()
    }

    /// The address from which the load comes.
    pub fn client_address(&self) -> IpAddr {
        let address = self.pair().map(|veth| veth.client.address);
        address.unwrap_or(Ipv4Addr::LOCALHOST).into()
    }

    /// The device that receives requests and sends responses.
    pub fn server_device(&self) -> DeviceId {
        self.device(|veth| &veth.server)
    }

    /// The device that sends requests and receives responses.
    pub fn client_device(&self) -> DeviceId {
        self.device(|veth| &veth.client)
    }

    fn device(&self, end: impl Fn(&Veth) -> &crate::veth::LinkEnd) -> DeviceId {
        match &self.0 {
            Network::Veth(veth) => DeviceId {
                ifindex: end(veth).ifindex,
                netns_inode: end(veth).namespace.inode(),
            },
            Network::Loopback { netns_inode } => DeviceId {
                ifindex: LOOPBACK_IFINDEX,
                netns_inode: *netns_inode,
            },
        }
    }

    /// The namespace the server must enter; `None` on loopback.
    pub fn server_namespace(&self) -> Option<&NetNamespace> {
        self.pair().map(|veth| &veth.server.namespace)
    }

    /// The namespace the load generator's sockets must be made in; `None` on loopback.
    pub fn client_namespace(&self) -> Option<&NetNamespace> {
        self.pair().map(|veth| &veth.client.namespace)
    }

    /// Runs `work` where the client's sockets belong: in a fresh thread inside its
    /// namespace, or on loopback right here.
    ///
    /// # Errors
    /// [`TestbedError::Namespace`] when the namespace cannot be entered.
    pub fn run_at_client<T: Send>(
        &self,
        work: impl FnOnce() -> T + Send,
    ) -> Result<T, TestbedError> {
        match self.client_namespace() {
            Some(namespace) => Ok(namespace.run(work)?),
            None => Ok(work()),
        }
    }

    /// Runs `work` where the server lives: in a fresh thread inside its namespace, or
    /// on loopback right here.
    ///
    /// # Errors
    /// [`TestbedError::Namespace`] when the namespace cannot be entered.
    pub fn run_at_server<T: Send>(
        &self,
        work: impl FnOnce() -> T + Send,
    ) -> Result<T, TestbedError> {
        match self.server_namespace() {
            Some(namespace) => Ok(namespace.run(work)?),
            None => Ok(work()),
        }
    }

    /// Adds an RDMA device in software (soft RoCE) to each end that has none yet; on
    /// loopback nothing is made.
    ///
    /// # Errors
    /// [`TestbedError::Veth`] where the kernel has no soft RoCE, or its module is not loaded.
    pub fn add_soft_roce(&self) -> Result<(), TestbedError> {
        let add = |veth: &Veth| veth.add_soft_roce(&Roots::default().sys);
        Ok(self.pair().map_or(Ok(()), add)?)
    }

    /// Whether client and server share the loopback interface.
    pub fn is_loopback(&self) -> bool {
        self.pair().is_none()
    }

    /// Removes the testbed now and says what could not be removed.
    ///
    /// # Errors
    /// [`TestbedError::Veth`] when the link could not be removed; the kernel then
    /// removes it with its namespaces, once the last process in them has ended.
    pub fn remove(self) -> Result<(), TestbedError> {
        match self.0 {
            Network::Veth(veth) => Ok(veth.remove()?),
            Network::Loopback { .. } => Ok(()),
        }
    }
}

/// Steers the receive softirq of a device with one queue (Documentation/networking/scaling.rst,
/// RPS) and reads back what the kernel made of it.
fn steer(sysfs: &Sysfs, device: &str, cpus: &CpuSet) -> Result<(), TestbedError> {
    let path = format!("class/net/{device}/queues/rx-0/rps_cpus");
    let failed = |source| TestbedError::Steering {
        device: device.to_owned(),
        source,
    };
    sysfs.write(&path, &cpus.to_mask()).map_err(failed)?;
    let effective = sysfs.read(&path).map_err(failed)?;
    match CpuSet::from_mask(&effective) {
        Ok(set) if set == *cpus => Ok(()),
        other => Err(TestbedError::SteeringDiffers {
            device: device.to_owned(),
            wanted: cpus.clone(),
            effective: other.map_or(effective, |set| set.to_string()),
        }),
    }
}
