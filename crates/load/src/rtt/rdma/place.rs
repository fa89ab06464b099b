//! Finds the port of an RDMA device that leads to an address, from sysfs.

use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;

/// One address (GID) of an active port of an RDMA device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The device's name.
    pub(super) device: String,
    /// The number of the port, from 1.
    pub(super) port: u8,
    /// The number of the GID in the port's table.
    pub(super) gid_index: u8,
    /// The GID; over Ethernet, an IP address of the network device.
    pub(super) gid: Ipv6Addr,
    /// InfiniBand instead of Ethernet: addressed by its LID.
    pub(super) is_infiniband: bool,
    /// A kernel driver does the adapter's work.
    pub(super) is_software: bool,
}

/// Why a machine without any device cannot use RDMA.
const NO_DEVICE: &str = "there is no RDMA device (/sys/class/infiniband is empty): without an \
    adapter use soft RoCE (`modprobe rdma_rxe ib_uverbs`; --link veth then adds a device at each \
    end, otherwise `rdma link add rxe0 type rxe netdev DEVICE`), and install ibverbs-providers";

/// The port that has this address. Any active port will do for a loopback address, and any
/// InfiniBand port for every address. The error says what there is instead; `sys` is `/sys`.
pub(super) fn choose(sys: &Path, address: IpAddr) -> Result<Place, String> {
    let places = places(sys);
    let wanted = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    let anywhere = |place: &Place| place.is_infiniband || address.is_loopback();
    let found = (places.iter().find(|place| place.gid == wanted))
        .or_else(|| places.iter().find(|place| anywhere(place)));
    if let Some(place) = found {
        return Ok(place.clone());
    }
    let names = names(&sys.join("class/infiniband"));
    if names.is_empty() {
        return Err(NO_DEVICE.to_owned());
    }
    let of = |place: &Place| format!("{} ({})", place.device, shown(place.gid));
    let mut there: Vec<String> = places.iter().map(of).collect();
    there.dedup();
    if there.is_empty() {
        return Err(format!(
            "no port of {} is active: check `rdma link`, and set the link up",
            names.join(", ")
        ));
    }
    Err(format!(
        "no RDMA device has the address {address}; there are {}: use the address of one of them, or \
         `rdma link add` for the network device that has {address}",
        there.join(", ")
    ))
}

/// All GIDs of all active ports, over Ethernet only RoCE v2. Sorted by GID index, link-local ones last.
fn places(sys: &Path) -> Vec<Place> {
    let devices = sys.join("class/infiniband");
    let mut all = Vec::new();
    for device in names(&devices) {
        // a software device is not attached to a bus
        let target = fs::canonicalize(devices.join(&device));
        let is_software = target.is_ok_and(|path| path.to_string_lossy().contains("/virtual/"));
        for port in names(&devices.join(&device).join("ports")) {
            let folder = devices.join(&device).join("ports").join(&port);
            let read = |file: &str| fs::read_to_string(folder.join(file)).unwrap_or_default();
            let Ok(port) = port.parse() else { continue };
            if !read("state").contains("ACTIVE") {
                continue;
            }
            let is_infiniband = read("link_layer").trim() == "InfiniBand";
            for index in names(&folder.join("gids")) {
                let gid = read(&format!("gids/{index}")).trim().parse();
                // an empty entry of the table has no kind, and reading it fails
                let kind = read(&format!("gid_attrs/types/{index}"));
                let (Ok(gid), Ok(gid_index)) = (gid, index.parse()) else {
                    continue;
                };
                if is_infiniband || kind.trim() == "RoCE v2" {
                    all.push(Place {
                        device: device.clone(),
                        port,
                        gid_index,
                        gid,
                        is_infiniband,
                        is_software,
                    });
                }
            }
        }
    }
    all.sort_by_key(|place| (place.gid.is_unicast_link_local(), place.gid_index));
    all
}

/// The names in a folder; empty if there is no such folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn shown(gid: Ipv6Addr) -> IpAddr {
    gid.to_ipv4_mapped().map_or(IpAddr::V6(gid), IpAddr::V4)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    /// A port with these GIDs, each with its kind, in a folder that takes the place of `/sys`.
    fn port(sys: &Path, device: &str, (state, layer): (&str, &str), gids: &[(&str, &str)]) {
        let folder = sys.join("class/infiniband").join(device).join("ports/1");
        fs::create_dir_all(folder.join("gids")).unwrap();
        fs::create_dir_all(folder.join("gid_attrs/types")).unwrap();
        fs::write(folder.join("state"), state).unwrap();
        fs::write(folder.join("link_layer"), layer).unwrap();
        for (index, (gid, kind)) in gids.iter().enumerate() {
            fs::write(folder.join(format!("gids/{index}")), gid).unwrap();
            fs::write(folder.join(format!("gid_attrs/types/{index}")), kind).unwrap();
        }
    }

    const ACTIVE: (&str, &str) = ("4: ACTIVE\n", "Ethernet\n");
    const LOCAL: (&str, &str) = ("fe80:0000:0000:0000:0056:3fff:fe14:2f28\n", "RoCE v2\n");
    const FIRST: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1));

    #[test]
    fn what_is_missing_is_named() {
        let sys = tempfile::tempdir().unwrap();
        let text = choose(sys.path(), FIRST).unwrap_err();
        for part in ["rdma_rxe", "rdma link add", "ibverbs-providers"] {
            assert!(text.contains(part), "{text}");
        }
        port(sys.path(), "rxe0", ("1: DOWN\n", "Ethernet\n"), &[LOCAL]);
        let text = choose(sys.path(), FIRST).unwrap_err();
        assert!(text.contains("no port of rxe0 is active"), "{text}");
        port(sys.path(), "rxe0", ACTIVE, &[LOCAL]);
        let text = choose(sys.path(), FIRST).unwrap_err();
        assert!(
            text.contains("10.9.0.1") && text.contains("rxe0 (fe80::"),
            "{text}"
        );
    }

    #[test]
    fn the_port_with_the_address_is_taken() {
        let sys = tempfile::tempdir().unwrap();
        let first = "0000:0000:0000:0000:0000:ffff:0a09:0001\n";
        let second = "0000:0000:0000:0000:0000:ffff:0a09:0002\n";
        let empty = ("0000:0000:0000:0000:0000:0000:0000:0000\n", "");
        port(
            sys.path(),
            "rxe0",
            ACTIVE,
            &[LOCAL, (second, "RoCE v2\n"), empty],
        );
        port(
            sys.path(),
            "rxe1",
            ACTIVE,
            &[LOCAL, (first, "IB/RoCE v1\n"), (first, "RoCE v2\n")],
        );
        let place = choose(sys.path(), FIRST).unwrap();
        assert_eq!((place.device.as_str(), place.gid_index), ("rxe1", 2));
        assert!(!place.is_infiniband && !place.is_software);
        // any device leads to this machine; an address that others can reach is preferred
        let place = choose(sys.path(), Ipv4Addr::LOCALHOST.into()).unwrap();
        assert_eq!((place.device.as_str(), place.gid_index), ("rxe0", 1));
    }

    #[test]
    fn infiniband_needs_no_address_of_its_own() {
        let sys = tempfile::tempdir().unwrap();
        let gid = ("fe80:0000:0000:0000:0002:c903:0000:0001\n", "IB/RoCE v1\n");
        port(
            sys.path(),
            "mlx5_0",
            ("4: ACTIVE\n", "InfiniBand\n"),
            &[gid],
        );
        let place = choose(sys.path(), FIRST).unwrap();
        assert!(place.is_infiniband && place.device == "mlx5_0");
    }
}
