//! AF_XDP sockets: frames in memory that the kernel and the process share, and rings of them
//! (the kernel's `Documentation/networking/af_xdp.rst`).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING,
    XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpDesc, XdpDescOptions,
    XdpMmapOffsets, XdpRingOffset, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{
    AddressFamily, SendFlags, SocketFlags, SocketType, bind, send, socket_with, sockopt,
};

/// Bytes of a frame in the shared memory.
pub(super) const FRAME: usize = 4096;
/// Frames for each direction, which is the size of the rings.
const FRAMES: u32 = 64;

/// Memory that the kernel maps into the process; unmapped when dropped.
struct Mapping {
    at: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    /// Maps a ring of the socket, or anonymous memory without a socket.
    fn new(socket: Option<BorrowedFd<'_>>, bytes: usize, offset: u64) -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place that the kernel chooses; nothing else is touched.
        let at = unsafe {
            match socket {
                Some(socket) => {
                    let flags = MapFlags::SHARED | MapFlags::POPULATE;
                    mmap(ptr::null_mut(), bytes, access, flags, socket, offset)
                }
                None => {
                    let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
                    mmap_anonymous(ptr::null_mut(), bytes, access, flags)
                }
            }
        }?;
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { at, bytes })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this mapping is ours, and what refers to it goes with it. The call cannot fail
        // with these arguments.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.bytes) };
    }
}

/// A ring of descriptors with one producer and one consumer: the kernel and this process.
struct Ring<T> {
    mapping: Mapping,
    offsets: XdpRingOffset,
    _of: std::marker::PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    fn map(socket: BorrowedFd<'_>, offsets: XdpRingOffset, page: u64) -> io::Result<Self> {
        let bytes = offsets.desc as usize + FRAMES as usize * size_of::<T>();
        Ok(Self {
            mapping: Mapping::new(Some(socket), bytes, page)?,
            offsets,
            _of: std::marker::PhantomData,
        })
    }

    fn word(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: the kernel says that an aligned 32-bit word lies at this offset of the mapping,
        // which both sides access atomically; the borrow ends with that of the ring.
        unsafe { AtomicU32::from_ptr(self.mapping.at.as_ptr().add(offset as usize).cast()) }
    }

    fn place(&self, index: u32) -> *mut T {
        let index = (index & (FRAMES - 1)) as usize;
        // SAFETY: inside the mapping, which has room for as many descriptors.
        unsafe {
            let first = self.mapping.at.as_ptr().add(self.offsets.desc as usize);
            first.cast::<T>().add(index)
        }
    }

    /// Adds one (in a ring where we produce); `false` when the ring is full.
    fn put(&mut self, value: T) -> bool {
        let (producer, consumer) = (
            self.word(self.offsets.producer),
            self.word(self.offsets.consumer),
        );
        let next = producer.load(Ordering::Relaxed);
        if next.wrapping_sub(consumer.load(Ordering::Acquire)) == FRAMES {
            return false;
        }
        // SAFETY: a place that the consumer has left, as its index says (acquire above), and does
        // not read before the release below.
        unsafe { self.place(next).write(value) };
        self.word(self.offsets.producer)
            .store(next.wrapping_add(1), Ordering::Release);
        true
    }

    /// Takes one (from a ring where we consume).
    fn take(&mut self) -> Option<T> {
        let consumer = self.word(self.offsets.consumer);
        let next = consumer.load(Ordering::Relaxed);
        if self.word(self.offsets.producer).load(Ordering::Acquire) == next {
            return None;
        }
        // SAFETY: written by the producer before its index went past it (acquire above).
        let value = unsafe { self.place(next).read() };
        consumer.store(next.wrapping_add(1), Ordering::Release);
        Some(value)
    }

    /// Whether the kernel sleeps and must be woken by a call.
    fn wants_call(&self) -> bool {
        self.offsets.flags.is_none_or(|flags| {
            self.word(flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
        })
    }
}

/// A socket on the first queue of a device, with its frames.
pub(super) struct XdpSocket {
    // dropped before its memory
    socket: OwnedFd,
    memory: Mapping,
    fill: Ring<u64>,
    completion: Ring<u64>,
    received: Ring<XdpDesc>,
    sending: Ring<XdpDesc>,
    /// Frames that are free for sending.
    free: Vec<u64>,
}

// SAFETY: the pointers of the mappings refer to memory that belongs to this socket alone.
unsafe impl Send for XdpSocket {}

/// Whether the driver copies packets or uses our frames directly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// Packets are copied; works with any driver.
    Copy,
    /// No copy; the driver must support it.
    ZeroCopy,
}

