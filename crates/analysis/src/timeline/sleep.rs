//! Why a thread sleeps, judged by its system call.

use taillab_model::Asleep;

/// Why a thread of the server sleeps.
///
/// The kind follows from the system call alone, since nothing else is recorded: a thread in `futex`
/// waits for another thread, and one in `epoll_wait` waits for work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Sleep {
    /// For work: in `epoll_wait`, `recvmsg`, `accept`, `poll`, or in an interruptible `read` (of a
    /// socket). It is not a delay, unless a request waits meanwhile.
    Work,
    /// On a lock of user space (`futex`), or, where `call` is `None`, of the kernel.
    Lock {
        /// The system call.
        call: Option<u16>,
    },
    /// In a page fault.
    Fault,
    /// On storage: in a call for files, or uninterruptible.
    Io {
        /// The system call.
        call: u16,
    },
    /// In any other system call.
    Other {
        /// The system call.
        call: u16,
    },
    /// A signal or a debugger has stopped it.
    Stopped,
    /// The reason was not recorded.
    Unknown,
}

/// Numbers of system calls on x86-64 (`arch/x86/entry/syscalls/syscall_64.tbl`).
mod call {
    pub(super) const READ: u16 = 0;
    pub(super) const WRITE: u16 = 1;
    pub(super) const READV: u16 = 19;
    pub(super) const WRITEV: u16 = 20;
    pub(super) const FUTEX: u16 = 202;
    pub(super) const FUTEX_WAITV: u16 = 449;
    pub(super) const FUTEX_WAIT: u16 = 455;

    /// Writing to a socket, among others: `write`, `writev`, `sendfile`, `sendto`, `sendmsg`, `splice`,
    /// `sendmmsg`.
    pub(super) const SEND: [u16; 7] = [WRITE, WRITEV, 40, 44, 46, 275, 307];

    /// Files only: `pread64`, `pwrite64`, `preadv`, `pwritev`, `preadv2`, `pwritev2`, `msync`,
    /// `fsync`, `fdatasync`, `sync`, `syncfs`, `sync_file_range`, `fallocate`, `readahead`,
    /// `open`, `openat`, `openat2`, `stat` and its kin, `getdents`, `rename`, `unlink`,
    /// `truncate`, `io_getevents`.
    pub(super) const FILES: [u16; 31] = [
        17, 18, 295, 296, 327, 328, 26, 74, 75, 162, 306, 277, 285, 187, 2, 257, 437, 4, 5, 6, 262,
        332, 78, 217, 82, 264, 87, 263, 76, 77, 208,
    ];

    /// Waiting for work: `poll`, `select`, `accept`, `recvfrom`, `recvmsg`, `wait4`,
    /// `rt_sigtimedwait`, `epoll_wait` and its kin, `pselect6`, `ppoll`, `accept4`,
    /// `recvmmsg`, `io_uring_enter`, `pause`, `rt_sigsuspend`.
    pub(super) const WORK: [u16; 18] = [
        7, 23, 43, 45, 47, 61, 128, 232, 281, 441, 270, 271, 288, 299, 426, 34, 130, 215,
    ];
}

impl Sleep {
    /// Whether it is in a call that writes, to a socket for instance.
    pub(crate) fn is_in_send(self) -> bool {
        matches!(self, Self::Other { call } if call::SEND.contains(&call))
    }

    /// From what a switch says about the thread that went to sleep.
    pub fn of(asleep: Option<Asleep>) -> Self {
        let Some(asleep) = asleep else {
            return Self::Unknown;
        };
        if asleep.stopped {
            return Self::Stopped;
        }
        let Some(number) = asleep.call else {
            return Self::Fault;
        };
        match number {
            call::FUTEX | call::FUTEX_WAITV | call::FUTEX_WAIT => Self::Lock { call: Some(number) },
            _ if asleep.uninterruptible || call::FILES.contains(&number) => {
                Self::Io { call: number }
            }
            // a read of a file would be uninterruptible
            call::READ | call::READV => Self::Work,
            _ if call::WORK.contains(&number) => Self::Work,
            _ => Self::Other { call: number },
        }
    }
}

