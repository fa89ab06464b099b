//! The servers that the recorded one asks, which the eBPF programs number.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::ProtFlags;

use crate::ring::Mapping;

/// Places in the programs' array (`MOST_UPSTREAMS` in upstream.bpf.h).
const PLACES: usize = 256;

/// `struct upstream` in upstream.bpf.h.
#[repr(C)]
pub(crate) struct UpstreamSlot {
    /// In network order, IPv4 mapped into IPv6.
    address: [AtomicU32; 4],
    /// 0: nobody has this number.
    port: AtomicU32,
    unused: AtomicU32,
}

/// The array of addresses, mapped.
pub(crate) struct Upstreams(Mapping<UpstreamSlot>);

impl Upstreams {
    /// Maps the array in this map of a loaded object.
    pub(crate) fn map(upstreams: impl AsFd) -> io::Result<Self> {
        Mapping::new(upstreams, PLACES, ProtFlags::READ).map(Self)
    }

    /// The servers that were asked so far, with their numbers in events.
    pub(crate) fn asked(&self) -> Vec<(u16, SocketAddr)> {
        let places = self.0.items().iter();
        let numbered = (1..).zip(places);
        numbered
            .filter_map(|(number, place)| Some((number, place.read()?)))
            .collect()
    }
}

impl UpstreamSlot {
    /// The address noted here; `None` if there is none.
    fn read(&self) -> Option<SocketAddr> {
        // written last, and x86-64 keeps stores in order
        let port = self.port.load(Ordering::Acquire) as u16;
        let mut octets = [0; 16];
        for (word, bytes) in self.address.iter().zip(octets.as_chunks_mut::<4>().0) {
            *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
        }
        let address = IpAddr::V6(Ipv6Addr::from(octets)).to_canonical();
        (port != 0).then(|| SocketAddr::new(address, port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_an_address_or_nobody_s() {
        let place = |address: &str, port: u32| {
            let address: Ipv6Addr = address.parse().unwrap();
            let words = address.octets();
            let (words, _) = words.as_chunks::<4>();
            UpstreamSlot {
                address: std::array::from_fn(|n| u32::from_ne_bytes(words[n]).into()),
                port: port.into(),
                unused: 0.into(),
            }
        };
        assert_eq!(size_of::<UpstreamSlot>(), 24);
        let v4 = place("::ffff:10.0.0.7", 5_432).read();
        assert_eq!(v4, Some("10.0.0.7:5432".parse().unwrap()));
        let v6 = place("2001:db8::1", 80).read();
        assert_eq!(v6, Some("[2001:db8::1]:80".parse().unwrap()));
        assert_eq!(place("::", 0).read(), None);
    }
}
