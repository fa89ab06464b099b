//! AF_XDP: whole packets between a device and the process, bypassing the kernel's protocol stack.
//!
//! A message is a UDP datagram; its headers are written here. Both ends belong to taillab, and each
//! needs a device for itself, because every packet of its first queue goes to the socket.

mod frame;
mod program;
mod socket;

use std::io;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use taillab_model::rtt::XdpAttachment;

use self::frame::{Ends, HEADERS, Mac, Ports};
use self::program::Attached;
pub use self::socket::XdpMode;
use self::socket::XdpSocket;
use super::error::RttError;
use super::kinds::{Mode, Proto};
use super::wire::{WaitOutcome, Wire};

/// The server's port. The client's port of connection n is this one plus 1 + n.
const PORT: u16 = 7_777;
/// Looks before a spinning wait returns to the engine.
const LOOKS: u32 = 1_024;
/// The longest sleep.
const SLEEP: Duration = Duration::from_millis(200);
/// The largest packet of a device with Ethernet's MTU.
const MTU: usize = 1_500;

/// The two devices, and how they are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpEnds {
    /// The client's device, by its index in the client's network namespace.
    pub client_device: u32,
    /// The client's address.
    pub client_address: Ipv4Addr,
    /// The server's device, by its index in the server's network namespace.
    pub server_device: u32,
    /// The server's address.
    pub server_address: Ipv4Addr,
    /// Whether packets are copied.
    pub mode: XdpMode,
}

/// A server at one of the two devices.
#[derive(Clone, Copy, Debug)]
pub(super) struct XdpServer {
    ends: XdpEnds,
    /// The link-layer address of its device.
    mac: Mac,
    attachment: XdpAttachment,
}

/// A socket that gets all packets of a device.
struct Port {
    // dropped, and so detached, before the socket
    attached: Attached,
    socket: XdpSocket,
}

impl Port {
    fn open(device: u32, mode: XdpMode) -> Result<Self, RttError> {
        let socket = once_released(|| XdpSocket::open(device, mode));
        let socket = socket.map_err(|error| refused(mode, &error))?;
        let attached = once_released(|| program::attach(device, socket.descriptor()));
        let attached = attached.map_err(|error| refused(mode, &error))?;
        Ok(Self { attached, socket })
    }
}

/// Retries while the queue or the device is busy: the kernel releases them a moment after the last
/// socket and the program were closed.
fn once_released<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    const MOMENT: Duration = Duration::from_millis(5);
    const ATTEMPTS: u32 = 1_000;
    for _ in 0..ATTEMPTS {
        match attempt() {
            Err(error) if is_busy(&error) => std::thread::sleep(MOMENT),
            other => return other,
        }
    }
    attempt()
}

/// Another program has the queue or the device (`EEXIST`: in another mode than the wanted one).
fn is_busy(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST))
}

/// Explains the kernel's refusal.
fn refused(mode: XdpMode, error: &io::Error) -> RttError {
    let why = match error.raw_os_error() {
        Some(libc::EOPNOTSUPP) if mode == XdpMode::ZeroCopy => {
            "the device's driver has no zero-copy AF_XDP: use --xdp copy".to_owned()
        }
        Some(libc::EAFNOSUPPORT) => {
            "this kernel has no AF_XDP (CONFIG_XDP_SOCKETS): use another kernel".to_owned()
        }
        Some(_) if is_busy(error) => format!(
            "another program has an AF_XDP socket on the device's first queue, or an XDP program on \
             the device ({error}): end it"
        ),
        Some(libc::EPERM | libc::EACCES) => {
            format!("AF_XDP needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF ({error}): run as root")
        }
        _ => format!(
            "the kernel refuses an AF_XDP socket ({error}): use another device or kernel, or leave \
             xdp out of --proto"
        ),
    };
    RttError::Unavailable {
        proto: Proto::Xdp,
        why,
    }
}

/// The server's end.
pub(super) struct Echo {
    port: Port,
    mode: Mode,
}

impl Echo {
    /// Opens it in the calling thread's network namespace.
    pub(super) fn open(ends: XdpEnds, mode: Mode) -> Result<(Self, XdpServer), RttError> {
        let mac = mac_of(ends.server_device).map_err(|error| refused(ends.mode, &error))?;
        let port = Port::open(ends.server_device, ends.mode)?;
        let server = XdpServer {
            ends,
            mac,
            attachment: port.attached.attachment,
        };
        Ok((Self { port, mode }, server))
    }

