//! Loads and attaches the eBPF programs, and finds by trial which hooks the kernel allows.
//!
//! A version number or the kernel's type information proves nothing: a program that loads
//! may not attach. So a hook counts as allowed only after its
//! programs have been loaded and attached. Where every best hook works, as on most
//! kernels, that takes a single load.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::path::Path;

use libbpf_rs::btf::{Btf, types::Func};
use libbpf_rs::{
    ErrorKind, Link, MapCore, MapHandle, MapType, Object, ObjectBuilder, OpenObject, ProgramType,
    libbpf_sys,
};

use taillab_model::{MiddleStamps, Monotonic, Transport};

use crate::cgroup::{self, Cgroup};
use crate::hooks::{self, Choice, Failure, Refusal, Stamp};
use crate::perf_event;
use crate::slices;
use crate::{Addresses, Disturbances, ProbeError, ProbeSpec, ServerProcesses};

/// The compiled programs.
static OBJECT: &Aligned<[u8]> =
    &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/stamps.bpf.o")));

/// Bytes of an object file. libbpf reads its structures in place, so they must be aligned.
#[repr(C, align(8))]
pub(crate) struct Aligned<T: ?Sized>(pub(crate) T);

/// CPUs in the programs' bitmap.
const MAX_CPUS: usize = 1024;

/// Processes that the programs compare with.
const MAX_TGIDS: usize = 64;

/// Local addresses that the programs compare with.
const MAX_ADDRESSES: usize = Addresses::MOST;

/// Ports that the programs compare with.
const MAX_SERVED: usize = 64;

/// Devices that the programs compare with.
const MAX_DEVICES: usize = 8;

/// Bytes of a segment's payload that the programs copy.
const MAX_PAYLOAD: u16 = 2_048;

/// The constants of the programs; the same layout as `struct config` in common.bpf.h.
#[repr(C)]
pub(crate) struct Config {
    server_cpus: [u64; MAX_CPUS / 64],
    generator_cpus: [u64; MAX_CPUS / 64],
    /// The time that the events' times are relative to.
    pub(crate) base: u64,
    cgroup: u64,
    /// Events that each CPU's ring holds.
    pub(crate) slots: u32,
    netns_inode: u32,
    device_count: u32,
    devices: [u32; MAX_DEVICES],
    port: u32,
    membership: u32,
    cgroup_level: u32,
    cgroup_subsystem: u32,
    pub(crate) payload_bytes: u32,
    pub(crate) payload_copied: u32,
    sleeps: u32,
    tgid_count: u32,
    tgids: [u32; MAX_TGIDS],
    address_count: u32,
    addresses_left_out: u32,
    addresses: [u32; 4 * MAX_ADDRESSES],
    other_count: u32,
    others: [u32; MAX_TGIDS],
    queues: u32,
    served_count: u32,
    served: [u32; MAX_SERVED],
}

/// `enum membership` in common.bpf.h.
mod membership {
    pub(super) const THESE_PROCESSES: u32 = 0;
    pub(super) const IN_NAMESPACE: u32 = 1;
    pub(super) const IN_CGROUP: u32 = 2;
}

impl Config {
    fn bytes(&self) -> &[u8] {
        // SAFETY: Config is repr(C) of integers without padding (its u64s come first
        // and its u32s are even in number), so all its bytes are initialised.
        unsafe { std::slice::from_raw_parts((&raw const *self).cast(), size_of::<Self>()) }
    }
}

/// Positions that the producer keeps free: MARGIN in common.bpf.h.
const MARGIN: u32 = 64;

/// Datagrams that a device's queue may hold: as in packet.bpf.h.
const MOST_WAITING: u32 = 16_384;

/// Sockets of streams with segments in a device's queue: as in packet.bpf.h.
const MOST_SOCKETS: u32 = 4_096;

/// Bytes of an event in a ring.
const SLOT_BYTES: usize = 16;

/// Programs and maps in the kernel, not attached.
pub(crate) struct Loaded {
    pub(crate) object: Object,
    pub(crate) choice: Choice,
    pub(crate) spec: CheckedSpec,
}

/// The checked specification, ready for loading.
pub(crate) struct CheckedSpec {
    pub(crate) config: Config,
    pub(crate) cpus: usize,
    /// When everything but T1 and T6 is recorded.
    pub(crate) when: MiddleStamps,
    pub(crate) stamps: Vec<&'static Stamp>,
}

