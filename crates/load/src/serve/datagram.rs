//! UDP servers: workers that all wait on one socket, or on one each.
//!
//! Both are the same loop of `recvfrom` and `sendto`. On a shared socket the kernel's
//! receive queue is the one queue of all workers, and the worker that has waited longest
//! is woken (`prepare_to_wait_exclusive` in `__skb_wait_for_more_packets`).

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recvfrom, sendto};

use super::connection::Message;
use super::service::Work;
use super::stop::Stop;
use super::tally::{Answered, Rare};

/// Serves until told to stop. `busy` looks again and again instead of sleeping in the
/// kernel until a datagram arrives.
pub(super) fn serve(
    socket: &OwnedFd,
    message: Message,
    mut work: Work,
    answered: &Answered,
    rare: &Rare,
    busy: bool,
    stop: &Stop,
) {
    work.prepare();
    let request_bytes = message.request_bytes;
    // one byte more shows that a datagram is too long
    let mut buffer = vec![b'.'; (request_bytes + 1).max(message.response_bytes)];
    let flags = if busy {
        RecvFlags::DONTWAIT
    } else {
        RecvFlags::empty()
    };
    while !stop.is_set() {
        match recvfrom(socket, &mut buffer[..=request_bytes], flags) {
            Ok((length, _, Some(from))) if length == request_bytes => {
                work.serve();
                let answer = &buffer[..message.response_bytes];
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
            // what the network says about an earlier answer
            Err(_) => {}
        }
    }
}
