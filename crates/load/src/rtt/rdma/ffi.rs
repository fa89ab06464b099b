//! libibverbs, found at run time: the parts of its structures that are used, and its functions.
//!
//! Layouts and numbers are those of `infiniband/verbs.h` (rdma-core), whose binary interface has
//! not changed since libibverbs 1.1. Four functions are not symbols of the library: the device's
//! driver puts them into its context, and the header calls them there.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;

/// The library; the package `ibverbs-providers` installs it.
const LIBRARY: &CStr = c"libibverbs.so.1";

/// `struct ibv_device`, never accessed.
#[repr(C)]
pub(super) struct Device([u8; 0]);

/// `struct ibv_pd`, never accessed.
#[repr(C)]
pub(super) struct Pd([u8; 0]);

/// `struct ibv_cq`, never accessed.
#[repr(C)]
pub(super) struct Cq([u8; 0]);

/// `struct ibv_context` up to the last function that is called.
#[repr(C)]
pub(super) struct Context {
    device: *mut Device,
    before: [*mut c_void; 11],
    pub(super) poll_cq: unsafe extern "C" fn(*mut Cq, c_int, *mut Completion) -> c_int,
    pub(super) req_notify_cq: unsafe extern "C" fn(*mut Cq, c_int) -> c_int,
    between: [*mut c_void; 12],
    pub(super) post_send: unsafe extern "C" fn(*mut Qp, *mut Send, *mut *mut Send) -> c_int,
    pub(super) post_recv: unsafe extern "C" fn(*mut Qp, *mut Receive, *mut *mut Receive) -> c_int,
}

/// `struct ibv_comp_channel`.
#[repr(C)]
pub(super) struct Channel {
    context: *mut Context,
    pub(super) fd: c_int,
    refcnt: c_int,
}

/// `struct ibv_mr`.
#[repr(C)]
pub(super) struct Mr {
    context: *mut Context,
    pd: *mut Pd,
    addr: *mut c_void,
    length: usize,
    handle: u32,
    pub(super) lkey: u32,
    pub(super) rkey: u32,
}

/// `struct ibv_qp` up to its number.
#[repr(C)]
pub(super) struct Qp {
    pointers: [*mut c_void; 6],
    handle: u32,
    pub(super) number: u32,
}

/// `struct ibv_port_attr`, padded for newer libraries with more fields.
#[repr(C)]
#[derive(Default)]
pub(super) struct PortAttr {
    pub(super) state: c_uint,
    max_mtu: c_uint,
    pub(super) active_mtu: c_uint,
    gid_tbl_len: c_int,
    port_cap_flags: u32,
    pub(super) max_msg_sz: u32,
    counters: [u32; 2],
    pkey_tbl_len: u16,
    pub(super) lid: u16,
    more: [u32; 16],
}

/// `struct ibv_sge`: a stretch of registered memory.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct ScatterEntry {
    pub(super) addr: u64,
    pub(super) length: u32,
    pub(super) lkey: u32,
}

/// `struct ibv_send_wr` with the RDMA part of its unions.
#[repr(C)]
pub(super) struct Send {
    pub(super) wr_id: u64,
    pub(super) next: *mut Self,
    pub(super) sg_list: *mut ScatterEntry,
    pub(super) num_sge: c_int,
    pub(super) opcode: c_uint,
    pub(super) send_flags: c_uint,
    pub(super) imm_data: u32,
    pub(super) remote_addr: u64,
    pub(super) rkey: u32,
    pub(super) rest: [u64; 9],
}

/// `struct ibv_recv_wr`.
#[repr(C)]
pub(super) struct Receive {
    pub(super) wr_id: u64,
    pub(super) next: *mut Self,
    pub(super) sg_list: *mut ScatterEntry,
    pub(super) num_sge: c_int,
}

/// `struct ibv_wc`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Completion {
    pub(super) wr_id: u64,
    pub(super) status: c_uint,
    pub(super) opcode: c_uint,
    vendor_err: u32,
    pub(super) byte_len: u32,
    rest: [u32; 6],
}

/// `struct ibv_qp_cap`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct QpCap {
    pub(super) max_send_wr: u32,
    pub(super) max_recv_wr: u32,
    pub(super) max_send_sge: u32,
    pub(super) max_recv_sge: u32,
    pub(super) max_inline_data: u32,
}

/// `struct ibv_qp_init_attr`.
#[repr(C)]
pub(super) struct QpInitAttr {
    pub(super) qp_context: *mut c_void,
    pub(super) send_cq: *mut Cq,
    pub(super) recv_cq: *mut Cq,
    pub(super) srq: *mut c_void,
    pub(super) cap: QpCap,
    pub(super) qp_type: c_uint,
    pub(super) sq_sig_all: c_int,
}

