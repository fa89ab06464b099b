//! Calls of a network device's driver (`ioctl(SIOCETHTOOL)`, the kernel's
//! `include/uapi/linux/ethtool.h`).

use std::io;
use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketType, socket};

use crate::syscall::{answer, interface_request};

const SIOCETHTOOL: libc::c_ulong = 0x8946;

/// Asks the driver of a device in the thread's network namespace; `words` begins with the command,
/// the answer replaces the rest.
pub(crate) fn ask(device: &str, words: &mut [u32]) -> io::Result<()> {
    let mut request = interface_request(device)?;
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    let any = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    // SAFETY: `request` names `words`, which outlives the call and has the size of the
    // structure that its command asks the kernel to read or write.
    let asked = unsafe { libc::ioctl(any.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
    answer(asked).map(drop)
}