/// Loads the programs that this kernel allows, without the hooks in `avoided`.
pub(crate) fn load(spec: &ProbeSpec, avoided: &[&str]) -> Result<Loaded, ProbeError> {
    check_kernel()?;
    let mut checked = check(spec)?;
    let mut chosen = choose(&checked, avoided);
    // Linux 6.4 to 6.10 have the function, but not for this kind of program
    if checked.config.payload_copied != 0 && chosen.as_ref().is_err_and(|(.., r)| !r.out_of_memory)
    {
        checked.config.payload_copied = 0;
        chosen = choose(&checked, avoided);
    }
    match chosen {
        Ok((object, choice)) => Ok(Loaded {
            object,
            choice,
            spec: checked,
        }),
        Err((_, _, refusal)) if refusal.out_of_memory => Err(ProbeError::OutOfMemory {
            what: "the event rings",
            bytes: checked.cpus as u64 * u64::from(checked.config.slots) * SLOT_BYTES as u64,
            source: refusal.source,
        }),
        Err((stamp, hook, refusal)) => Err(ProbeError::HookRefused {
            stamp,
            hook,
            phase: refusal.phase,
            source: refusal.source,
        }),
    }
}

fn choose(checked: &CheckedSpec, avoided: &[&str]) -> Result<(Object, Choice), Failure> {
    hooks::choose(&checked.stamps, avoided, |programs| {
        try_load(checked, programs)
    })
}

/// The kernel function with which the programs read payload anywhere in a packet.
pub(crate) const READ_PAYLOAD: &str = "bpf_dynptr_from_skb";

/// Whether the kernel has a function of this name that programs may call.
pub(crate) fn has_function(name: &str) -> bool {
    Btf::from_vmlinux().is_ok_and(|btf| btf.type_by_name::<Func<'_>>(name).is_some())
}

/// The pid namespace that programs see (`PROC_PID_INIT_INO` of include/linux/proc_ns.h).
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Checks that programs can be loaded at all, and that they know threads by the numbers that they have here.
pub(crate) fn check_kernel() -> Result<(), ProbeError> {
    // libbpf prints the kernel's refusals on stderr, which belongs to the command
    libbpf_rs::set_print(None);
    check_privilege()?;
    let own = fs::read_link("/proc/self/ns/pid");
    if own.is_ok_and(|own| own.as_os_str() != FIRST_PID_NAMESPACE) {
        return Err(ProbeError::PidNamespace);
    }
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Err(ProbeError::NoBtf);
    }
    Ok(())
}

