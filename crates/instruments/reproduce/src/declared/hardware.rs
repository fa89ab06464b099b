//! Hardware that rows need.

use serde::Deserialize;

/// Hardware that some rows need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hardware {
    /// Two nodes of memory.
    Numa,
    /// A device for RDMA.
    Rdma,
    /// Idle states of the processor.
    IdleStates,
    /// A processor whose frequency the kernel sets.
    Frequency,
    /// A network card that stamps packets.
    NicStamps,
    /// A network card that DPDK can drive.
    DpdkNic,
    /// A card that reflects packets over PCIe.
    Netfpga,
    /// A second machine with a network in between.
    TwoHosts,
    /// The switches of a rack and of a data centre.
    Switches,
}

impl Hardware {
    /// What is lacking, in words.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Numa => "a machine with two NUMA nodes",
            Self::Rdma => "an RDMA device",
            Self::IdleStates => "a processor that shows its idle states",
            Self::Frequency => "a processor whose frequency the kernel sets",
            Self::NicStamps => "a network card with hardware time stamps",
            Self::DpdkNic => "a network card for DPDK",
            Self::Netfpga => "a card that reflects packets over PCIe (NetFPGA)",
            Self::TwoHosts => "a second machine and a network card in each",
            Self::Switches => "switches and fibre",
        }
    }
}
