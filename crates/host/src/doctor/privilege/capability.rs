//! What a process may do, one right each.

/// A capability (`capabilities(7)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// As in capabilities(7): `CAP_BPF`.
    pub name: &'static str,
    pub(super) number: u32,
}

/// The capabilities that matter here, with their numbers (`include/uapi/linux/capability.h`).
macro_rules! capabilities {
    ($($name:ident = $number:literal),+) => {$(
        #[doc = concat!("`CAP_", stringify!($name), "`.")]
        pub const $name: Capability = Capability {
            name: concat!("CAP_", stringify!($name)),
            number: $number,
        };
    )+};
}

capabilities!(
    DAC_OVERRIDE = 1,
    DAC_READ_SEARCH = 2,
    SETGID = 6,
    SETUID = 7,
    NET_ADMIN = 12,
    NET_RAW = 13,
    SYS_PTRACE = 19,
    SYS_ADMIN = 21,
    SYS_NICE = 23,
    SYS_RESOURCE = 24,
    PERFMON = 38,
    BPF = 39
);
