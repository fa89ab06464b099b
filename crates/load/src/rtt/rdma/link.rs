//! One reliable connection: a queue pair, its completion queue, and the memory of its messages.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ffi::CStr;
use std::io;
use std::net::Ipv6Addr;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::slice;

use super::Verb;
use super::ffi::{self, Library, field, state, work};
use super::place::Place;
use crate::clock::now;

/// Work requests that fit into a queue; a round trip needs two.
const DEPTH: u32 = 64;
/// One in this many sends reports its end, which frees the places of those before it.
const TOLD: u32 = 16;
/// Events that are acknowledged together, since an acknowledgement takes a lock.
const ACKNOWLEDGED: u32 = 64;

/// Areas of a link's memory, each for one message: two for receiving in turn, and one
/// for sending.
pub(super) const AREAS: usize = 3;
/// The area for sending.
pub(super) const OUT: usize = 2;

/// What the other end must know about this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// The number of the queue pair.
    pub(super) number: u32,
    /// The number of the first packet.
    pub(super) packet: u32,
    /// The port's address over Ethernet.
    pub(super) gid: Ipv6Addr,
    /// The port's address over InfiniBand.
    pub(super) lid: u16,
    /// The largest packet, as `enum ibv_mtu`.
    pub(super) mtu: u8,
    /// The key to the memory.
    pub(super) key: u32,
    /// Where the memory begins.
    pub(super) memory: u64,
}

/// The end of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Done {
    /// A message has arrived in the area; otherwise our own request has ended.
    pub(super) is_received: bool,
    /// The area.
    pub(super) area: usize,
    /// Bytes received.
    pub(super) bytes: usize,
}

