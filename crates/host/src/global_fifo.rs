//! A `sched_ext` scheduler with one queue for all ordinary threads, first come first served. It runs
//! while a [`GlobalFifo`] is held.
//!
//! A scheduler that defines no operation gets the kernel's defaults, which put every thread into one
//! queue for the whole machine (kernel `Documentation/scheduler/sched-ext.rst`). So no program is
//! loaded: a map of the type that the kernel's BTF describes, with a name in it, is enough.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use crate::syscall::{bpf, descriptor};

/// The scheduler's name, as /sys/kernel/sched_ext/root/ops shows it.
const NAME: &str = "taillab_global_fifo";
/// BTF names of the map's value, and of the operations in it.
const VALUE: &str = "bpf_struct_ops_sched_ext_ops";
const OPERATIONS: &str = "sched_ext_ops";

const BPF_MAP_CREATE: libc::c_int = 0;
const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;
const BPF_BTF_LOAD: libc::c_int = 18;
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_MAP_TYPE_STRUCT_OPS: u32 = 26;
const BPF_F_LINK: u32 = 1 << 13;
const BPF_STRUCT_OPS: u32 = 44;

/// Why the scheduler could not be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GlobalFifoError {
    /// The kernel has no `sched_ext`.
    #[error("this kernel has no sched_ext: Linux 6.12 or later with CONFIG_SCHED_CLASS_EXT has it")]
    Missing,
    /// The kernel refuses it.
    #[error(
        "cannot {doing} the scheduler: {source}; run as root, and end another one first (/sys/kernel/sched_ext/root/ops names it)"
    )]
    Refused {
        /// What was asked for.
        doing: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// The running scheduler. The kernel removes it and schedules fairly again when this value is dropped,
/// when this process ends, or when a thread that could run has waited for half a minute.
#[derive(Debug)]
pub(crate) struct GlobalFifo {
    _map: OwnedFd,
    _link: OwnedFd,
}

impl GlobalFifo {
    /// Starts the scheduler, which takes over all ordinary threads of the machine.
    ///
    /// # Errors
    /// [`GlobalFifoError`].
    pub(crate) fn hold() -> Result<Self, GlobalFifoError> {
        let types = fs::read("/sys/kernel/btf/vmlinux").unwrap_or_default();
        let shape = Shape::of(&types).ok_or(GlobalFifoError::Missing)?;
        let refused = |doing| move |source| GlobalFifoError::Refused { doing, source };
        let own_types = describe_nothing().map_err(refused("make"))?;
        let map = create(&shape, &own_types).map_err(refused("make"))?;
        describe(&map, &shape).map_err(refused("describe"))?;
        let link = attach(&map).map_err(refused("start"))?;
        Ok(Self {
            _map: map,
            _link: link,
        })
    }
}

/// Where a scheduler's name is in the map's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    /// BTF id of the value's type.
    id: u32,
    size: u32,
    name_at: u32,
}

impl Shape {
    /// From the kernel's own types (BTF).
    fn of(types: &[u8]) -> Option<Self> {
        let value = Struct::named(types, VALUE)?;
        let operations = Struct::named(types, OPERATIONS)?;
        let name_at = value
            .member("data")?
            .checked_add(operations.member("name")?)?;
        let room = value.size.checked_sub(name_at)?;
        (NAME.len() < room as usize).then_some(Self {
            id: value.id,
            size: value.size,
            name_at,
        })
    }
}

/// A structure in BTF (kernel `Documentation/bpf/btf.rst`).
struct Struct<'b> {
    id: u32,
    size: u32,
    /// Name, type and offset of each member.
    members: &'b [u8],
    has_bit_fields: bool,
    strings: &'b [u8],
}

impl<'b> Struct<'b> {
    fn named(types: &'b [u8], name: &str) -> Option<Self> {
        let magic = types.get(..2)?;
        let header = usize::try_from(word(types, 4)?).ok()?;
        let part = |place: usize| {
            let from = header.checked_add(word(types, place)? as usize)?;
            types.get(from..from.checked_add(word(types, place + 4)? as usize)?)
        };
        let (all, strings) = (part(8)?, part(16)?);
        if u16::from_ne_bytes(magic.try_into().ok()?) != 0xeb9f {
            return None;
        }
        let (mut at, mut id) = (0, 0);
        while at < all.len() {
            id += 1;
            let info = word(all, at + 4)?;
            let (kind, length) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
            let more = match kind {
                1 | 14 | 17 => 4,
                3 => 12,
                4 | 5 | 15 | 19 => 12 * length,
                6 | 13 => 8 * length,
                2 | 7..=12 | 16 | 18 => 0,
                // the length of an unknown kind is unknown, so what follows it cannot be read
                _ => return None,
            };
            let members = all.get(at + 12..at + 12 + more)?;
            if kind == 4 && text(strings, word(all, at)?) == Some(name.as_bytes()) {
                return Some(Self {
                    id,
                    size: word(all, at + 8)?,
                    members,
                    has_bit_fields: info >> 31 == 1,
                    strings,
                });
            }
            at += 12 + more;
        }
        None
    }

    /// The offset of a member in bytes.
    fn member(&self, name: &str) -> Option<u32> {
        let members = self.members.as_chunks::<12>().0;
        let found = members.iter().find(|member| {
            word(&member[..], 0).and_then(|at| text(self.strings, at)) == Some(name.as_bytes())
        })?;
        let bits = word(&found[..], 8)?;
        Some(
            if self.has_bit_fields {
                bits & 0xff_ffff
            } else {
                bits
            } / 8,
        )
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(four.try_into().ok()?))
}