/// The specification as the programs need it.
pub(crate) fn check(spec: &ProbeSpec) -> Result<CheckedSpec, ProbeError> {
    let bad = |what: String| Err(ProbeError::BadSpec(what));
    if spec.server_port == 0 {
        return bad("port 0 is not a server's port: give the port that it listens on".into());
    }
    let Ok(netns_inode) = u32::try_from(spec.devices.netns_inode) else {
        return bad(format!(
            "{} is not the inode of a network namespace: read it from /proc/PID/ns/net",
            spec.devices.netns_inode
        ));
    };
    let ifindexes = &spec.devices.ifindexes;
    if ifindexes.len() > MAX_DEVICES {
        return bad(format!(
            "{} devices are more than the {MAX_DEVICES} that the probe can distinguish: watch \
             every device of the namespace instead",
            ifindexes.len()
        ));
    }
    if spec.payload_bytes > MAX_PAYLOAD {
        return bad(format!(
            "{} bytes of payload are more than the probe can record: give at most {MAX_PAYLOAD}",
            spec.payload_bytes
        ));
    }
    if spec.others.len() > MAX_TGIDS {
        return bad(format!(
            "{} processes of others share the server's port, more than the {MAX_TGIDS} that the probe can \
             distinguish: give it a port of its own",
            spec.others.len()
        ));
    }
    let cpus = libbpf_rs::num_possible_cpus().map_err(ProbeError::kernel("counting CPUs"))?;
    // of datagrams, their ids
    let reads_payload = spec.payload_bytes > 0 || spec.transport == Transport::Udp;
    let (membership, cgroup, processes) = server(&spec.server).map_err(ProbeError::BadSpec)?;
    let (addresses, addresses_left_out) =
        addresses(&spec.addresses).map_err(ProbeError::BadSpec)?;
    // responses to clients at further ports would be taken for questions
    let served = spec.served_ports.iter().take(MAX_SERVED);
    let served: Vec<u32> = served.copied().map(Into::into).collect();
    Ok(CheckedSpec {
        config: Config {
            server_cpus: bitmap(&spec.server_cpus, cpus).map_err(ProbeError::BadSpec)?,
            generator_cpus: bitmap(&spec.generator_cpus, cpus).map_err(ProbeError::BadSpec)?,
            base: now().nanos_since_boot(),
            cgroup: cgroup.inode,
            slots: slots(spec.ring_bytes_per_cpu, cpus).map_err(ProbeError::BadSpec)?,
            netns_inode,
            device_count: ifindexes.len() as u32,
            devices: padded(ifindexes),
            port: spec.server_port.into(),
            membership,
            cgroup_level: cgroup.level,
            cgroup_subsystem: cgroup.subsystem,
            payload_bytes: spec.payload_bytes.into(),
            payload_copied: (reads_payload && has_function(READ_PAYLOAD)).into(),
            sleeps: spec.disturbances.contains(Disturbances::SCHED).into(),
            tgid_count: processes.len() as u32,
            tgids: padded(&processes),
            address_count: (addresses.len() / 4) as u32,
            addresses_left_out: addresses_left_out.into(),
            addresses: padded(&addresses),
            other_count: spec.others.len() as u32,
            others: padded(&spec.others),
            queues: spec.queues.into(),
            served_count: served.len() as u32,
            served: padded(&served),
        },
        cpus,
        when: spec.stamps,
        stamps: hooks::stamps(spec),
    })
}

/// The numbers, followed by zeros.
fn padded<const N: usize>(numbers: &[u32]) -> [u32; N] {
    std::array::from_fn(|at| numbers.get(at).copied().unwrap_or(0))
}

/// Four words for each address, as the programs read them in a packet, and whether they are left out.
fn addresses(wanted: &Addresses) -> Result<(Vec<u32>, bool), String> {
    let (addresses, left_out) = match wanted {
        Addresses::All => return Ok((Vec::new(), false)),
        Addresses::Only(addresses) => (addresses, false),
        Addresses::AllBut(addresses) => (addresses, true),
    };
    if addresses.len() > MAX_ADDRESSES {
        return Err(format!(
            "{} addresses are more than the {MAX_ADDRESSES} that the probe can distinguish: watch all of them",
            addresses.len()
        ));
    }
    if addresses.is_empty() && !left_out {
        return Err("no address of the server is named: give at least one".into());
    }
    let words = |address: &IpAddr| {
        let bytes = match address {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => *address,
        };
        let bytes = bytes.octets();
        [0, 4, 8, 12].map(|at| {
            let word = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
            u32::from_ne_bytes(word)
        })
    };
    Ok((addresses.iter().flat_map(words).collect(), left_out))
}

/// CPUs as a bitmap; `cpus` is the largest number of CPUs that the machine can have.
fn bitmap(wanted: &[u16], cpus: usize) -> Result<[u64; MAX_CPUS / 64], String> {
    let limit = cpus.min(MAX_CPUS);
    let mut bits = [0; MAX_CPUS / 64];
    for &cpu in wanted {
        let cpu = usize::from(cpu);
        if cpu >= limit {
            return Err(format!(
                "there is no CPU {cpu} that the probe can watch: give CPUs below {limit}"
            ));
        }
        bits[cpu / 64] |= 1 << (cpu % 64);
    }
    Ok(bits)
}

/// Events that each CPU's ring holds: a power of two.
fn slots(ring_bytes: usize, cpus: usize) -> Result<u32, String> {
    // at least enough for events beyond the margin
    let slots = (ring_bytes / SLOT_BYTES)
        .max(4 * MARGIN as usize)
        .checked_next_power_of_two();
    // an event's index over all CPUs has 32 bits
    let slots = slots.filter(|slots| slots.saturating_mul(cpus) <= u32::MAX as usize);
    slots
        .and_then(|slots| u32::try_from(slots).ok())
        .ok_or_else(|| {
            let most = (u32::MAX as usize / cpus).next_power_of_two() / 2 * SLOT_BYTES;
            format!(
                "rings of {ring_bytes} bytes on {cpus} CPUs are too large: give at most {most} bytes"
            )
        })
}

