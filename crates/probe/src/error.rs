//! Why the probe cannot run here.

use std::io;

use thiserror::Error;

/// Why the probe cannot run; each text is one line with the cause and the remedy.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The process may not load eBPF programs.
    #[error(
        "no privilege to load eBPF programs: run as root, or with CAP_BPF and CAP_PERFMON \
         in the initial user namespace (a container needs --privileged)"
    )]
    NoPrivilege,
    /// The numbers of processes and threads here are not those that the programs see.
    #[error(
        "taillab runs in a pid namespace of its own (a container), where the numbers of processes and threads are \
         not the kernel's: run it in the host's (docker run --pid=host), or on the host"
    )]
    PidNamespace,
    /// The kernel has no type information.
    #[error(
        "this kernel has no BTF type information (/sys/kernel/btf/vmlinux is missing): boot a \
         kernel built with CONFIG_DEBUG_INFO_BTF=y (Debian 12 and Ubuntu 24.04 kernels are)"
    )]
    NoBtf,
    /// The kernel refuses a hook that a stamp needs, and there is no other hook for it.
    #[error(
        "the kernel refuses the hook {hook} that stamp {stamp} needs ({phase}: {source}): \
         use Linux 6.1 or later with BPF_SYSCALL, BPF_JIT and FTRACE_SYSCALLS, and kernel \
         lockdown below `confidentiality`"
    )]
    HookRefused {
        /// The stamp that would be missing.
        stamp: &'static str,
        /// The hook, e.g. `tp_btf/netif_rx`.
        hook: &'static str,
        /// Whether loading or attaching failed.
        phase: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// No memory for the rings or for the recording.
    #[error(
        "not enough memory for {what} ({bytes} bytes): free memory, use smaller rings or record \
         fewer requests ({source})"
    )]
    OutOfMemory {
        /// What the memory was for.
        what: &'static str,
        /// The bytes that were asked for.
        bytes: u64,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The specification is impossible.
    #[error("{0}")]
    BadSpec(String),
    /// The kernel did something unexpected.
    #[error(
        "the probe failed while {doing}: {source}; please report it with your kernel's version"
    )]
    Kernel {
        /// What the probe was doing.
        doing: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// taillab was built without its eBPF programs.
    #[error(
        "this taillab was built without its probe: build it with the feature `bpf` \
         (needs clang and libelf-dev)"
    )]
    NotBuilt,
}

#[cfg(feature = "bpf")]
impl ProbeError {
    /// The kernel did not give these bytes for `what`.
    pub(crate) fn out_of_memory(what: &'static str, bytes: u64) -> impl Fn(io::Error) -> Self {
        move |source| Self::OutOfMemory {
            what,
            bytes,
            source,
        }
    }

    /// libbpf failed while the probe was `doing` this.
    pub(crate) fn kernel(doing: &'static str) -> impl Fn(libbpf_rs::Error) -> Self {
        // without libbpf-rs's type, which is not part of this crate's interface
        move |error| Self::Kernel {
            doing,
            source: io::Error::other(error.to_string()),
        }
    }

    /// The object lacks a map or a program, which cannot happen.
    pub(crate) fn missing() -> Self {
        Self::Kernel {
            doing: "looking up its maps and programs",
            source: io::ErrorKind::NotFound.into(),
        }
    }
}
