//! Keeps CPUs out of sleep states while a value is held.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// CPUs could not be kept awake.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot keep the CPUs awake: /dev/cpu_dma_latency: {source}; run as root, in a container with --device /dev/cpu_dma_latency"
)]
pub struct KeepAwakeError {
    source: io::Error,
}

const DEVICE: &str = "/dev/cpu_dma_latency";

/// A request to the kernel that any idle CPU wake up within 0 µs, so that it polls instead
/// of sleeping (kernel `Documentation/power/pm_qos_interface.rst`). It holds for all CPUs.
///
/// The kernel drops the request with the file, also when this process is killed.
#[derive(Debug)]
pub struct KeepAwake {
    _demand: File,
}

impl KeepAwake {
    /// Keeps all CPUs awake until the value is dropped.
    ///
    /// # Errors
    /// [`KeepAwakeError`] without privilege or without the device.
    pub fn hold() -> Result<Self, KeepAwakeError> {
        Self::hold_by(Path::new(DEVICE))
    }

    fn hold_by(device: &Path) -> Result<Self, KeepAwakeError> {
        let hold = || {
            let mut demand = File::options().write(true).open(device)?;
            // a 32-bit number of microseconds
            demand.write_all(&0_i32.to_ne_bytes())?;
            Ok(Self { _demand: demand })
        };
        hold().map_err(|source| KeepAwakeError { source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demand_is_zero_microseconds() {
        let device = tempfile::NamedTempFile::new().unwrap();
        KeepAwake::hold_by(device.path()).unwrap();
        assert_eq!(std::fs::read(device.path()).unwrap(), [0; 4]);
    }

    #[test]
    fn a_missing_device_is_said_with_its_remedy() {
        let error = KeepAwake::hold_by(Path::new("/nowhere/at/all")).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("run as root") && !text.contains('\n'),
            "{text}"
        );
    }
}
