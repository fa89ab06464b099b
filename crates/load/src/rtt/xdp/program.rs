//! The XDP program that passes every packet of a device's first queue to a socket.
//!
//! It has five instructions and is loaded by a plain system call, so it needs neither clang nor
//! libbpf. It is removed when its descriptors are closed.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use taillab_model::rtt::XdpAttachment;

/// Commands of bpf(2), from `enum bpf_cmd`.
const MAP_CREATE: libc::c_long = 0;
const MAP_UPDATE_ELEM: libc::c_long = 2;
const PROG_LOAD: libc::c_long = 5;
const LINK_CREATE: libc::c_long = 28;
/// From `enum bpf_map_type`, `bpf_prog_type` and `bpf_attach_type`.
const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
/// From `linux/if_link.h`.
const FLAGS_SKB_MODE: u32 = 1 << 1;
const FLAGS_DRV_MODE: u32 = 1 << 2;

/// A program on a device; detached when dropped.
pub(super) struct Attached {
    pub(super) attachment: XdpAttachment,
    _link: OwnedFd,
    _program: OwnedFd,
    _map: OwnedFd,
}

#[repr(C)]
#[derive(Default)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
}

#[repr(C)]
#[derive(Default)]
struct MapUpdate {
    map: u32,
    _pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    kind: u32,
    instructions: u32,
    code: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    device: u32,
    expected_attach_type: u32,
}

#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    program: u32,
    device: u32,
    attach_type: u32,
    flags: u32,
}

/// Attaches a program to a device of the calling thread's network namespace; packets of its
/// first queue go to `socket`, which is bound there. Uses native mode if the driver supports it.
pub(super) fn attach(device: u32, socket: BorrowedFd<'_>) -> io::Result<Attached> {
    let map = bpf_fd(
        MAP_CREATE,
        &MapCreate {
            map_type: MAP_TYPE_XSKMAP,
            key_size: 4,
            value_size: 4,
            max_entries: 1,
        },
    )?;
    let (queue, value) = (0_u32, socket.as_raw_fd());
    bpf(
        MAP_UPDATE_ELEM,
        &MapUpdate {
            map: map.as_raw_fd() as u32,
            key: std::ptr::from_ref(&queue) as u64,
            value: std::ptr::from_ref(&value) as u64,
            ..MapUpdate::default()
        },
    )?;
    let code = instructions(map.as_raw_fd());
    let program = bpf_fd(
        PROG_LOAD,
        &ProgLoad {
            kind: PROG_TYPE_XDP,
            instructions: code.len() as u32,
            code: code.as_ptr() as u64,
            license: c"Dual BSD/GPL".as_ptr() as u64,
            expected_attach_type: ATTACH_XDP,
            ..ProgLoad::default()
        },
    )?;
    let link = |flags| {
        bpf_fd(
            LINK_CREATE,
            &LinkCreate {
                program: program.as_raw_fd() as u32,
                device,
                attach_type: ATTACH_XDP,
                flags,
            },
        )
    };
    let (link, attachment) = match link(FLAGS_DRV_MODE) {
        Ok(link) => (link, XdpAttachment::Native),
        Err(error) if lacks_native_mode(&error) => (link(FLAGS_SKB_MODE)?, XdpAttachment::Generic),
        // generic mode would hide this error, or fail with a misleading one
        Err(error) => return Err(error),
    };
    Ok(Attached {
        attachment,
        _link: link,
        _program: program,
        _map: map,
    })
}

/// Whether the driver has no native mode, or none with the device's present MTU or queues: then most
/// drivers say `EINVAL`, and veth `ERANGE` or `ENOSPC`.
fn lacks_native_mode(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ERANGE | libc::ENOSPC)
    )
}

/// `return bpf_redirect_map(&map, ctx->rx_queue_index, XDP_PASS)`, as `struct bpf_insn`: opcode,
/// registers, offset, immediate.
fn instructions(map: i32) -> [u64; 6] {
    const PASS: u32 = 2;
    const REDIRECT_MAP: u32 = 51;
    const RX_QUEUE_INDEX: u64 = 16;
    let instruction = |code: u64, registers: u64, offset: u64, immediate: u32| {
        code | registers << 8 | offset << 16 | u64::from(immediate) << 32
    };
    [
        // r2 = *(u32 *)(r1 + rx_queue_index)
        instruction(0x61, 0x12, RX_QUEUE_INDEX, 0),
        // r1 = the map; the instruction takes two places
        instruction(0x18, 0x11, 0, map as u32),
        0,
        // r3 = XDP_PASS
        instruction(0xb7, 0x03, 0, PASS),
        instruction(0x85, 0, 0, REDIRECT_MAP),
        instruction(0x95, 0, 0, 0),
    ]
}

fn bpf<T>(command: libc::c_long, attributes: &T) -> io::Result<i32> {
    // SAFETY: the attributes are a `repr(C)` prefix of `union bpf_attr`, whose pointers refer to
    // live memory of the length that the command reads; the kernel takes what is missing as zero.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_ref(attributes),
            size_of::<T>(),
        )
    };
    match result {
        -1 => Err(io::Error::last_os_error()),
        n => Ok(n as i32),
    }
}

fn bpf_fd<T>(command: libc::c_long, attributes: &T) -> io::Result<OwnedFd> {
    let descriptor = bpf(command, attributes)?;
    // SAFETY: these commands answer with a new descriptor, which nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_driver_without_native_mode_is_a_reason_for_generic_mode() {
        let lacks = |code| lacks_native_mode(&io::Error::from_raw_os_error(code));
        assert!(lacks(libc::EOPNOTSUPP) && lacks(libc::ERANGE));
        for code in [libc::EPERM, libc::EBUSY, libc::EEXIST, libc::ENOMEM] {
            assert!(!lacks(code), "{code}");
        }
    }
}