impl XdpSocket {
    /// Opens a socket and binds it to a device of the calling thread's network namespace.
    pub(super) fn open(device: u32, mode: XdpMode) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::XDP, SocketType::RAW, flags, None)?;
        let bytes = 2 * FRAMES as usize * FRAME;
        let memory = Mapping::new(None, bytes, 0)?;
        let register = XdpUmemReg {
            addr: memory.at.as_ptr() as u64,
            len: bytes as u64,
            chunk_size: FRAME as u32,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        sockopt::set_xdp_umem_reg(&socket, register)?;
        sockopt::set_xdp_umem_fill_ring_size(&socket, FRAMES)?;
        sockopt::set_xdp_umem_completion_ring_size(&socket, FRAMES)?;
        sockopt::set_xdp_rx_ring_size(&socket, FRAMES)?;
        sockopt::set_xdp_tx_ring_size(&socket, FRAMES)?;
        let XdpMmapOffsets { rx, tx, fr, cr } = sockopt::xdp_mmap_offsets(&socket)?;
        let at = socket.as_fd();
        let mut opened = Self {
            fill: Ring::map(at, fr, XDP_UMEM_PGOFF_FILL_RING)?,
            completion: Ring::map(at, cr, XDP_UMEM_PGOFF_COMPLETION_RING)?,
            received: Ring::map(at, rx, XDP_PGOFF_RX_RING)?,
            sending: Ring::map(at, tx, XDP_PGOFF_TX_RING)?,
            free: (FRAMES..2 * FRAMES)
                .map(|n| u64::from(n) * FRAME as u64)
                .collect(),
            memory,
            socket,
        };
        for n in 0..FRAMES {
            opened.fill.put(u64::from(n) * FRAME as u64);
        }
        let how = match mode {
            XdpMode::Copy => SocketAddrXdpFlags::XDP_COPY,
            XdpMode::ZeroCopy => SocketAddrXdpFlags::XDP_ZEROCOPY,
        };
        let flags = how | SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
        bind(&opened.socket, &SocketAddrXdp::new(flags, device, 0))?;
        Ok(opened)
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Sends a frame that `write` fills; `write` returns the length. `false` when no frame is free.
    pub(super) fn send(&mut self, write: impl FnOnce(&mut [u8]) -> usize) -> io::Result<bool> {
        while let Some(frame) = self.completion.take() {
            self.free.push(frame);
        }
        let Some(frame) = self.free.pop() else {
            self.call()?;
            return Ok(false);
        };
        // SAFETY: a free frame is in none of the rings, so that the kernel does not touch it.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(self.memory.at.as_ptr().add(frame as usize), FRAME)
        };
        let descriptor = XdpDesc {
            addr: frame,
            len: write(bytes) as u32,
            options: XdpDescOptions::empty(),
        };
        // never full: it has as many places as there are frames
        self.sending.put(descriptor);
        if self.sending.wants_call() {
            self.call()?;
        }
        Ok(true)
    }

    /// Tells the kernel to send what is in the ring.
    fn call(&self) -> io::Result<()> {
        match send(&self.socket, &[], SendFlags::DONTWAIT) {
            // a later call sends it
            Ok(_) | Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Passes a received frame to `read`, if there is one, and gives the frame back to the kernel.
    pub(super) fn receive<R>(&mut self, read: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let descriptor = self.received.take()?;
        // SAFETY: the kernel has put the frame into the ring of received ones, and does not touch
        // it before it is in the fill ring again.
        let bytes = unsafe {
            let at = self.memory.at.as_ptr().add(descriptor.addr as usize);
            std::slice::from_raw_parts(at, descriptor.len as usize)
        };
        let result = read(bytes);
        self.fill.put(descriptor.addr & !(FRAME as u64 - 1));
        Some(result)
    }

    /// Sleeps until something has arrived, at most for `at_most`.
    pub(super) fn wait(&self, at_most: Duration) {
        let at_most = at_most.try_into().ok();
        let mut files = [PollFd::new(&self.socket, PollFlags::IN)];
        // a signal only means another look
        let _ = poll(&mut files, at_most.as_ref());
    }
}
