//! Which network devices stamp packets with a clock of their own.

use std::fs;

use crate::ethtool;
use crate::roots::Roots;

/// A network device on a bus, and what it stamps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StampingDevice {
    /// `eth0`.
    pub name: String,
    /// Its driver, where it is known.
    pub driver: Option<String>,
    /// It stamps what it sends and what it receives by its own clock.
    pub in_hardware: bool,
}

/// The network devices of this namespace that are on a bus, by name.
pub fn stamping_devices(roots: &Roots) -> Vec<StampingDevice> {
    devices(roots, |name| {
        let mut words = [0; TS_INFO_WORDS];
        words[0] = ETHTOOL_GET_TS_INFO;
        ethtool::ask(name, &mut words).ok()?;
        Some(words)
    })
}

/// `include/uapi/linux/ethtool.h`
const ETHTOOL_GET_TS_INFO: u32 = 0x41;
/// 32-bit words of `struct ethtool_ts_info`, its command included.
const TS_INFO_WORDS: usize = 11;
/// `SOF_TIMESTAMPING_TX_HARDWARE`, `_RX_HARDWARE` and `_RAW_HARDWARE`.
const IN_HARDWARE: u32 = 1 | 1 << 2 | 1 << 6;

fn devices(
    roots: &Roots,
    ask: impl Fn(&str) -> Option<[u32; TS_INFO_WORDS]>,
) -> Vec<StampingDevice> {
    let Ok(entries) = fs::read_dir(roots.sys.join("class/net")) else {
        return Vec::new();
    };
    let mut devices: Vec<StampingDevice> = (entries.flatten())
        .filter_map(|entry| {
            let driver = fs::read_link(entry.path().join("device/driver")).ok();
            if !entry.path().join("device").exists() {
                return None;
            }
            let name = entry.file_name().to_str()?.to_owned();
            let in_hardware = ask(&name).is_some_and(|words| words[1] & IN_HARDWARE == IN_HARDWARE);
            Some(StampingDevice {
                name,
                driver: driver.and_then(|path| Some(path.file_name()?.to_str()?.to_owned())),
                in_hardware,
            })
        })
        .collect();
    devices.sort_by(|a, b| a.name.cmp(&b.name));
    devices
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::testing::tree;

    #[test]
    fn only_devices_on_a_bus_count_and_all_three_bits_make_hardware() {
        let (_folder, roots) = tree(&[
            ("sys/class/net/lo/mtu", "65536\n"),
            ("sys/class/net/eth1/device/vendor", "0x8086\n"),
            ("sys/class/net/eth0/device/vendor", "0x1af4\n"),
        ]);
        let found = devices(&roots, |name| {
            let mut words = [0; TS_INFO_WORDS];
            // what e1000e and virtio_net say
            words[1] = if name == "eth1" { 0x5f } else { 0x12 };
            Some(words)
        });
        let said: Vec<(&str, bool)> = (found.iter())
            .map(|device| (device.name.as_str(), device.in_hardware))
            .collect();
        assert_eq!(said, [("eth0", false), ("eth1", true)]);
    }
}
