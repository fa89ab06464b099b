//! Features of the kernel, each tried once and undone.

use std::fs::OpenOptions;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::thread;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use taillab_model::doctor::{Check, CheckState, Group};

use super::privilege::capability::{NET_ADMIN, NET_RAW, SYS_NICE};
use super::privilege::{Privileges, SUDO};
use crate::process::set_fifo;
use crate::roots::{Roots, read_optional};
use crate::syscall::{answer, descriptor};

pub(super) fn of_kernel(roots: &Roots, privileges: &Privileges) -> Vec<Check> {
    vec![
        tried(
            Group::Kernel,
            "SCHED_FIFO",
            &real_time(),
            "a thread had it for a moment",
            "no real-time priority for a server",
            |_| real_time_remedy(privileges),
        ),
        tried(
            Group::Kernel,
            "PM QoS",
            &latency_request(),
            "/dev/cpu_dma_latency can be held",
            "idle CPUs cannot be kept from sleeping deeply",
            |errno| latency_remedy(errno, privileges),
        ),
        tried(
            Group::Kernel,
            "io_uring",
            &io_uring(),
            "a ring was made",
            "servers that use it cannot be measured",
            |errno| io_uring_remedy(errno, io_uring_disabled(roots)),
        ),
    ]
}

pub(super) fn of_network(privileges: &Privileges) -> Vec<Check> {
    vec![
        tried(
            Group::Network,
            "SO_TIMESTAMPING",
            &timestamping(),
            "the kernel stamps what the generator sends and receives",
            "the generator’s own delays count as the server’s",
            |_| "use a real Linux kernel (sandboxes such as gVisor lack it)".into(),
        ),
        tried(
            Group::Network,
            "TCP_REPAIR",
            &tcp_repair(),
            "sequence numbers of a connection can be read",
            "the generator’s TCP requests cannot be found in the server’s events",
            |errno| match errno {
                Errno::PERM => privileges.how_to_get(NET_ADMIN),
                _ => "use a real Linux kernel (sandboxes such as gVisor lack it)".into(),
            },
        ),
        tried(
            Group::Network,
            "AF_XDP",
            &xdp(),
            "a socket was made",
            "no comparison with kernel bypass",
            |errno| match errno {
                Errno::PERM => privileges.how_to_get(NET_RAW),
                _ => "boot a kernel built with CONFIG_XDP_SOCKETS=y".into(),
            },
        ),
    ]
}

/// `sched_setscheduler(2)` of a thread that ends at once.
fn real_time() -> io::Result<()> {
    let thread = thread::Builder::new().spawn(|| set_fifo(0, 1))?;
    (thread.join()).unwrap_or_else(|_| Err(io::Error::other("the trial’s thread ended early")))
}

fn real_time_remedy(privileges: &Privileges) -> String {
    if privileges.holds(SYS_NICE) {
        // RT_GROUP_SCHED: a new group has no real-time runtime at all, and version 2 cannot give it any
        "give this control group some (version 1: echo 950000 > …/cpu.rt_runtime_us), or start from \
         the root group (echo $$ > /sys/fs/cgroup/cgroup.procs), or boot with rt_group_sched=0"
            .into()
    } else {
        privileges.how_to_get(SYS_NICE)
    }
}

/// The file is opened and closed: a request without a value changes nothing.
fn latency_request() -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).open("/dev/cpu_dma_latency").map(drop)
}

fn latency_remedy(errno: Errno, privileges: &Privileges) -> String {
    match errno {
        Errno::ACCESS | Errno::PERM if !privileges.is_root() => SUDO.into(),
        Errno::ACCESS | Errno::PERM => {
            "start the container with --device /dev/cpu_dma_latency".into()
        }
        _ => {
            "boot a kernel built with CONFIG_CPU_IDLE=y (container: --device /dev/cpu_dma_latency)"
                .into()
        }
    }
}

/// `io_uring_setup(2)` with one entry.
fn io_uring() -> io::Result<()> {
    /// Bytes of `struct io_uring_params`.
    const PARAMETERS: usize = 120;
    let mut parameters = [0_u64; PARAMETERS / 8];
    // SAFETY: the kernel reads and writes a `struct io_uring_params` of 120 bytes in the
    // zeroed local; all zero asks for the defaults.
    let ret = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr()) };
    answer(ret).map(descriptor).map(drop)
}

fn io_uring_disabled(roots: &Roots) -> bool {
    read_optional(&roots.proc.join("sys/kernel/io_uring_disabled")).is_some_and(|v| v != "0")
}

fn io_uring_remedy(errno: Errno, disabled: bool) -> String {
    match errno {
        Errno::PERM if disabled => "sudo sysctl kernel.io_uring_disabled=0".into(),
        Errno::PERM => "start the container with --security-opt seccomp=unconfined".into(),
        Errno::NOMEM => "raise the limit on locked memory: `ulimit -l unlimited` as root".into(),
        _ => "boot a kernel built with CONFIG_IO_URING=y".into(),
    }
}

