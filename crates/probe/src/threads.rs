//! The names of threads, which the eBPF programs note at each thread switch.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use rustix::mm::ProtFlags;
use taillab_model::ThreadName;

use crate::ring::Mapping;

/// Places in the programs' array (`THREADS` in disturbances.bpf.h).
const PLACES: usize = 65_536;

/// `struct thread` in disturbances.bpf.h.
#[repr(C)]
pub(crate) struct ThreadSlot {
    tid: AtomicU32,
    tgid: AtomicU32,
    comm: [AtomicU64; 2],
    server: AtomicU32,
    unused: AtomicU32,
}

/// The array of names, mapped.
pub(crate) struct Threads(Mapping<ThreadSlot>);

impl Threads {
    /// Maps the array in this map of a loaded object.
    pub(crate) fn map(threads: impl AsFd) -> io::Result<Self> {
        Mapping::new(threads, PLACES, ProtFlags::READ).map(Self)
    }

    /// All noted threads.
    pub(crate) fn names(&self) -> Vec<ThreadName> {
        self.0.items().iter().filter_map(ThreadSlot::name).collect()
    }
}

impl ThreadSlot {
    /// The thread noted here; `None` if there is none, or if another one takes its place meanwhile.
    fn name(&self) -> Option<ThreadName> {
        let tid = self.tid.load(Ordering::Acquire);
        let words = self
            .comm
            .each_ref()
            .map(|word| word.load(Ordering::Relaxed));
        let pid = self.tgid.load(Ordering::Relaxed);
        let server = self.server.load(Ordering::Relaxed) != 0;
        // the name is read before the id is checked again
        fence(Ordering::Acquire);
        if tid == 0 || self.tid.load(Ordering::Relaxed) != tid {
            return None;
        }
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let end = bytes.iter().position(|&byte| byte == 0);
        let comm = String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]);
        Some(ThreadName {
            tid,
            pid,
            comm: comm.into_owned(),
            server,
            real_time: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(tid: u32, comm: &[u8; 16]) -> ThreadSlot {
        let word = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&comm[at..at + 8]);
            u64::from_le_bytes(bytes).into()
        };
        ThreadSlot {
            tid: tid.into(),
            tgid: 7.into(),
            comm: [word(0), word(8)],
            server: 1.into(),
            unused: 0.into(),
        }
    }

    #[test]
    fn a_place_is_a_thread_with_its_name() {
        assert_eq!(size_of::<ThreadSlot>(), 32);
        let name = place(9, b"mc-worker\0\0\0\0\0\0\0").name().unwrap();
        assert_eq!((name.tid, name.pid, name.server), (9, 7, true));
        assert_eq!(name.comm, "mc-worker");
        let longest = place(9, b"fifteen-letters\0").name().unwrap();
        assert_eq!(longest.comm, "fifteen-letters");
        assert_eq!(place(0, &[0; 16]).name(), None);
    }
}