fn text(strings: &[u8], at: u32) -> Option<&[u8]> {
    strings.get(at as usize..)?.split(|byte| *byte == 0).next()
}

/// The halves of an address that the kernel reads, as two words of the attributes.
fn halves(address: usize) -> [u32; 2] {
    let address = address as u64;
    [address as u32, (address >> 32) as u32]
}

/// The kernel wants BTF with every such map, whatever it describes: here one integer.
fn describe_nothing() -> io::Result<OwnedFd> {
    const STRINGS: &[u8] = b"\0int\0";
    const INTEGER: [u32; 4] = [1, 1 << 24, 4, 32];
    let length = size_of_val(&INTEGER) as u32;
    let header = [0x0001_eb9f, 24, 0, length, length, STRINGS.len() as u32];
    let words = header.into_iter().chain(INTEGER);
    let mut types: Vec<u8> = words.flat_map(u32::to_ne_bytes).collect();
    types.extend(STRINGS);
    let [low, high] = halves(types.as_ptr().expose_provenance());
    let attributes = [low, high, 0, 0, types.len() as u32, 0, 0];
    bpf(BPF_BTF_LOAD, &attributes).map(descriptor)
}

fn create(shape: &Shape, own_types: &OwnedFd) -> io::Result<OwnedFd> {
    let mut attributes = [0; 18];
    attributes[..5].copy_from_slice(&[BPF_MAP_TYPE_STRUCT_OPS, 4, shape.size, 1, BPF_F_LINK]);
    // btf_fd and btf_vmlinux_value_type_id
    attributes[12] = own_types.as_raw_fd().cast_unsigned();
    attributes[15] = shape.id;
    bpf(BPF_MAP_CREATE, &attributes).map(descriptor)
}

fn describe(map: &OwnedFd, shape: &Shape) -> io::Result<()> {
    let mut value = vec![0_u8; shape.size as usize];
    let at = shape.name_at as usize;
    value[at..at + NAME.len()].copy_from_slice(NAME.as_bytes());
    let key = 0_u32;
    let [key_low, key_high] = halves((&raw const key).expose_provenance());
    let [value_low, value_high] = halves(value.as_ptr().expose_provenance());
    let number = map.as_raw_fd().cast_unsigned();
    let attributes = [number, 0, key_low, key_high, value_low, value_high, 0, 0];
    bpf(BPF_MAP_UPDATE_ELEM, &attributes).map(drop)
}

fn attach(map: &OwnedFd) -> io::Result<OwnedFd> {
    let attributes = [map.as_raw_fd().cast_unsigned(), 0, BPF_STRUCT_OPS, 0];
    bpf(BPF_LINK_CREATE, &attributes).map(descriptor)
}

/// Whether a scheduler is loaded: `Ok` if none is, `Err` with its name; `None` without `sched_ext`.
pub(crate) fn state(sys: &Path) -> Option<Result<(), String>> {
    let folder = sys.join("kernel/sched_ext");
    let state = fs::read_to_string(folder.join("state")).ok()?;
    Some(match state.trim() {
        "disabled" => Ok(()),
        _ => {
            let name = fs::read_to_string(folder.join("root/ops")).unwrap_or_default();
            Err(name.trim().to_owned())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Types as the kernel describes them: names, then each type's words.
    fn btf(strings: &[u8], types: &[u32]) -> Vec<u8> {
        let length = (types.len() * 4) as u32;
        let header = [
            0x0001_eb9f_u32.to_ne_bytes(),
            24_u32.to_ne_bytes(),
            0_u32.to_ne_bytes(),
            length.to_ne_bytes(),
            length.to_ne_bytes(),
            (strings.len() as u32).to_ne_bytes(),
        ];
        let words = types.iter().flat_map(|word| word.to_ne_bytes());
        header
            .concat()
            .into_iter()
            .chain(words)
            .chain(strings.iter().copied())
            .collect()
    }

    const STRINGS: &[u8] = b"\0bpf_struct_ops_sched_ext_ops\0sched_ext_ops\0data\0name\0common\0";

    fn types(size: u32) -> Vec<u32> {
        let place = |name: &str| {
            let found = STRINGS.windows(name.len() + 2).position(|window| {
                window[0] == 0
                    && window[1..=name.len()] == *name.as_bytes()
                    && window[name.len() + 1] == 0
            });
            found.unwrap() as u32 + 1
        };
        let mut all = vec![0, 1 << 24, 4, 32];
        all.extend([
            place(OPERATIONS),
            4 << 24 | 1,
            400,
            place("name"),
            1,
            8 * 256,
        ]);
        all.extend([place(VALUE), 4 << 24 | 2, size]);
        all.extend([place("common"), 1, 0, place("data"), 2, 8 * 64]);
        all
    }

    #[test]
    fn the_place_of_the_name_is_read_from_the_kernels_types() {
        let found = Shape::of(&btf(STRINGS, &types(464)));
        let shape = Shape {
            id: 3,
            size: 464,
            name_at: 64 + 256,
        };
        assert_eq!(found, Some(shape));
    }

    #[test]
    fn types_without_it_or_that_cannot_be_read_have_none() {
        let whole = btf(STRINGS, &types(464));
        assert_eq!(
            Shape::of(&btf(STRINGS, &types(330))),
            None,
            "no room for the name"
        );
        assert_eq!(Shape::of(&btf(STRINGS, &types(464)[..14])), None);
        for length in 0..whole.len() - STRINGS.len() {
            assert_eq!(Shape::of(&whole[..length]), None);
        }
        // a kind of type that only a later kernel has
        assert_eq!(Shape::of(&btf(STRINGS, &[0, 31 << 24, 0])), None);
    }
}