/// `struct ibv_ah_attr` with its `struct ibv_global_route`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Route {
    pub(super) dgid: Gid,
    pub(super) flow_label: u32,
    pub(super) sgid_index: u8,
    pub(super) hop_limit: u8,
    pub(super) traffic_class: u8,
    pub(super) dlid: u16,
    pub(super) sl: u8,
    pub(super) src_path_bits: u8,
    pub(super) static_rate: u8,
    pub(super) is_global: u8,
    pub(super) port_num: u8,
}

/// `union ibv_gid`, aligned as its words are.
#[repr(C, align(8))]
#[derive(Clone, Copy, Default)]
pub(super) struct Gid(pub(super) [u8; 16]);

/// `struct ibv_qp_attr`.
#[repr(C)]
#[derive(Default)]
pub(super) struct QpAttr {
    pub(super) qp_state: c_uint,
    pub(super) cur_qp_state: c_uint,
    pub(super) path_mtu: c_uint,
    pub(super) path_mig_state: c_uint,
    pub(super) qkey: u32,
    pub(super) rq_psn: u32,
    pub(super) sq_psn: u32,
    pub(super) dest_qp_num: u32,
    pub(super) qp_access_flags: c_uint,
    pub(super) cap: QpCap,
    pub(super) route: Route,
    pub(super) alternative: Route,
    pub(super) pkey_index: u16,
    pub(super) alt_pkey_index: u16,
    pub(super) en_sqd_async_notify: u8,
    pub(super) sq_draining: u8,
    pub(super) max_rd_atomic: u8,
    pub(super) max_dest_rd_atomic: u8,
    pub(super) min_rnr_timer: u8,
    pub(super) port_num: u8,
    pub(super) timeout: u8,
    pub(super) retry_cnt: u8,
    pub(super) rnr_retry: u8,
    pub(super) alt_port_num: u8,
    pub(super) alt_timeout: u8,
    pub(super) rate_limit: u32,
}

/// `IBV_QPS_*`.
pub(super) mod state {
    pub(in super::super) const INIT: u32 = 1;
    pub(in super::super) const READY_TO_RECEIVE: u32 = 2;
    pub(in super::super) const READY_TO_SEND: u32 = 3;
}

/// `IBV_QP_*`: which fields of [`QpAttr`](super::QpAttr) are set.
pub(super) mod field {
    pub(in super::super) const STATE: i32 = 1;
    pub(in super::super) const ACCESS_FLAGS: i32 = 1 << 3;
    pub(in super::super) const PKEY_INDEX: i32 = 1 << 4;
    pub(in super::super) const PORT: i32 = 1 << 5;
    pub(in super::super) const ROUTE: i32 = 1 << 7;
    pub(in super::super) const PATH_MTU: i32 = 1 << 8;
    pub(in super::super) const TIMEOUT: i32 = 1 << 9;
    pub(in super::super) const RETRY_CNT: i32 = 1 << 10;
    pub(in super::super) const RNR_RETRY: i32 = 1 << 11;
    pub(in super::super) const RQ_PSN: i32 = 1 << 12;
    pub(in super::super) const MAX_RD_ATOMIC: i32 = 1 << 13;
    pub(in super::super) const MIN_RNR_TIMER: i32 = 1 << 15;
    pub(in super::super) const SQ_PSN: i32 = 1 << 16;
    pub(in super::super) const MAX_DEST_RD_ATOMIC: i32 = 1 << 17;
    pub(in super::super) const DEST_QPN: i32 = 1 << 20;
}

/// `IBV_WR_*`: what a work request does.
pub(super) mod work {
    pub(in super::super) const WRITE: u32 = 0;
    pub(in super::super) const SEND: u32 = 2;
    pub(in super::super) const READ: u32 = 4;
}

/// `IBV_PORT_ACTIVE`.
pub(super) const PORT_ACTIVE: u32 = 4;
/// `IBV_QPT_RC`: a reliable connection.
pub(super) const RELIABLE_CONNECTION: u32 = 2;
/// `IBV_SEND_SIGNALED`: the end of the request is reported.
pub(super) const SIGNALED: u32 = 1 << 1;
/// `IBV_WC_RECV`: a bit in the opcode of a receive.
pub(super) const RECEIVED: u32 = 1 << 7;
/// `IBV_WC_SUCCESS`.
pub(super) const SUCCESS: u32 = 0;
/// `IBV_ACCESS_LOCAL_WRITE`, `_REMOTE_WRITE` and `_REMOTE_READ`.
pub(super) const ALL_ACCESS: c_int = 7;

