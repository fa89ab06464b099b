//! UDP servers: workers that all wait on one socket, or on one each.
//!
//! Both run the same loop of `recvfrom` and `sendto`. On a shared socket all workers share the
//! kernel's receive queue, and the kernel wakes the worker that has waited longest
//! (`prepare_to_wait_exclusive` in `__skb_wait_for_more_packets`).

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recvfrom, sendto};

use super::service::Work;
use super::stop::Stop;
use super::tally::{Answered, Rare};
use crate::protocol::MessageSizes;

/// Serves until told to stop. With `busy` it spins instead of sleeping in the kernel until a
/// datagram arrives.
pub(super) fn serve(
    socket: &OwnedFd,
    sizes: MessageSizes,
    mut work: Work,
    answered: &Answered,
    rare: &Rare,
    busy: bool,
    stop: &Stop,
) {
    work.prepare();
    let request_bytes = sizes.request_bytes;
    // one byte more shows that a datagram is too long
    let mut buffer = vec![b'.'; (request_bytes + 1).max(sizes.response_bytes)];
    let flags = if busy {
        RecvFlags::DONTWAIT
    } else {
        RecvFlags::empty()
    };
    while !stop.is_set() {
        match recvfrom(socket, &mut buffer[..=request_bytes], flags) {
            Ok((length, _, Some(from))) if length == request_bytes => {
                work.serve();
                let answer = &buffer[..sizes.response_bytes];
                match sendto(socket, answer, SendFlags::empty(), &from) {
                    Ok(_) => answered.one_more(),
                    Err(_) => Rare::count(&rare.unsent),
                }
            }
            Ok((_, _, Some(_))) => {
                // what was too long must not be in the next client's answer
                buffer[request_bytes] = b'.';
                Rare::count(&rare.malformed);
            }
            // nobody's datagram: the socket was shut down to wake us
            Ok((_, _, None)) => {}
            Err(Errno::AGAIN) => std::hint::spin_loop(),
            // an ICMP error for an earlier answer
            Err(_) => {}
        }
    }
}
