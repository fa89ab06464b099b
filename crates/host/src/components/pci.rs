//! Reads of a PCI function's configuration: the substitute for a read over PCIe where no NIC's
//! clock can be read. In a virtual machine each of them exits to the hypervisor.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::Instant;

use taillab_model::Nanos;

use super::bounds::Bounds;
use super::error::ComponentError;
use crate::roots::{Roots, read_optional};

/// A PCI function by its address, with the numbers that say what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciFunction {
    /// `0000:00:03.0`.
    pub address: String,
    /// Vendor and device, e.g. `0x1af4:0x1041`.
    pub identity: String,
}

/// The first network function, or else the first function that is not a bridge.
pub fn first_function(roots: &Roots) -> Option<PciFunction> {
    const NETWORK: &str = "0x02";
    const BRIDGE: &str = "0x06";
    let folder = roots.sys.join("bus/pci/devices");
    let mut functions: Vec<(bool, PciFunction)> = fs::read_dir(folder)
        .ok()?
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let class = read_optional(&path.join("class"))?;
            if class.starts_with(BRIDGE) {
                return None;
            }
            let vendor = read_optional(&path.join("vendor"))?;
            let device = read_optional(&path.join("device"))?;
            let function = PciFunction {
                address: path.file_name()?.to_str()?.to_owned(),
                identity: format!("{vendor}:{device}"),
            };
            Some((!class.starts_with(NETWORK), function))
        })
        .collect();
    functions.sort_by(|a, b| (a.0, &a.1.address).cmp(&(b.0, &b.1.address)));
    functions.into_iter().next().map(|(_, function)| function)
}

/// How long reads of four bytes of the function's configuration take.
///
/// # Errors
/// [`ComponentError::Refused`].
pub fn config_reads(
    roots: &Roots,
    function: &PciFunction,
    bounds: Bounds<'_>,
) -> Result<Vec<Nanos>, ComponentError> {
    let refused = |source| ComponentError::Refused {
        doing: "read a PCI function's configuration",
        source,
        remedy: "it needs /sys and a kernel with CONFIG_PCI",
    };
    let path = roots.sys.join("bus/pci/devices").join(&function.address);
    let config = File::open(path.join("config")).map_err(refused)?;
    let mut word = [0; 4];
    bounds.samples(|_| {
        let began = Instant::now();
        config.read_exact_at(&mut word, 0).map_err(refused)?;
        Ok(Some(Nanos::new(began.elapsed().as_nanos() as u64)))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use super::*;
    use crate::roots::testing::tree;

    #[test]
    fn a_network_function_goes_before_others_and_bridges_do_not_count() {
        let device = |address: &str, class: &str| {
            let folder = format!("sys/bus/pci/devices/{address}");
            [
                (format!("{folder}/class"), format!("{class}\n")),
                (format!("{folder}/vendor"), "0x1af4\n".to_owned()),
                (format!("{folder}/device"), "0x1041\n".to_owned()),
                (format!("{folder}/config"), "abcdefgh".to_owned()),
            ]
        };
        let files: Vec<(String, String)> = [
            device("0000:00:00.0", "0x060000"),
            device("0000:00:01.0", "0x010000"),
            device("0000:00:03.0", "0x020000"),
        ]
        .into_iter()
        .flatten()
        .collect();
        let borrowed: Vec<(&str, &str)> = files
            .iter()
            .map(|(a, b)| (a.as_str(), b.as_str()))
            .collect();
        let (_folder, roots) = tree(&borrowed);
        let function = first_function(&roots).unwrap();
        assert_eq!(function.address, "0000:00:03.0");
        assert_eq!(function.identity, "0x1af4:0x1041");
        let bounds = Bounds {
            most: 10,
            length: Duration::from_secs(30),
            stop: &AtomicBool::new(false),
        };
        let taken = config_reads(&roots, &function, bounds).unwrap();
        assert_eq!(taken.len(), 10);
    }
}