/// Why a link cannot be made, or why it ended.
#[derive(Debug)]
pub(super) enum LinkError {
    /// Something is missing here; says what.
    Missing(String),
    /// A call failed unexpectedly.
    Call(&'static str, io::Error),
    /// How the adapter ended a work request: `enum ibv_wc_status`.
    Status(u32),
}

impl LinkError {
    fn last(call: &'static str) -> Self {
        Self::Call(call, io::Error::last_os_error())
    }
}

/// The memory of the messages, which the adapter reads and writes.
struct Memory {
    start: NonNull<u8>,
    layout: Layout,
    /// Bytes of an area.
    stride: usize,
}

impl Memory {
    fn new(size: usize) -> Self {
        const PAGE: usize = 4096;
        let stride = size.next_multiple_of(64);
        let layout = Layout::from_size_align(stride * AREAS, PAGE);
        let layout = layout.unwrap_or_else(|_| unreachable!("sizes are limited long before"));
        // SAFETY: the layout is not empty, since a message has at least one byte.
        let start = unsafe { alloc_zeroed(layout) };
        Self {
            start: NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout)),
            layout,
            stride,
        }
    }

    fn area(&self, area: usize) -> *mut u8 {
        debug_assert!(area < AREAS);
        // SAFETY: an area lies within the allocation.
        unsafe { self.start.as_ptr().add(area * self.stride) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and the adapter's hold on it ended with the link.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// One end of a reliable connection. It stays with the thread that made it.
pub(super) struct Link {
    library: Library,
    place: Place,
    // null until made; the drop destroys what is not null
    context: *mut ffi::Context,
    pd: *mut ffi::Pd,
    channel: *mut ffi::Channel,
    cq: *mut ffi::Cq,
    mr: *mut ffi::Mr,
    qp: *mut ffi::Qp,
    memory: Memory,
    port: ffi::PortAttr,
    packet: u32,
    other: Option<Address>,
    sends: u32,
    /// The next completion raises an event.
    is_armed: bool,
    unacknowledged: u32,
}

impl Link {
    /// Makes a link for messages of `size` bytes; with `sleeps`, completions raise events.
    pub(super) fn open(place: Place, size: usize, sleeps: bool) -> Result<Self, LinkError> {
        let library = Library::load().map_err(|error| {
            LinkError::Missing(format!(
                "libibverbs cannot be loaded ({error}): install ibverbs-providers"
            ))
        })?;
        let mut link = Self {
            library,
            context: open(library, &place)?,
            place,
            pd: ptr::null_mut(),
            channel: ptr::null_mut(),
            cq: ptr::null_mut(),
            mr: ptr::null_mut(),
            qp: ptr::null_mut(),
            memory: Memory::new(size),
            port: ffi::PortAttr::default(),
            packet: now().nanos_since_boot() as u32 & 0xFF_FFFF,
            other: None,
            sends: 0,
            is_armed: false,
            unacknowledged: 0,
        };
        link.make(sleeps)?;
        link.check_port(size)?;
        link.prepare()?;
        Ok(link)
    }

    fn make(&mut self, sleeps: bool) -> Result<(), LinkError> {
        let library = self.library;
        // SAFETY: the context is open; each object is made from ones made before it, and each
        // null is noticed before the object is used.
        unsafe {
            self.pd = made("ibv_alloc_pd", (library.alloc_pd)(self.context))?;
            if sleeps {
                let channel = (library.create_comp_channel)(self.context);
                self.channel = made("ibv_create_comp_channel", channel)?;
            }
            let entries = 2 * DEPTH as i32;
            let nothing = ptr::null_mut();
            let cq = (library.create_cq)(self.context, entries, nothing, self.channel, 0);
            self.cq = made("ibv_create_cq", cq)?;
            let (start, length) = (self.memory.start.as_ptr(), self.memory.layout.size());
            self.mr = (library.reg_mr)(self.pd, start.cast(), length, ffi::ALL_ACCESS);
            if self.mr.is_null() {
                return Err(unregistered(length));
            }
            let mut wanted = ffi::QpInitAttr {
                qp_context: nothing,
                send_cq: self.cq,
                recv_cq: self.cq,
                srq: nothing,
                cap: ffi::QpCap {
                    max_send_wr: DEPTH,
                    max_recv_wr: DEPTH,
                    max_send_sge: 1,
                    max_recv_sge: 1,
                    max_inline_data: 0,
                },
                qp_type: ffi::RELIABLE_CONNECTION,
                sq_sig_all: 0,
            };
            self.qp = made("ibv_create_qp", (library.create_qp)(self.pd, &mut wanted))?;
        }
        Ok(())
    }

    /// Checks that the port is up and carries messages of this size.
    fn check_port(&mut self, size: usize) -> Result<(), LinkError> {
        let number = self.place.port;
        // SAFETY: the context is open, and the structure is larger than any library writes.
        let result = unsafe { (self.library.query_port)(self.context, number, &mut self.port) };
        posted("ibv_query_port", result)?;
        let device = &self.place.device;
        if self.port.state != ffi::PORT_ACTIVE {
            return Err(LinkError::Missing(format!(
                "port {number} of {device} is not active: see `rdma link`, and set the link up"
            )));
        }
        let most = self.port.max_msg_sz;
        if size as u64 > u64::from(most) {
            return Err(LinkError::Missing(format!(
                "{device} carries messages of at most {most} bytes: use smaller ones"
            )));
        }
        Ok(())
    }

    fn modify(&mut self, mut attributes: ffi::QpAttr, fields: i32) -> Result<(), LinkError> {
        // SAFETY: the queue pair exists, and the call only reads the structure.
        let result = unsafe { (self.library.modify_qp)(self.qp, &mut attributes, fields) };
        posted("ibv_modify_qp", result)
    }

    /// Brings the queue pair to the state in which it takes receives.
    fn prepare(&mut self) -> Result<(), LinkError> {
        let attributes = ffi::QpAttr {
            qp_state: state::INIT,
            qp_access_flags: ffi::ALL_ACCESS as u32,
            port_num: self.place.port,
            ..ffi::QpAttr::default()
        };
        let fields = field::STATE | field::PKEY_INDEX | field::PORT | field::ACCESS_FLAGS;
        self.modify(attributes, fields)
    }

    /// Its address, for the other end.
    pub(super) fn address(&self) -> Address {
        // SAFETY: `open` has made both, and the library does not change these fields any more.
        let (number, key) = unsafe { ((*self.qp).number, (*self.mr).rkey) };
        Address {
            number,
            packet: self.packet,
            gid: self.place.gid,
            lid: self.port.lid,
            mtu: self.port.active_mtu as u8,
            key,
            memory: self.memory.start.as_ptr() as u64,
        }
    }

    /// Whether a driver of the kernel does the adapter's work.
    pub(super) fn is_software(&self) -> bool {
        self.place.is_software
    }

    /// Connects it to the other end.
    pub(super) fn join(&mut self, other: Address) -> Result<(), LinkError> {
        let to_receive = ffi::QpAttr {
            qp_state: state::READY_TO_RECEIVE,
            path_mtu: self.port.active_mtu.min(u32::from(other.mtu)),
            rq_psn: other.packet,
            dest_qp_num: other.number,
            max_dest_rd_atomic: 1,
            // a sender that finds no receive retries after 0.64 ms; ours always finds one
            min_rnr_timer: 12,
            route: ffi::Route {
                dgid: ffi::Gid(other.gid.octets()),
                sgid_index: self.place.gid_index,
                hop_limit: 64,
                dlid: other.lid,
                is_global: u8::from(!self.place.is_infiniband),
                port_num: self.place.port,
                ..ffi::Route::default()
            },
            ..ffi::QpAttr::default()
        };
        let fields = field::STATE
            | field::ROUTE
            | field::PATH_MTU
            | field::DEST_QPN
            | field::RQ_PSN
            | field::MAX_DEST_RD_ATOMIC
            | field::MIN_RNR_TIMER;
        self.modify(to_receive, fields)?;
        let to_send = ffi::QpAttr {
            qp_state: state::READY_TO_SEND,
            sq_psn: self.packet,
            // a packet without acknowledgement is sent again after 67 ms, up to seven times
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            max_rd_atomic: 1,
            ..ffi::QpAttr::default()
        };
        let fields = field::STATE
            | field::TIMEOUT
            | field::RETRY_CNT
            | field::RNR_RETRY
            | field::SQ_PSN
            | field::MAX_RD_ATOMIC;
        self.modify(to_send, fields)?;
        self.other = Some(other);
        Ok(())
    }

    /// The first bytes of an area; no request may be writing to it.
    pub(super) fn bytes(&self, area: usize, length: usize) -> &[u8] {
        let length = length.min(self.memory.stride);
        // SAFETY: within the area. The adapter writes into it only between a request for that
        // and its completion, and the borrow ends before the next request (`&mut self`).
        unsafe { slice::from_raw_parts(self.memory.area(area), length) }
    }

    /// Writes the first bytes of an area; no request may be using it.
    pub(super) fn fill(&mut self, area: usize, bytes: &[u8]) {
        assert!(bytes.len() <= self.memory.stride);
        // SAFETY: within the area, which nothing else uses meanwhile, as above.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), self.memory.area(area), bytes.len());
        }
    }

    fn stretch(&self, area: usize, length: usize) -> ffi::ScatterEntry {
        ffi::ScatterEntry {
            addr: self.memory.area(area) as u64,
            length: length as u32,
            // SAFETY: `open` has registered the memory.
            lkey: unsafe { (*self.mr).lkey },
        }
    }

    /// Posts a receive: the next message of the other end comes into the area.
    #[inline]
    pub(super) fn post_receive(&mut self, area: usize) -> Result<(), LinkError> {
        let mut stretch = self.stretch(area, self.memory.stride);
        let mut request = ffi::Receive {
            wr_id: area as u64,
            next: ptr::null_mut(),
            sg_list: &mut stretch,
            num_sge: 1,
        };
        let mut refused = ptr::null_mut();
        // SAFETY: the queue pair and its context exist; the driver copies the request before it
        // returns, and the stretch lies in registered memory, which lives as long as the link.
        let result = unsafe { ((*self.context).post_recv)(self.qp, &mut request, &mut refused) };
        posted("ibv_post_recv", result)
    }

    /// Sends, or writes into the other end's area of the same number, or reads from it.
    #[inline]
    pub(super) fn post(&mut self, verb: Verb, area: usize, length: usize) -> Result<(), LinkError> {
        let Some(other) = self.other else {
            return Err(LinkError::Missing("the link is not connected".to_owned()));
        };
        self.sends = self.sends.wrapping_add(1);
        let is_told = verb != Verb::Send || self.sends.is_multiple_of(TOLD);
        let mut stretch = self.stretch(area, length);
        let mut request = ffi::Send {
            wr_id: area as u64,
            next: ptr::null_mut(),
            sg_list: &mut stretch,
            num_sge: 1,
            opcode: match verb {
                Verb::Send => work::SEND,
                Verb::Read => work::READ,
                Verb::Write => work::WRITE,
            },
            send_flags: if is_told { ffi::SIGNALED } else { 0 },
            imm_data: 0,
            remote_addr: other.memory + (area * self.memory.stride) as u64,
            rkey: other.key,
            rest: [0; 9],
        };
        let mut refused = ptr::null_mut();
        // SAFETY: as for a receive.
        let result = unsafe { ((*self.context).post_send)(self.qp, &mut request, &mut refused) };
        posted("ibv_post_send", result)
    }

    /// Takes the end of a work request, if one has ended.
    #[inline]
    pub(super) fn poll(&mut self) -> Result<Option<Done>, LinkError> {
        let mut completion = ffi::Completion::default();
        // SAFETY: the queue exists, and there is room for one completion.
        let found = unsafe { ((*self.context).poll_cq)(self.cq, 1, &mut completion) };
        match found {
            0 => Ok(None),
            1.. if completion.status == ffi::SUCCESS => Ok(Some(Done {
                is_received: completion.opcode & ffi::RECEIVED != 0,
                area: completion.wr_id as usize % AREAS,
                bytes: completion.byte_len as usize,
            })),
            1.. => Err(LinkError::Status(completion.status)),
            _ => Err(LinkError::last("ibv_poll_cq")),
        }
    }

    /// Makes the next completion raise an event; `false` if it was armed already. Earlier completions
    /// raise none, so look once more before sleeping.
    pub(super) fn arm(&mut self) -> Result<bool, LinkError> {
        if self.is_armed {
            return Ok(false);
        }
        // SAFETY: the queue exists.
        let result = unsafe { ((*self.context).req_notify_cq)(self.cq, 0) };
        posted("ibv_req_notify_cq", result)?;
        self.is_armed = true;
        Ok(true)
    }

    /// Readable once an event has been raised; `None` if completions raise none.
    pub(super) fn events(&self) -> Option<BorrowedFd<'_>> {
        if self.channel.is_null() {
            return None;
        }
        // SAFETY: the channel's descriptor is open as long as the link.
        Some(unsafe { BorrowedFd::borrow_raw((*self.channel).fd) })
    }

    /// Takes the event that has been raised.
    pub(super) fn take_event(&mut self) -> Result<(), LinkError> {
        let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the channel exists where there are events, and both places are ours.
        let result = unsafe { (self.library.get_cq_event)(self.channel, &mut cq, &mut context) };
        if result != 0 {
            return Err(LinkError::last("ibv_get_cq_event"));
        }
        self.is_armed = false;
        self.unacknowledged += 1;
        if self.unacknowledged == ACKNOWLEDGED {
            self.acknowledge();
        }
        Ok(())
    }

    fn acknowledge(&mut self) {
        // SAFETY: the queue exists, and this many of its events have been taken.
        unsafe { (self.library.ack_cq_events)(self.cq, self.unacknowledged) };
        self.unacknowledged = 0;
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // a queue with unacknowledged events cannot be destroyed
        if self.unacknowledged > 0 {
            self.acknowledge();
        }
        let library = self.library;
        // SAFETY: each object is destroyed once, before those that it was made of; the memory is
        // freed after that. What cannot be destroyed stays until the process ends.
        unsafe {
            if !self.qp.is_null() {
                (library.destroy_qp)(self.qp);
            }
            if !self.mr.is_null() {
                (library.dereg_mr)(self.mr);
            }
            if !self.cq.is_null() {
                (library.destroy_cq)(self.cq);
            }
            if !self.channel.is_null() {
                (library.destroy_comp_channel)(self.channel);
            }
            if !self.pd.is_null() {
                (library.dealloc_pd)(self.pd);
            }
            (library.close_device)(self.context);
        }
    }
}