/// Entries of a table of the programs that forgets what was used least, at least so many. Each CPU keeps up to 128 free
/// ones for itself; with too few, entries that are in use make room for others.
fn entries(cpus: usize, least: u32) -> u32 {
    (cpus as u32 * 256).max(least)
}

/// How the programs recognise the server's threads: their membership, its cgroup, those of its processes that are
/// still there (one that serves a single connection ends with it).
fn server(processes: &ServerProcesses) -> Result<(u32, Cgroup, Vec<u32>), String> {
    let named = match processes {
        ServerProcesses::InNamespace => {
            return Ok((membership::IN_NAMESPACE, Cgroup::default(), Vec::new()));
        }
        ServerProcesses::Cgroup(directory) => {
            return Ok((membership::IN_CGROUP, Cgroup::of(directory)?, Vec::new()));
        }
        ServerProcesses::These(processes) => processes,
    };
    let Some(first) = named.first() else {
        return Err("no process of the server is named: give at least one process id".into());
    };
    let exists = |process: &u32| Path::new("/proc").join(process.to_string()).exists();
    let processes: Vec<u32> = named.iter().copied().filter(exists).collect();
    if processes.is_empty() {
        return Err(format!(
            "there is no process {first}: start the server first and give its process id",
        ));
    }
    if processes.len() > MAX_TGIDS {
        return Err(format!(
            "{} processes are more than the {MAX_TGIDS} that the probe can distinguish: put the \
             server into its own cgroup or network namespace and watch that",
            processes.len()
        ));
    }
    Ok((membership::THESE_PROCESSES, Cgroup::default(), processes))
}

/// The clock of the programs (`bpf_ktime_get_ns`).
pub(crate) fn now() -> Monotonic {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let ns = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
    Monotonic::from_nanos_since_boot(ns)
}

/// Loads these programs and attaches them for a moment.
pub(crate) fn try_load(checked: &CheckedSpec, programs: &[&str]) -> Result<Object, Refusal> {
    let open = ObjectBuilder::default()
        .open_memory(&OBJECT.0)
        .map_err(|e| Refusal::new("opening", &e))?;
    let object = configure(open, checked, programs)
        .map_err(|e| Refusal::new("configuring", &e))?
        .load()
        .map_err(|e| Refusal::new("loading", &e))?;
    attach(&object, |_| true).map_err(|e| Refusal::new("attaching", &e))?;
    Ok(object)
}

fn configure(
    mut open: OpenObject,
    checked: &CheckedSpec,
    programs: &[&str],
) -> Result<OpenObject, libbpf_rs::Error> {
    for mut program in open.progs_mut() {
        let wanted = programs.iter().any(|&name| program.name() == name);
        let marks =
            matches!(checked.when, MiddleStamps::Sampled(_)) && program.name() == slices::MARK;
        program.set_autoload(wanted || marks);
    }
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        match name.as_str() {
            "rings" => map.set_max_entries(checked.cpus as u32)?,
            "slots" => map.set_max_entries(checked.cpus as u32 * checked.config.slots)?,
            "waiting_datagrams" if checked.config.queues != 0 => {
                map.set_max_entries(MOST_WAITING)?;
            }
            "waiting_segments" if checked.config.queues != 0 => {
                map.set_max_entries(MOST_SOCKETS)?;
            }
            "asks" => map.set_max_entries(entries(checked.cpus, 4_096))?,
            "questions" => map.set_max_entries(entries(checked.cpus, 16_384))?,
            name if name.ends_with(".rodata") => map.set_initial_value(checked.config.bytes())?,
            _ => {}
        }
    }
    Ok(open)
}