/// Software stamps at sending and receiving, as the generator asks for them.
fn timestamping() -> io::Result<()> {
    let socket = UdpSocket::bind(("127.0.0.1", 0)).or_else(|_| UdpSocket::bind(("::1", 0)))?;
    let wanted = libc::SOF_TIMESTAMPING_TX_SOFTWARE
        | libc::SOF_TIMESTAMPING_RX_SOFTWARE
        | libc::SOF_TIMESTAMPING_SOFTWARE
        | libc::SOF_TIMESTAMPING_OPT_ID
        | libc::SOF_TIMESTAMPING_OPT_TSONLY;
    set(
        &socket,
        libc::SOL_SOCKET,
        libc::SO_TIMESTAMPING,
        wanted as libc::c_int,
    )
}

/// Repair mode of a socket that is not connected (`tcp_can_repair_sock`).
fn tcp_repair() -> io::Result<()> {
    let make = |family| socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let socket = make(AddressFamily::INET).or_else(|_| make(AddressFamily::INET6))?;
    set(&socket, libc::IPPROTO_TCP, libc::TCP_REPAIR, 1)
}

fn xdp() -> io::Result<()> {
    let made = socket_with(
        AddressFamily::from_raw(libc::AF_XDP as u16),
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        None,
    );
    Ok(made.map(drop)?)
}

fn set(
    socket: &impl AsRawFd,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the kernel reads one int from a local that outlives the call, and the
    // descriptor is open for as long as `socket`.
    let ret = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    answer(ret).map(drop)
}

/// The check for a trial. A failure is only a warning, since the main commands work without the
/// feature.
fn tried(
    group: Group,
    name: &str,
    outcome: &io::Result<()>,
    works: &str,
    lost: &str,
    remedy: impl FnOnce(Errno) -> String,
) -> Check {
    match outcome {
        Ok(()) => Check::ok(group, name, works),
        Err(error) => {
            let errno = Errno::from_io_error(error).unwrap_or(Errno::IO);
            let text = error.to_string();
            let answer = text.split(" (os error").next().unwrap_or(&text);
            let found = format!("refused ({answer}): {lost}");
            Check::not_ok(group, name, CheckState::Warning, found, remedy(errno))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::tree;
    use super::*;

    #[test]
    fn remedies_follow_the_kernels_answer() {
        assert!(io_uring_remedy(Errno::PERM, true).contains("sysctl"));
        assert!(io_uring_remedy(Errno::PERM, false).contains("seccomp"));
        assert!(io_uring_remedy(Errno::NOSYS, false).contains("CONFIG_IO_URING"));
        for (uid, effective, real_time, latency) in [
            (0, "ffffffffff", "rt_runtime_us", "--device"),
            (0, "0", "--cap-add SYS_NICE", "--device"),
            (1000, "0", "sudo", "sudo"),
        ] {
            let status = format!("Uid:\t{uid}\t{uid}\t{uid}\t{uid}\nCapEff:\t{effective}\n");
            let (_folder, roots) = tree(&[("proc/self/status", &status)]);
            let privileges = Privileges::read(&roots);
            assert!(real_time_remedy(&privileges).contains(real_time));
            let denied = latency_remedy(Errno::ACCESS, &privileges);
            assert!(denied.contains(latency), "{denied}");
            assert!(latency_remedy(Errno::NOENT, &privileges).contains("CONFIG_CPU_IDLE"));
        }
    }

    #[test]
    fn trials_leave_no_descriptor_and_no_priority_behind() {
        let files = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        // SAFETY: asks for the calling thread's policy and touches no memory.
        let policy = || unsafe { libc::sched_getscheduler(0) };
        let before = (files(), policy());
        for _ in 0..200 {
            // any of them may be refused here
            let _ = (io_uring(), xdp(), tcp_repair(), timestamping());
            let _ = (real_time(), latency_request());
        }
        let after = (files(), policy());
        // other tests of this process open files too, but not hundreds
        assert!(after.0 < before.0 + 100, "{before:?} {after:?}");
        assert_eq!(after.1, before.1);
    }

    #[test]
    fn a_refused_trial_names_the_kernels_answer_and_what_is_lost() {
        let refused = Err(io::Error::from_raw_os_error(1));
        let check = tried(Group::Kernel, "x", &refused, "", "no more x", |errno| {
            format!("{errno:?}")
        });
        assert_eq!(check.found, "refused (Operation not permitted): no more x");
        assert_eq!(check.state, CheckState::Warning);
        assert!(check.remedy.is_some());
    }
}