/// The result of a call that returns null when it fails.
fn made<T>(call: &'static str, object: *mut T) -> Result<*mut T, LinkError> {
    match object.is_null() {
        true => Err(LinkError::last(call)),
        false => Ok(object),
    }
}

/// The result of a call that returns the number of an error.
fn posted(call: &'static str, result: i32) -> Result<(), LinkError> {
    match result {
        0 => Ok(()),
        error => Err(LinkError::Call(call, io::Error::from_raw_os_error(error))),
    }
}

fn unregistered(length: usize) -> LinkError {
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENOMEM) => LinkError::Missing(format!(
            "{length} bytes cannot be locked in memory ({error}): raise `ulimit -l`, or run as root"
        )),
        _ => LinkError::Call("ibv_reg_mr", error),
    }
}

/// The device of that name, opened.
fn open(library: Library, place: &Place) -> Result<*mut ffi::Context, LinkError> {
    let mut count = 0;
    // SAFETY: the call writes the number of devices and returns an array of them.
    let list = unsafe { (library.get_device_list)(&mut count) };
    made("ibv_get_device_list", list)?;
    // SAFETY: the list has as many devices as the call says.
    let devices = unsafe { slice::from_raw_parts(list, count.max(0) as usize) };
    let is_wanted = |device: &&*mut ffi::Device| {
        // SAFETY: a device of the list has a name, a C string that lives as long as the list.
        let name = unsafe { CStr::from_ptr((library.get_device_name)(**device)) };
        name.to_bytes() == place.device.as_bytes()
    };
    let opened = devices.iter().find(is_wanted).map(|device| {
        // SAFETY: a device of the list, which has not been freed.
        let context = unsafe { (library.open_device)(*device) };
        (context, io::Error::last_os_error())
    });
    // SAFETY: what the call returned, freed once; an open device does not need it.
    unsafe { (library.free_device_list)(list) };
    let device = &place.device;
    match opened {
        None => Err(LinkError::Missing(format!(
            "libibverbs cannot find {device}: load `ib_uverbs`, which creates its file in \
             /dev/infiniband, and install ibverbs-providers for its driver"
        ))),
        Some((context, error)) if context.is_null() => Err(LinkError::Missing(format!(
            "{device} cannot be opened ({error}): run as root, or allow /dev/infiniband/uverbs*"
        ))),
        Some((context, _)) => Ok(context),
    }
}
