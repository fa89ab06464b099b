//! Small programs at a device's ingress or at a timer's interrupts, assembled by hand: their work must
//! happen in the kernel's softirq or interrupt, where no thread of ours can run.
//!
//! A link (`BPF_TCX_INGRESS`, Linux 6.6) or a perf event attaches them; the kernel detaches them when
//! its descriptor is closed. Instructions are those of the kernel's
//! `Documentation/bpf/standardization`.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use taillab_load::perf::software_event;
use taillab_model::Nanos;

const MAP_CREATE: libc::c_long = 0;
const MAP_LOOKUP: libc::c_long = 1;
const PROG_LOAD: libc::c_long = 5;
const LINK_CREATE: libc::c_long = 28;
const MAP_TYPE_ARRAY: u32 = 2;
const TCX_INGRESS: u32 = 46;
/// The length of `union bpf_attr` that we pass, in bytes; unused bytes must be zero.
const ATTRIBUTES: usize = 120;

/// `enum bpf_prog_type`.
#[derive(Clone, Copy)]
#[repr(u32)]
enum ProgramType {
    /// `BPF_PROG_TYPE_SCHED_CLS`
    Packet = 3,
    /// `BPF_PROG_TYPE_PERF_EVENT`
    PerfEvent = 7,
}

/// A program's verdict on a packet (`enum tcx_action_base`).
pub(super) const TCX_NEXT: i32 = -1;
pub(super) const TCX_DROP: i32 = 2;

/// What programs at a device's ingress need.
pub(super) const REMEDY: &str =
    "it needs root, and Linux 6.6 for programs at a device's ingress (tcx)";

/// Helpers (`enum bpf_func_id`).
pub(super) const LOOKUP: i32 = 1;
pub(super) const KTIME: i32 = 5;
pub(super) const LOAD_BYTES: i32 = 26;

/// Jumps, on 64-bit registers.
pub(super) const JEQ: u8 = 0x15;
pub(super) const JNE: u8 = 0x55;
pub(super) const JGE: u8 = 0x35;
pub(super) const JLT: u8 = 0xa5;

fn bpf(command: libc::c_long, attributes: &[u8; ATTRIBUTES]) -> io::Result<i32> {
    // SAFETY: the kernel reads `ATTRIBUTES` bytes; every address in them is of memory that
    // the callers keep until this returns.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            attributes.as_ptr(),
            ATTRIBUTES as libc::c_long,
        )
    };
    match i32::try_from(result) {
        Ok(result) if result >= 0 => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}

fn put(attributes: &mut [u8], at: usize, bytes: &[u8]) {
    attributes[at..at + bytes.len()].copy_from_slice(bytes);
}