/// Declares the functions of the library by their names without `ibv_`, and how they are loaded.
macro_rules! library {
    ($($name:ident: fn($($argument:ty),+) $(-> $result:ty)?;)+) => {
        /// The functions of the library, which stays loaded until the process ends.
        #[derive(Clone, Copy)]
        pub(super) struct Library {
            $(pub(super) $name: unsafe extern "C" fn($($argument),+) $(-> $result)?,)+
        }

        impl Library {
            fn of(handle: *mut c_void) -> Result<Self, String> {
                // SAFETY: the handle is that of libibverbs and is never closed; each name is
                // looked up as a function of the type that `infiniband/verbs.h` declares for it.
                unsafe {
                    Ok(Self {
                        $($name: function(handle, concat!("ibv_", stringify!($name), "\0"))?,)+
                    })
                }
            }
        }
    };
}

library! {
    get_device_list: fn(*mut c_int) -> *mut *mut Device;
    free_device_list: fn(*mut *mut Device);
    get_device_name: fn(*mut Device) -> *const c_char;
    open_device: fn(*mut Device) -> *mut Context;
    close_device: fn(*mut Context) -> c_int;
    query_port: fn(*mut Context, u8, *mut PortAttr) -> c_int;
    alloc_pd: fn(*mut Context) -> *mut Pd;
    dealloc_pd: fn(*mut Pd) -> c_int;
    reg_mr: fn(*mut Pd, *mut c_void, usize, c_int) -> *mut Mr;
    dereg_mr: fn(*mut Mr) -> c_int;
    create_comp_channel: fn(*mut Context) -> *mut Channel;
    destroy_comp_channel: fn(*mut Channel) -> c_int;
    create_cq: fn(*mut Context, c_int, *mut c_void, *mut Channel, c_int) -> *mut Cq;
    destroy_cq: fn(*mut Cq) -> c_int;
    get_cq_event: fn(*mut Channel, *mut *mut Cq, *mut *mut c_void) -> c_int;
    ack_cq_events: fn(*mut Cq, c_uint);
    create_qp: fn(*mut Pd, *mut QpInitAttr) -> *mut Qp;
    modify_qp: fn(*mut Qp, *mut QpAttr, c_int) -> c_int;
    destroy_qp: fn(*mut Qp) -> c_int;
}

impl Library {
    /// Loads it, or says why it cannot be loaded.
    pub(super) fn load() -> Result<Self, String> {
        // SAFETY: the name is a C string, and the library's initialisers touch nothing of ours.
        let handle = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(last_error());
        }
        Self::of(handle)
    }
}

/// A function of the library.
///
/// # Safety
/// `name` must end with a zero byte, and `F` must be the type of the function of that name.
unsafe fn function<F: Copy>(handle: *mut c_void, name: &str) -> Result<F, String> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the handle is open, and the name is a C string.
    let found = unsafe { libc::dlsym(handle, name.as_ptr().cast()) };
    if found.is_null() {
        return Err(last_error());
    }
    // SAFETY: a function pointer has the representation of any other pointer, it is not null,
    // and the caller vouches for its type.
    Ok(unsafe { ptr::from_ref(&found).cast::<F>().read() })
}

/// What the dynamic linker said last.
fn last_error() -> String {
    // SAFETY: the text is this thread's, and stays until its next call of the linker.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the dynamic linker does not say why".to_owned();
    }
    // SAFETY: not null, so a C string, read before the next call.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    /// Sizes and offsets as the C compiler gives them for `infiniband/verbs.h` on x86-64.
    #[test]
    fn the_layouts_are_those_of_the_header() {
        assert_eq!(offset_of!(Context, poll_cq), 96);
        assert_eq!(offset_of!(Context, req_notify_cq), 104);
        assert_eq!(offset_of!(Context, post_send), 208);
        assert_eq!(offset_of!(Context, post_recv), 216);
        assert_eq!(offset_of!(Channel, fd), 8);
        assert_eq!((size_of::<Mr>(), offset_of!(Mr, lkey)), (48, 36));
        assert_eq!(offset_of!(Qp, number), 52);
        assert_eq!(offset_of!(PortAttr, max_msg_sz), 20);
        assert_eq!(offset_of!(PortAttr, lid), 34);
        assert!(size_of::<PortAttr>() >= 52);
        assert_eq!(size_of::<ScatterEntry>(), 16);
        assert_eq!(
            (size_of::<Send>(), offset_of!(Send, remote_addr)),
            (128, 40)
        );
        assert_eq!(size_of::<Receive>(), 32);
        assert_eq!(size_of::<Completion>(), 48);
        assert_eq!(size_of::<QpInitAttr>(), 64);
        assert_eq!(size_of::<Route>(), 32);
        assert_eq!((size_of::<QpAttr>(), offset_of!(QpAttr, route)), (144, 56));
        assert_eq!(offset_of!(QpAttr, timeout), 130);
    }
}