    /// Sends every message back until told to stop.
    pub(super) fn serve(mut self, stop: &AtomicBool) {
        let mut copy = Vec::with_capacity(socket::FRAME);
        while !stop.load(Ordering::Relaxed) {
            if self.mode == Mode::Blocking {
                self.port.socket.wait(SLEEP);
            }
            for _ in 0..LOOKS {
                let taken = self.port.socket.receive(|bytes| {
                    copy.clear();
                    copy.extend_from_slice(bytes);
                });
                if taken.is_none() {
                    if self.mode == Mode::Blocking {
                        break;
                    }
                    std::hint::spin_loop();
                } else if frame::read(&copy).is_some_and(|(ports, _)| ports.to == PORT) {
                    frame::turn_round(&mut copy);
                    // a message that cannot be sent is lost; the client counts it
                    let _ = self.port.socket.send(|frame| {
                        frame[..copy.len()].copy_from_slice(&copy);
                        copy.len()
                    });
                }
            }
        }
    }
}

/// The client's end of all connections.
pub(super) struct Xdp {
    port: Port,
    ends: Ends,
    connections: usize,
    blocks: bool,
    message: Vec<u8>,
    server: String,
    server_attachment: XdpAttachment,
}

impl Xdp {
    /// Opens it in the calling thread's network namespace.
    pub(super) fn open(
        server: &XdpServer,
        mode: Mode,
        connections: usize,
    ) -> Result<Self, RttError> {
        let ends = server.ends;
        let own = mac_of(ends.client_device).map_err(|error| refused(ends.mode, &error))?;
        Ok(Self {
            port: Port::open(ends.client_device, ends.mode)?,
            ends: Ends {
                from: (own, ends.client_address),
                to: (server.mac, ends.server_address),
            },
            connections,
            blocks: mode == Mode::Blocking,
            message: Vec::with_capacity(socket::FRAME),
            server: format!("{} (AF_XDP)", ends.server_address),
            server_attachment: server.attachment,
        })
    }
}

impl Wire for Xdp {
    fn send(&mut self, connection: usize, message: &[u8]) -> Result<(), RttError> {
        if message.len() + HEADERS - 14 > MTU {
            return Err(RttError::TooLarge {
                size: message.len(),
                server: self.server.clone(),
                most: Some(MTU + 14 - HEADERS),
            });
        }
        let ports = Ports {
            from: PORT + 1 + connection as u16,
            to: PORT,
        };
        let ends = self.ends;
        let sent = self
            .port
            .socket
            .send(|frame| frame::write(frame, &ends, ports, message));
        // without a free frame the message is lost and counted as such
        sent.map(drop).map_err(|source| RttError::Kernel {
            call: "sendto on an AF_XDP socket",
            source,
        })
    }

    fn receive(&mut self) -> Result<WaitOutcome<'_>, RttError> {
        self.within(LOOKS)
    }

    fn look(&mut self) -> Result<WaitOutcome<'_>, RttError> {
        self.within(1)
    }

    fn xdp_attachment(&self) -> Option<XdpAttachment> {
        Some(self.port.attached.attachment.max(self.server_attachment))
    }
}

impl Xdp {
    /// Looks for a message this many times.
    fn within(&mut self, looks: u32) -> Result<WaitOutcome<'_>, RttError> {
        let (message, connections) = (&mut self.message, self.connections);
        let mut slept = false;
        for _ in 0..looks {
            let found = self.port.socket.receive(|bytes| {
                let (Ports { from, to }, payload) = frame::read(bytes)?;
                let connection = usize::from(to.checked_sub(PORT + 1)?);
                if from != PORT || connection >= connections {
                    return None;
                }
                message.clear();
                message.extend_from_slice(payload);
                Some(connection)
            });
            match found {
                Some(Some(connection)) => {
                    return Ok(WaitOutcome::Message {
                        connection,
                        bytes: &self.message,
                    });
                }
                Some(None) => {}
                None if self.blocks && slept => break,
                None if self.blocks => {
                    self.port.socket.wait(SLEEP);
                    slept = true;
                }
                None => std::hint::spin_loop(),
            }
        }
        Ok(WaitOutcome::Nothing)
    }
}

/// The link-layer address of a device of the calling thread's network namespace.
fn mac_of(device: u32) -> io::Result<Mac> {
    use std::os::fd::AsRawFd;
    let any = std::net::UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: a plain structure of numbers, for which all zeroes are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes at most IF_NAMESIZE bytes, the size of the name.
    let name = unsafe { libc::if_indextoname(device, request.ifr_name.as_mut_ptr()) };
    if name.is_null() {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open, and the kernel reads and writes one `ifreq`.
    let result = unsafe { libc::ioctl(any.as_raw_fd(), libc::SIOCGIFHWADDR, &mut request) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: this request fills in the hardware address.
    let address = unsafe { request.ifr_ifru.ifru_hwaddr };
    Ok(std::array::from_fn(|i| address.sa_data[i] as u8))
}