fn owned(fd: i32) -> OwnedFd {
    // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// An array of 16-byte values, zero at first.
pub(super) struct Array(OwnedFd);

impl Array {
    pub(super) fn new(entries: u32) -> io::Result<Self> {
        let mut attributes = [0; ATTRIBUTES];
        for (at, value) in [(0, MAP_TYPE_ARRAY), (4, 4), (8, 16), (12, entries)] {
            put(&mut attributes, at, &value.to_ne_bytes());
        }
        bpf(MAP_CREATE, &attributes).map(|fd| Self(owned(fd)))
    }

    /// The two halves of a value.
    pub(super) fn get(&self, key: u32) -> io::Result<(u64, u64)> {
        let mut value = [0_u64; 2];
        let mut attributes = [0; ATTRIBUTES];
        put(&mut attributes, 0, &self.0.as_raw_fd().to_ne_bytes());
        put(&mut attributes, 8, &((&raw const key) as u64).to_ne_bytes());
        put(
            &mut attributes,
            16,
            &((&raw mut value) as u64).to_ne_bytes(),
        );
        bpf(MAP_LOOKUP, &attributes)?;
        // the kernel wrote it through an address that the compiler does not know of
        Ok(std::hint::black_box((value[0], value[1])))
    }
}

/// A program being written; jumps name labels.
#[derive(Default)]
pub(super) struct Assembly {
    code: Vec<u64>,
    jumps: Vec<(usize, &'static str)>,
    labels: Vec<(&'static str, usize)>,
}

impl Assembly {
    fn emit(&mut self, code: u8, dst: u8, src: u8, offset: i16, imm: i32) -> &mut Self {
        self.code.push(
            u64::from(code)
                | u64::from(src << 4 | dst) << 8
                | u64::from(offset as u16) << 16
                | u64::from(imm as u32) << 32,
        );
        self
    }

    /// dst = src
    pub(super) fn copy(&mut self, dst: u8, src: u8) -> &mut Self {
        self.emit(0xbf, dst, src, 0, 0)
    }

    /// dst = imm
    pub(super) fn set(&mut self, dst: u8, imm: i32) -> &mut Self {
        self.emit(0xb7, dst, 0, 0, imm)
    }

    /// dst += imm
    pub(super) fn add(&mut self, dst: u8, imm: i32) -> &mut Self {
        self.emit(0x07, dst, 0, 0, imm)
    }

    /// dst -= src
    pub(super) fn subtract(&mut self, dst: u8, src: u8) -> &mut Self {
        self.emit(0x1f, dst, src, 0, 0)
    }

    /// dst %= imm
    pub(super) fn modulo(&mut self, dst: u8, imm: i32) -> &mut Self {
        self.emit(0x97, dst, 0, 0, imm)
    }

    /// *(u64 *)(dst + offset) = src
    pub(super) fn store(&mut self, dst: u8, offset: i16, src: u8) -> &mut Self {
        self.emit(0x7b, dst, src, offset, 0)
    }

    /// *(u32 *)(dst + offset) = src
    pub(super) fn store_32(&mut self, dst: u8, offset: i16, src: u8) -> &mut Self {
        self.emit(0x63, dst, src, offset, 0)
    }

    /// dst = *(u64 *)(src + offset)
    pub(super) fn load(&mut self, dst: u8, src: u8, offset: i16) -> &mut Self {
        self.emit(0x79, dst, src, offset, 0)
    }

    /// dst = *(u32 *)(src + offset)
    pub(super) fn load_32(&mut self, dst: u8, src: u8, offset: i16) -> &mut Self {
        self.emit(0x61, dst, src, offset, 0)
    }

    /// dst = *(u16 *)(src + offset)
    pub(super) fn load_16(&mut self, dst: u8, src: u8, offset: i16) -> &mut Self {
        self.emit(0x69, dst, src, offset, 0)
    }

    /// dst = the map
    pub(super) fn map(&mut self, dst: u8, map: &Array) -> &mut Self {
        // BPF_PSEUDO_MAP_FD, in two instructions
        self.emit(0x18, dst, 1, 0, map.0.as_raw_fd())
            .emit(0, 0, 0, 0, 0)
    }

    /// Calls a helper.
    pub(super) fn call(&mut self, helper: i32) -> &mut Self {
        self.emit(0x85, 0, 0, 0, helper)
    }

    /// Goes to a label if `dst` compares with `imm` as the jump says.
    pub(super) fn jump(&mut self, how: u8, dst: u8, imm: i32, to: &'static str) -> &mut Self {
        self.jumps.push((self.code.len(), to));
        self.emit(how, dst, 0, 0, imm)
    }

    /// r0 = a pointer to the value of `map` whose key is in `key`; goes to `otherwise` where
    /// there is none. Uses r1, r2 and the word at r10 − 4.
    pub(super) fn value(&mut self, map: &Array, key: u8, otherwise: &'static str) -> &mut Self {
        self.store_32(10, -4, key)
            .map(1, map)
            .copy(2, 10)
            .add(2, -4)
            .call(LOOKUP)
            .jump(JEQ, 0, 0, otherwise)
    }

    /// Places a label here.
    pub(super) fn label(&mut self, name: &'static str) -> &mut Self {
        self.labels.push((name, self.code.len()));
        self
    }

    /// Returns `verdict`.
    pub(super) fn end(&mut self, verdict: i32) -> &mut Self {
        self.set(0, verdict).emit(0x95, 0, 0, 0, 0)
    }

    fn resolved(&self) -> io::Result<Vec<u64>> {
        let mut code = self.code.clone();
        for (at, name) in &self.jumps {
            let Some((_, to)) = self.labels.iter().find(|(label, _)| label == name) else {
                return Err(io::Error::other(format!("no label {name}")));
            };
            let offset = (*to as i64 - *at as i64 - 1) as i16;
            code[*at] |= u64::from(offset as u16) << 16;
        }
        Ok(code)
    }

    /// Runs it for every packet that comes in at a device of the calling thread's network
    /// namespace, until the descriptor is closed.
    pub(super) fn attach(&self, ifindex: u32) -> io::Result<OwnedFd> {
        let program = self.verified(ProgramType::Packet)?;
        let mut attributes = [0; ATTRIBUTES];
        put(&mut attributes, 0, &program.as_raw_fd().to_ne_bytes());
        put(&mut attributes, 4, &ifindex.to_ne_bytes());
        put(&mut attributes, 8, &TCX_INGRESS.to_ne_bytes());
        bpf(LINK_CREATE, &attributes).map(owned)
    }

    /// Loads the program; the kernel's verifier checks it.
    fn verified(&self, kind: ProgramType) -> io::Result<OwnedFd> {
        let code = self.resolved()?;
        let license = c"GPL";
        let mut log = vec![0_u8; 1 << 16];
        let mut attributes = [0; ATTRIBUTES];
        put(&mut attributes, 0, &(kind as u32).to_ne_bytes());
        put(&mut attributes, 4, &(code.len() as u32).to_ne_bytes());
        put(&mut attributes, 8, &(code.as_ptr() as u64).to_ne_bytes());
        put(
            &mut attributes,
            16,
            &(license.as_ptr() as u64).to_ne_bytes(),
        );
        put(&mut attributes, 48, b"taillab_inject");
        if let ProgramType::Packet = kind {
            put(&mut attributes, 68, &TCX_INGRESS.to_ne_bytes());
        }
        match bpf(PROG_LOAD, &attributes) {
            Ok(fd) => Ok(owned(fd)),
            Err(error) => {
                put(&mut attributes, 24, &1_u32.to_ne_bytes());
                put(&mut attributes, 28, &(log.len() as u32).to_ne_bytes());
                put(
                    &mut attributes,
                    32,
                    &(log.as_mut_ptr() as u64).to_ne_bytes(),
                );
                // load it again for the log: its last line says what the verifier objects to
                let _ = bpf(PROG_LOAD, &attributes);
                let text = String::from_utf8_lossy(std::hint::black_box(&log)).into_owned();
                let said = text.trim_end_matches('\0').lines().rev().nth(1);
                Err(match said {
                    Some(said) => io::Error::new(error.kind(), format!("{error} ({said})")),
                    None => error,
                })
            }
        }
    }
}

const PERF_COUNT_SW_CPU_CLOCK: u64 = 0;
const PERF_DISABLED: u64 = 1;
/// `PERF_EVENT_IOC_ENABLE`, `_DISABLE` and `_SET_BPF` (linux/perf_event.h).
const PERF_ENABLE: libc::c_ulong = 0x2400;
const PERF_DISABLE: libc::c_ulong = 0x2401;
const PERF_SET_BPF: libc::c_ulong = 0x4004_2408;

/// A timer of one CPU that interrupts it periodically, and runs a program each time.
pub(super) struct TimerInterrupts(OwnedFd);

impl TimerInterrupts {
    /// Sets up the timer, which starts with [`Self::begin`].
    pub(super) fn new(cpu: u32, period: Nanos, program: &Assembly) -> io::Result<Self> {
        const EVERY_THREAD: libc::pid_t = -1;
        let program = program.verified(ProgramType::PerfEvent)?;
        // config, sample_period and the bit field with `disabled`
        let mut attributes = [0; 8];
        attributes[1] = PERF_COUNT_SW_CPU_CLOCK;
        attributes[2] = period.get();
        attributes[5] = PERF_DISABLED;
        let made = Self(software_event(
            attributes,
            EVERY_THREAD,
            cpu as libc::c_int,
        )?);
        // the event holds a reference to the program
        made.control(PERF_SET_BPF, program.as_raw_fd())?;
        Ok(made)
    }

    pub(super) fn begin(&self) -> io::Result<()> {
        self.control(PERF_ENABLE, 0)
    }

    pub(super) fn end(&self) -> io::Result<()> {
        self.control(PERF_DISABLE, 0)
    }

    fn control(&self, request: libc::c_ulong, argument: i32) -> io::Result<()> {
        // SAFETY: these requests take a number, and touch no memory of ours.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), request as _, argument) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