/// The name of a system call on x86-64 in which servers sleep; for others, the number.
pub fn call_name(number: u16) -> String {
    let name = match number {
        call::READ => "read",
        call::WRITE => "write",
        2 => "open",
        4 => "stat",
        5 => "fstat",
        6 => "lstat",
        7 => "poll",
        8 => "lseek",
        9 => "mmap",
        10 => "mprotect",
        11 => "munmap",
        12 => "brk",
        16 => "ioctl",
        17 => "pread64",
        18 => "pwrite64",
        call::READV => "readv",
        call::WRITEV => "writev",
        23 => "select",
        26 => "msync",
        28 => "madvise",
        34 => "pause",
        35 => "nanosleep",
        40 => "sendfile",
        42 => "connect",
        43 => "accept",
        44 => "sendto",
        45 => "recvfrom",
        46 => "sendmsg",
        47 => "recvmsg",
        61 => "wait4",
        74 => "fsync",
        75 => "fdatasync",
        76 => "truncate",
        77 => "ftruncate",
        78 => "getdents",
        82 => "rename",
        87 => "unlink",
        128 => "rt_sigtimedwait",
        130 => "rt_sigsuspend",
        162 => "sync",
        187 => "readahead",
        call::FUTEX => "futex",
        208 => "io_getevents",
        215 => "epoll_wait_old",
        217 => "getdents64",
        230 => "clock_nanosleep",
        232 => "epoll_wait",
        257 => "openat",
        262 => "newfstatat",
        263 => "unlinkat",
        264 => "renameat",
        270 => "pselect6",
        271 => "ppoll",
        275 => "splice",
        277 => "sync_file_range",
        281 => "epoll_pwait",
        285 => "fallocate",
        288 => "accept4",
        295 => "preadv",
        296 => "pwritev",
        299 => "recvmmsg",
        306 => "syncfs",
        307 => "sendmmsg",
        327 => "preadv2",
        328 => "pwritev2",
        332 => "statx",
        426 => "io_uring_enter",
        437 => "openat2",
        441 => "epoll_pwait2",
        call::FUTEX_WAITV => "futex_waitv",
        call::FUTEX_WAIT => "futex_wait",
        _ => return format!("system call {number}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleep(call: Option<u16>, uninterruptible: bool) -> Sleep {
        Sleep::of(Some(Asleep {
            call,
            uninterruptible,
            stopped: false,
        }))
    }

    #[test]
    fn a_sleep_is_told_by_its_system_call() {
        assert_eq!(sleep(Some(202), false), Sleep::Lock { call: Some(202) });
        assert_eq!(sleep(Some(232), false), Sleep::Work);
        assert_eq!(sleep(Some(47), false), Sleep::Work);
        assert_eq!(sleep(Some(0), false), Sleep::Work);
        assert_eq!(sleep(Some(0), true), Sleep::Io { call: 0 });
        assert_eq!(sleep(Some(17), false), Sleep::Io { call: 17 });
        assert_eq!(sleep(Some(230), false), Sleep::Other { call: 230 });
        assert_eq!(sleep(None, true), Sleep::Fault);
        assert_eq!(Sleep::of(None), Sleep::Unknown);
        let stopped = Asleep {
            call: Some(232),
            uninterruptible: false,
            stopped: true,
        };
        assert_eq!(Sleep::of(Some(stopped)), Sleep::Stopped);
    }

    #[test]
    fn calls_have_names_or_numbers() {
        assert_eq!(call_name(202), "futex");
        assert_eq!(call_name(999), "system call 999");
        // what is classified by its number has a name
        for number in call::FILES.into_iter().chain(call::WORK) {
            assert!(!call_name(number).starts_with("system call"), "{number}");
        }
    }
}
