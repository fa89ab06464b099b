//! Software events of the kernel's perf, to which programs can be attached.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use libbpf_rs::libbpf_sys;

/// Opens the event of major page faults, which wait for storage, for all threads, on each of the
/// first `cpus` CPUs that is online (`perf_event_open(2)`, `PERF_COUNT_SW_PAGE_FAULTS_MAJ`; raised
/// by the kernel's `mm_account_fault`). Every fault raises it.
pub(crate) fn major_faults(cpus: usize) -> io::Result<Vec<OwnedFd>> {
    let mut attr = libbpf_sys::perf_event_attr {
        type_: libbpf_sys::PERF_TYPE_SOFTWARE,
        size: size_of::<libbpf_sys::perf_event_attr>() as u32,
        config: libbpf_sys::PERF_COUNT_SW_PAGE_FAULTS_MAJ.into(),
        ..Default::default()
    };
    attr.__bindgen_anon_1.sample_period = 1;
    let mut events = Vec::with_capacity(cpus);
    for cpu in 0..cpus {
        match open(&attr, cpu) {
            Ok(event) => events.push(event),
            // the CPU is not online
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(events)
}

fn open(attr: &libbpf_sys::perf_event_attr, cpu: usize) -> io::Result<OwnedFd> {
    const EVERY_THREAD: libc::pid_t = -1;
    const NO_GROUP: libc::c_int = -1;
    // SAFETY: the kernel reads `attr`, whose size it says, and keeps no pointer to it.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const *attr,
            EVERY_THREAD,
            cpu as libc::c_int,
            NO_GROUP,
            libbpf_sys::PERF_FLAG_FD_CLOEXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}