/// Attaches those of the loaded programs that are `wanted`; dropping the links detaches them.
pub(crate) fn attach(
    object: &Object,
    wanted: impl Fn(&str) -> bool,
) -> Result<Vec<Link>, libbpf_rs::Error> {
    let loaded = object.progs_mut().filter(|program| program.autoload());
    let wanted = loaded.filter(|program| program.name().to_str().is_some_and(&wanted));
    let mut programs: Vec<_> = wanted.collect();
    programs.sort_by_key(|program| hooks::attach_rank(program.name()));
    let mut links = Vec::new();
    for program in programs {
        match program.prog_type() {
            // never attached: slices only run it
            ProgramType::RawTracepoint => {}
            ProgramType::CgroupSockAddr => {
                links.push(program.attach_cgroup(cgroup::root()?.as_raw_fd())?);
            }
            ProgramType::PerfEvent => {
                for event in perf_event::major_faults(libbpf_rs::num_possible_cpus()?)? {
                    links.push(program.attach_perf_event(event.as_raw_fd())?);
                    // the link closes the event
                    let _ = event.into_raw_fd();
                }
            }
            _ => links.push(program.attach()?),
        }
    }
    Ok(links)
}

impl Refusal {
    fn new(phase: &'static str, error: &libbpf_rs::Error) -> Self {
        Self {
            phase,
            out_of_memory: matches!(error.kind(), ErrorKind::OutOfMemory | ErrorKind::TooBig),
            source: as_io(error),
        }
    }
}

/// The error without libbpf-rs's type, which is not part of this crate's interface.
pub(crate) fn as_io(error: &libbpf_rs::Error) -> io::Error {
    io::Error::other(error.to_string())
}

/// `CAP_SYS_ADMIN` alone, or `CAP_BPF` with `CAP_PERFMON`, lets a process load tracing programs.
fn check_privilege() -> Result<(), ProbeError> {
    const CAP_SYS_ADMIN: u64 = 1 << 21;
    const CAP_PERFMON: u64 = 1 << 38;
    const CAP_BPF: u64 = 1 << 39;
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    if let Some(effective) = effective
        && effective & CAP_SYS_ADMIN == 0
        && effective & (CAP_BPF | CAP_PERFMON) != CAP_BPF | CAP_PERFMON
    {
        return Err(ProbeError::NoPrivilege);
    }
    // capabilities in a nested user namespace do not count, so really try
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
        ..Default::default()
    };
    match MapHandle::create(MapType::Array, Some("trial"), 4, 4, 1, &options) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(ProbeError::NoPrivilege),
        made => made
            .map(drop)
            .map_err(ProbeError::kernel("making a small eBPF map")),
    }
}

/// The kernel's counters of one loaded program.
pub(crate) fn program_info(
    program: &libbpf_rs::Program<'_>,
) -> io::Result<libbpf_sys::bpf_prog_info> {
    use std::os::fd::AsFd;
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut size = size_of::<libbpf_sys::bpf_prog_info>() as u32;
    // SAFETY: the descriptor is open for as long as `program`, and the kernel writes
    // at most `size` bytes to `info`, which asks for none of its arrays.
    let ret = unsafe {
        libbpf_sys::bpf_prog_get_info_by_fd(program.as_fd().as_raw_fd(), &raw mut info, &mut size)
    };
    if ret < 0 {
        return Err(io::Error::from_raw_os_error(-ret));
    }
    Ok(info)
}

/// The map of this name.
pub(crate) fn map<'o>(object: &'o Object, name: &str) -> Result<libbpf_rs::Map<'o>, ProbeError> {
    let mut maps = object.maps();
    maps.find(|map| map.name() == name)
        .ok_or_else(ProbeError::missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No process has a number so large (`PID_MAX_LIMIT` is 2²²).
    const NOBODY: u32 = u32::MAX;

    #[test]
    fn a_process_that_has_ended_meanwhile_is_left_out() {
        let own = std::process::id();
        let of = |processes: &[u32]| server(&ServerProcesses::These(processes.to_vec()));
        let Ok((how, _, processes)) = of(&[NOBODY, own]) else {
            panic!("refused");
        };
        assert_eq!(how, membership::THESE_PROCESSES);
        assert_eq!(processes, [own]);
        let refused = |processes: &[u32]| of(processes).err().unwrap_or_default();
        let gone = refused(&[NOBODY, NOBODY - 1]);
        assert!(gone.contains("there is no process 4294967295"), "{gone}");
        assert!(refused(&[]).contains("no process of the server is named"));
    }

    #[test]
    fn each_cpu_has_entries_of_the_table_beside_those_it_keeps() {
        let asks = |cpus| entries(cpus, 4_096);
        assert_eq!([asks(1), asks(2), asks(16)], [4_096; 3]);
        assert_eq!(asks(256), 65_536);
    }
}
