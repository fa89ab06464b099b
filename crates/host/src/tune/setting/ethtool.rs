//! Parameters of a network device that only its driver knows: coalescing and offloads
//! (`ioctl(SIOCETHTOOL)`, the kernel's `include/uapi/linux/ethtool.h`).

use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};

use super::{Knob, SettingError, within, write_namespace};
use crate::ethtool;
use crate::roots::Roots;

const ETHTOOL_GCOALESCE: u32 = 0x0e;
const ETHTOOL_SCOALESCE: u32 = 0x0f;
const ETHTOOL_GGRO: u32 = 0x2b;
const ETHTOOL_SGRO: u32 = 0x2c;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_SFLAGS: u32 = 0x26;
const ETH_FLAG_LRO: u32 = 1 << 15;
/// 32-bit words of `struct ethtool_coalesce`, its command included.
const COALESCE_WORDS: usize = 23;

/// Which parameter of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Parameter {
    /// Longest time from a packet to its interrupt, in µs.
    RxUsecs,
    /// Packets until an interrupt, at most.
    RxFrames,
    /// The driver chooses the time by itself: 0 or 1.
    AdaptiveRx,
    /// Generic receive offload: 0 or 1.
    Gro,
    /// Large receive offload: 0 or 1.
    Lro,
}

impl Parameter {
    /// Its name, as ethtool(8) calls it.
    pub const fn label(self) -> &'static str {
        match self {
            Self::RxUsecs => "rx-usecs",
            Self::RxFrames => "rx-frames",
            Self::AdaptiveRx => "adaptive-rx",
            Self::Gro => "gro",
            Self::Lro => "lro",
        }
    }

    /// Its place in `struct ethtool_coalesce`, in 32-bit words; `None` for an offload.
    const fn coalesce_word(self) -> Option<usize> {
        match self {
            Self::RxUsecs => Some(1),
            Self::RxFrames => Some(2),
            Self::AdaptiveRx => Some(10),
            Self::Gro | Self::Lro => None,
        }
    }
}

/// A parameter of a network device.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EthtoolSetting {
    /// The device.
    pub device: String,
    /// The inode of its network namespace; `None` for ours.
    pub namespace: Option<u64>,
    /// The parameter.
    pub parameter: Parameter,
}

impl EthtoolSetting {
    fn get(&self) -> io::Result<u32> {
        if let Some(word) = self.parameter.coalesce_word() {
            let mut words = [0; COALESCE_WORDS];
            words[0] = ETHTOOL_GCOALESCE;
            ethtool::ask(&self.device, &mut words)?;
            return Ok(words[word]);
        }
        let is_lro = self.parameter == Parameter::Lro;
        let mut words = [if is_lro { ETHTOOL_GFLAGS } else { ETHTOOL_GGRO }, 0];
        ethtool::ask(&self.device, &mut words)?;
        Ok(match is_lro {
            true => u32::from(words[1] & ETH_FLAG_LRO != 0),
            false => words[1],
        })
    }

    fn set(&self, value: u32) -> io::Result<()> {
        if let Some(word) = self.parameter.coalesce_word() {
            let mut words = [0; COALESCE_WORDS];
            words[0] = ETHTOOL_GCOALESCE;
            ethtool::ask(&self.device, &mut words)?;
            words[0] = ETHTOOL_SCOALESCE;
            words[word] = value;
            return ethtool::ask(&self.device, &mut words);
        }
        if self.parameter == Parameter::Gro {
            return ethtool::ask(&self.device, &mut [ETHTOOL_SGRO, value]);
        }
        let mut words = [ETHTOOL_GFLAGS, 0];
        ethtool::ask(&self.device, &mut words)?;
        words[0] = ETHTOOL_SFLAGS;
        match value {
            0 => words[1] &= !ETH_FLAG_LRO,
            _ => words[1] |= ETH_FLAG_LRO,
        }
        ethtool::ask(&self.device, &mut words)
    }
}

impl Knob for EthtoolSetting {
    fn read(&self, roots: &Roots) -> Result<String, SettingError> {
        let value = within(roots, self.namespace, || self.get());
        Ok(value.map_err(|e| self.unreadable(e))?.to_string())
    }

    fn write(&self, roots: &Roots, value: &str) -> Result<(), SettingError> {
        let number: u32 = value
            .parse()
            .map_err(|_| self.refused(value, rustix::io::Errno::INVAL))?;
        within(roots, self.namespace, || self.set(number)).map_err(|e| self.refused(value, e))
    }
}

impl fmt::Display for EthtoolSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ethtool({} {})", self.device, self.parameter.label())?;
        write_namespace(f, self.namespace)
    }
}
