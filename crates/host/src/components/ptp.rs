//! A NIC's own clock, read over its bus between two reads of the kernel's clock.
//!
//! The driver takes the kernel's clock right before and right after it reads the card's register
//! (`PTP_SYS_OFFSET_EXTENDED`, the kernel's `include/uapi/linux/ptp_clock.h`): the time between
//! the two is a read over PCIe and back.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;

use taillab_model::Nanos;

use super::bounds::Bounds;
use super::error::ComponentError;
use crate::roots::{Roots, read_optional};

/// A clock that the kernel offers as `/dev/ptpN`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PtpClock {
    /// `ptp0`.
    pub device: String,
    /// What the driver calls it.
    pub name: String,
    /// The PCI function that it is on, e.g. `0000:00:03.0`; `None` for one without a card.
    pub function: Option<String>,
}

/// All clocks, those on a PCI function first.
pub fn ptp_clocks(roots: &Roots) -> Vec<PtpClock> {
    let Ok(entries) = fs::read_dir(roots.sys.join("class/ptp")) else {
        return Vec::new();
    };
    let clock = |entry: io::Result<fs::DirEntry>| {
        let path = entry.ok()?.path();
        let facts = read_optional(&path.join("device/uevent")).unwrap_or_default();
        let slot = facts
            .lines()
            .find_map(|line| line.strip_prefix("PCI_SLOT_NAME="));
        Some(PtpClock {
            device: path.file_name()?.to_str()?.to_owned(),
            name: read_optional(&path.join("clock_name")).unwrap_or_else(|| "unnamed".into()),
            function: slot.map(str::to_owned),
        })
    };
    let mut clocks: Vec<PtpClock> = entries.filter_map(clock).collect();
    clocks
        .sort_by(|a, b| (a.function.is_none(), &a.device).cmp(&(b.function.is_none(), &b.device)));
    clocks
}

/// `PTP_MAX_SAMPLES`.
const MOST_SAMPLES: usize = 25;

/// `struct ptp_clock_time`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Time {
    seconds: i64,
    nanoseconds: u32,
    reserved: u32,
}

/// `struct ptp_sys_offset_extended`: of each sample the kernel's clock before, the card's clock,
/// and the kernel's clock after.
#[repr(C)]
#[derive(Debug, Default)]
struct Offsets {
    samples: u32,
    reserved: [u32; 3],
    times: [[Time; 3]; MOST_SAMPLES],
}

/// `_IOWR('=', 9, struct ptp_sys_offset_extended)`.
const PTP_SYS_OFFSET_EXTENDED: libc::Ioctl = 0xc4c0_3d09_u32 as libc::Ioctl;

/// How long reads of this clock take.
///
/// # Errors
/// [`ComponentError`]: no privilege, or a driver that has no such time stamps.
pub fn cross_time_stamps(
    clock: &PtpClock,
    bounds: Bounds<'_>,
) -> Result<Vec<Nanos>, ComponentError> {
    let refused = |source: io::Error| ComponentError::Refused {
        doing: "read a NIC's clock between two reads of the kernel's (PTP_SYS_OFFSET_EXTENDED)",
        remedy: match source.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => "run as root",
            _ => "the driver of this clock has no such time stamps; another clock's driver may",
        },
        source,
    };
    let file = File::open(format!("/dev/{}", clock.device)).map_err(refused)?;
    let mut offsets = Offsets::default();
    bounds.samples(|_| {
        offsets.samples = 1;
        // SAFETY: the kernel reads and writes one `struct ptp_sys_offset_extended`, whose layout
        // `Offsets` has.
        let answer =
            unsafe { libc::ioctl(file.as_raw_fd(), PTP_SYS_OFFSET_EXTENDED, &raw mut offsets) };
        match answer {
            0 => Ok(Some(span(offsets.times[0]))),
            _ => Err(refused(io::Error::last_os_error())),
        }
    })
}

/// From the kernel's clock before the read to the one after it; zero if it went backwards.
fn span([before, _, after]: [Time; 3]) -> Nanos {
    let ns = |time: Time| i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds);
    Nanos::new(u64::try_from(ns(after) - ns(before)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::testing::tree;

    #[test]
    fn clocks_on_a_card_go_before_others() {
        let (_folder, roots) = tree(&[
            ("sys/class/ptp/ptp0/clock_name", "KVM virtual PTP\n"),
            ("sys/class/ptp/ptp1/clock_name", "52:54:00:12:34:56\n"),
            (
                "sys/class/ptp/ptp1/device/uevent",
                "DRIVER=e1000e\nPCI_CLASS=20000\nPCI_SLOT_NAME=0000:00:02.0\n",
            ),
        ]);
        let clocks = ptp_clocks(&roots);
        assert_eq!(clocks[0].device, "ptp1");
        assert_eq!(clocks[0].function.as_deref(), Some("0000:00:02.0"));
        assert_eq!(clocks[1].name, "KVM virtual PTP");
        assert_eq!(clocks[1].function, None);
        let (_folder, nothing) = tree(&[]);
        assert!(ptp_clocks(&nothing).is_empty());
    }

    #[test]
    fn a_read_lasts_from_before_to_after_also_across_a_second() {
        let time = |seconds, nanoseconds| Time {
            seconds,
            nanoseconds,
            reserved: 0,
        };
        // the card's clock may be anywhere
        let card = time(7, 0);
        let across = [
            time(1_700_000_000, 999_999_600),
            card,
            time(1_700_000_001, 400),
        ];
        assert_eq!(span(across), Nanos::new(800));
        assert_eq!(span([time(5, 9), card, time(5, 8)]), Nanos::ZERO);
        assert_eq!(size_of::<Offsets>(), 0x4c0);
    }
}
