//! Sets of CPUs, which of them we may use, and who gets which.

mod placement;

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::str::FromStr;

use rustix::thread;
use serde::{Deserialize, Serialize};

pub use self::placement::{Placement, RequestedCpus};
use crate::roots::{Roots, read_optional};

/// How many CPUs an affinity mask can hold here.
pub const MAX_CPUS: u32 = thread::CpuSet::MAX_CPU as u32;

/// Why CPUs cannot be used as wanted.
#[derive(Debug, thiserror::Error)]
pub enum CpuError {
    /// A CPU list that cannot be read.
    #[error("\"{list}\" is not a CPU list ({reason}): write it like 0-1,3")]
    BadList {
        /// The text that is no list.
        list: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Only one CPU: server and generator would take turns.
    #[error(
        "only CPU {cpus} is usable, and the server and the load generator each need a CPU of their \
         own: on one CPU every request would wait for the generator; use a machine with two or \
         more CPUs, name them where others are isolated (-C 1 --client-cpus 2), or widen the affinity \
         of this process (taskset, cpuset)"
    )]
    TooFew {
        /// The usable CPUs.
        cpus: CpuSet,
    },
    /// The same CPU for both.
    #[error(
        "CPU {common} is wanted for both the server and the load generator, which would disturb \
         each other: give them different CPUs"
    )]
    Overlap {
        /// The CPUs in both sets.
        common: CpuSet,
    },
    /// Every CPU for one of them.
    #[error(
        "the {owner} would get every usable CPU ({usable}), which leaves none for the {other}: \
         name fewer"
    )]
    NoneLeft {
        /// The one that is to have them: the server or the load generator.
        owner: &'static str,
        /// The one that gets none.
        other: &'static str,
        /// The CPUs that can be used.
        usable: CpuSet,
    },
    /// A CPU that is offline or that this process may not use.
    #[error(
        "CPU {unusable} cannot be used here, since the kernel lets this process run only on others: \
         choose among {usable}; or see that it is online (/sys/devices/system/cpu/online) and in the \
         cpuset of this process (cpuset.cpus.effective of its control group)"
    )]
    Unusable {
        /// The CPUs that are wanted and cannot be used.
        unusable: CpuSet,
        /// The CPUs that can be used.
        usable: CpuSet,
    },
    /// The kernel refused an affinity.
    #[error("cannot bind to CPU {cpus}: {source}; choose CPUs that this process may use")]
    Pin {
        /// The CPUs wanted.
        cpus: CpuSet,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The affinity of this process could not be read.
    #[error("cannot read which CPUs this process may use: {0}")]
    Unknown(io::Error),
}

/// A set of CPU numbers, written as the kernel writes lists: `0-1,3`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CpuSet(BTreeSet<u32>);

impl CpuSet {
    /// The set of one CPU.
    pub fn single(cpu: u32) -> Self {
        Self(BTreeSet::from([cpu]))
    }

    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// The number of CPUs in the set.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// No CPU at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The lowest CPU.
    pub fn first(&self) -> Option<u32> {
        self.0.first().copied()
    }

    /// Whether `cpu` is in the set.
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.contains(&cpu)
    }

    /// The CPUs in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).copied().collect())
    }

    /// The CPUs of this set that the other lacks.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0).copied().collect())
    }

    /// As a kernel bitmap: hexadecimal, groups of 32 bits from the highest, joined
    /// by commas (`lib/bitmap-str.c`, `bitmap_parse`).
    pub fn to_mask(&self) -> String {
        let groups = self.0.last().map_or(1, |&top| top / 32 + 1);
        (0..groups)
            .rev()
            .map(|group| {
                let bits = self
                    .iter()
                    .filter(|cpu| cpu / 32 == group)
                    .fold(0_u32, |bits, cpu| bits | 1 << (cpu % 32));
                format!("{bits:08x}")
            })
            .collect::<Vec<_>>()
            .join(",")
    }

    /// Reads a kernel bitmap as [`CpuSet::to_mask`] writes it.
    ///
    /// # Errors
    /// [`CpuError::BadList`] when the text is no such bitmap.
    pub fn from_mask(text: &str) -> Result<Self, CpuError> {
        let mut cpus = BTreeSet::new();
        for (group, word) in text.trim().rsplit(',').enumerate() {
            let bits = u32::from_str_radix(word, 16).map_err(|e| CpuError::BadList {
                list: text.trim().to_owned(),
                reason: e.to_string(),
            })?;
            cpus.extend(
                (0..32)
                    .filter(|bit| bits >> bit & 1 == 1)
                    .map(|bit| group as u32 * 32 + bit),
            );
        }
        Ok(Self(cpus))
    }

    /// As the kernel's affinity mask.
    pub(crate) fn to_affinity(&self) -> thread::CpuSet {
        let mut set = thread::CpuSet::new();
        for cpu in self.iter().filter(|&cpu| cpu < MAX_CPUS) {
            set.set(cpu as usize);
        }
        set
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        Self(cpus.into_iter().collect())
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if_eq(&(last + 1)) {
                last = next;
            }
            match last - first {
                0 => write!(f, "{separator}{first}")?,
                _ => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

impl FromStr for CpuSet {
    type Err = CpuError;

    /// Reads `0-1,3`; of a range also a part: `0-7:1/2` is the first of each two, as the kernel writes it, and
    /// `0-7:2` is every second one, as taskset does. An empty list is refused: nothing can run on no CPU.
    fn from_str(list: &str) -> Result<Self, CpuError> {
        let bad = |reason: String| CpuError::BadList {
            list: list.to_owned(),
            reason,
        };
        let number = |text: &str| match text.trim().parse::<u32>() {
            Ok(cpu) if cpu < MAX_CPUS => Ok(cpu),
            Ok(cpu) => Err(bad(format!("CPU {cpu} is above {}", MAX_CPUS - 1))),
            Err(_) => Err(bad(format!("\"{}\" is not a CPU number", text.trim()))),
        };
        let mut cpus = BTreeSet::new();
        for part in list.trim().split(',') {
            let (range, groups) = part.split_once(':').unwrap_or((part, "1"));
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(bad(format!("{first}-{last} runs backwards")));
            }
            let (used, of) = groups.split_once('/').unwrap_or(("1", groups));
            let (used, of) = (number(used)?, number(of)?);
            if used == 0 || used > of {
                return Err(bad(format!("no group has {used} of {of} CPUs")));
            }
            cpus.extend((first..=last).filter(|cpu| (cpu - first) % of < used));
        }
        Ok(Self(cpus))
    }
}

impl TryFrom<String> for CpuSet {
    type Error = CpuError;
    fn try_from(list: String) -> Result<Self, CpuError> {
        list.parse()
    }
}

impl From<CpuSet> for String {
    fn from(cpus: CpuSet) -> Self {
        cpus.to_string()
    }
}

/// The CPUs that are online, or `None` where the kernel does not say.
pub fn online(roots: &Roots) -> Option<CpuSet> {
    listed(roots, "online")
}

/// The CPUs of one of the kernel's lists (`online`, `possible`, `isolated`, `nohz_full`), or `None` where
/// it has none or does not say.
pub fn listed(roots: &Roots, name: &str) -> Option<CpuSet> {
    let list = roots.sys.join("devices/system/cpu").join(name);
    read_optional(&list)?.parse().ok()
}

/// The CPUs that share a core with `cpu`, itself included; only itself where the
/// kernel does not say.
pub fn siblings(roots: &Roots, cpu: u32) -> CpuSet {
    let path = format!("devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    read_optional(&roots.sys.join(path))
        .and_then(|list| list.parse().ok())
        .unwrap_or_else(|| CpuSet::single(cpu))
}

/// The CPUs of the NUMA node of `cpu`; none where the kernel does not say.
fn node(roots: &Roots, cpu: u32) -> CpuSet {
    let nodes = roots.sys.join("devices/system/node");
    let list = |file: String| read_optional(&nodes.join(file))?.parse::<CpuSet>().ok();
    let online = list("online".into()).unwrap_or_default();
    let mut cpus = (online.iter()).filter_map(|node| list(format!("node{node}/cpulist")));
    cpus.find(|cpus| cpus.contains(cpu)).unwrap_or_default()
}

/// The CPUs on which the calling thread may run. (The kernel leaves offline CPUs out.)
///
/// # Errors
/// [`CpuError::Unknown`] when the kernel refuses to say, e.g. on more than
/// [`MAX_CPUS`] CPUs.
pub fn allowed() -> Result<CpuSet, CpuError> {
    let set = thread::sched_getaffinity(None).map_err(|e| CpuError::Unknown(e.into()))?;
    Ok((0..MAX_CPUS)
        .filter(|&cpu| set.is_set(cpu as usize))
        .collect())
}

/// The CPUs that this process can use: those of its mask, and of the `wanted` ones also those that the mask
/// leaves out and the kernel gives us when we ask. (A mask is inherited, and isolcpus takes CPUs out of everybody's;
/// only a cpuset holds.)
///
/// # Errors
/// [`CpuError::Unknown`].
pub fn usable<'a>(wanted: impl IntoIterator<Item = &'a CpuSet>) -> Result<CpuSet, CpuError> {
    let allowed = allowed()?;
    let wanted: CpuSet = wanted.into_iter().flat_map(|cpus| cpus.iter()).collect();
    let outside = wanted.difference(&allowed);
    if outside.is_empty() {
        return Ok(allowed);
    }
    let given = given(outside)?;
    Ok(allowed.iter().chain(given.iter()).collect())
}

/// Those of the CPUs to which the kernel lets a thread of this process go.
fn given(cpus: CpuSet) -> Result<CpuSet, CpuError> {
    let ask = move || match thread::sched_setaffinity(None, &cpus.to_affinity()) {
        // it leaves out what the cpuset lacks
        Ok(()) => allowed(),
        Err(_) => Ok(CpuSet::default()),
    };
    // a thread of its own: ours stays where it is
    let asked = std::thread::Builder::new().spawn(ask);
    let answer = asked.map_err(CpuError::Unknown)?.join();
    answer.unwrap_or_else(|_| Ok(CpuSet::default()))
}

/// [`usable`], if all these are among them.
///
/// # Errors
/// [`CpuError::Unusable`], [`CpuError::Unknown`].
pub fn ensure_usable(wanted: &CpuSet) -> Result<CpuSet, CpuError> {
    let usable = usable([wanted])?;
    let unusable = wanted.difference(&usable);
    match unusable.is_empty() {
        true => Ok(usable),
        false => Err(CpuError::Unusable { unusable, usable }),
    }
}

/// Binds the calling thread to `cpus`; threads and processes that it starts inherit
/// this.
///
/// # Errors
/// [`CpuError::Pin`] when the kernel refuses, [`CpuError::Unusable`] when it allows
/// only some of them.
pub fn pin_current_thread(cpus: &CpuSet) -> Result<(), CpuError> {
    thread::sched_setaffinity(None, &cpus.to_affinity()).map_err(|e| CpuError::Pin {
        cpus: cpus.clone(),
        source: e.into(),
    })?;
    let effective = allowed()?;
    if effective == *cpus {
        return Ok(());
    }
    Err(CpuError::Unusable {
        unusable: cpus.difference(&effective),
        usable: effective,
    })
}

/// The usable CPUs that share no core with those that are taken.
fn apart(usable: &CpuSet, taken: &CpuSet, siblings: impl Fn(u32) -> CpuSet) -> CpuSet {
    let near: CpuSet = taken.iter().flat_map(|cpu| siblings(cpu).0).collect();
    usable.difference(&near)
}

/// The usable CPUs besides those that are taken: those on other cores or, where there are none, all others.
/// `siblings` are the CPUs that share a core with one, itself included, as [`siblings`] gives them.
pub fn others(usable: &CpuSet, taken: &CpuSet, siblings: impl Fn(u32) -> CpuSet) -> CpuSet {
    let apart = apart(usable, taken, siblings);
    if apart.is_empty() {
        usable.difference(taken)
    } else {
        apart
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    #[test]
    fn lists_print_as_they_are_read() {
        for (text, printed) in [
            ("0", "0"),
            ("0-1,3", "0-1,3"),
            (" 3,1,2 ", "1-3"),
            ("0,0", "0"),
            ("0-3:1/2", "0,2"),
            ("0-8:2/4,10", "0-1,4-5,8,10"),
            ("1-7:3", "1,4,7"),
        ] {
            assert_eq!(set(text).to_string(), printed);
        }
        for bad in [
            "",
            ",",
            "a",
            "1-",
            "3-1",
            "-1",
            "0,",
            "1-2-3",
            "99999",
            "0-3:0/2",
            "0-3:3/2",
            "0-3:",
            "0-3:0",
            "0-3:1/2/3",
        ] {
            let error = bad.parse::<CpuSet>().unwrap_err().to_string();
            assert!(error.contains("is not a CPU list"), "{bad:?}: {error}");
        }
    }

    #[test]
    fn masks_are_the_kernels() {
        assert_eq!(set("0").to_mask(), "00000001");
        assert_eq!(set("1,32-33").to_mask(), "00000003,00000002");
        for list in ["0", "1,31-33,100"] {
            assert_eq!(CpuSet::from_mask(&set(list).to_mask()).unwrap(), set(list));
        }
        assert_eq!(CpuSet::from_mask("3\n").unwrap(), set("0-1"));
        assert!(CpuSet::from_mask("xyz").is_err());
    }

    #[test]
    fn a_pinned_thread_may_use_only_its_cpu() {
        std::thread::spawn(|| {
            let cpu = CpuSet::single(allowed().unwrap().first().unwrap());
            pin_current_thread(&cpu).unwrap();
            assert_eq!(allowed().unwrap(), cpu);
            assert!(pin_current_thread(&CpuSet::single(MAX_CPUS - 1)).is_err());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_cpu_outside_of_the_mask_is_asked_for() {
        std::thread::spawn(|| {
            let all = allowed().unwrap();
            let first = CpuSet::single(all.first().unwrap());
            pin_current_thread(&first).unwrap();
            for wanted in all.iter().map(CpuSet::single) {
                let usable = ensure_usable(&wanted).unwrap();
                assert_eq!(usable, first.iter().chain(wanted.iter()).collect());
                // asking changes nothing
                assert_eq!(allowed().unwrap(), first);
            }
            if let Some(last) = all.iter().last().filter(|last| !first.contains(*last)) {
                let last = CpuSet::single(last);
                let requested = RequestedCpus {
                    server: Some(&last),
                    client: None,
                };
                let placed = Placement::choose(&Roots::default(), requested).unwrap();
                assert_eq!((placed.server, placed.client), (last, first));
            }
            let error = ensure_usable(&CpuSet::single(MAX_CPUS - 1)).unwrap_err();
            let error = error.to_string();
            assert!(
                error.contains("choose among") && error.contains("cpuset"),
                "{error}"
            );
        })
        .join()
        .unwrap();
    }

    #[test]
    fn topology_is_read_from_the_given_root() {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots::below(folder.path());
        let cpu = roots.sys.join("devices/system/cpu");
        std::fs::create_dir_all(cpu.join("cpu4/topology")).unwrap();
        std::fs::write(cpu.join("online"), "0-7\n").unwrap();
        std::fs::write(cpu.join("cpu4/topology/thread_siblings_list"), "0,4\n").unwrap();
        let nodes = roots.sys.join("devices/system/node");
        for (name, cpus) in [("node0", "0-3\n"), ("node1", "4-7\n")] {
            std::fs::create_dir_all(nodes.join(name)).unwrap();
            std::fs::write(nodes.join(name).join("cpulist"), cpus).unwrap();
        }
        assert_eq!(node(&roots, 5), CpuSet::default());
        std::fs::write(nodes.join("online"), "0-1\n").unwrap();
        assert_eq!(node(&roots, 5), set("4-7"));
        assert_eq!(online(&roots), Some(set("0-7")));
        assert_eq!(siblings(&roots, 4), set("0,4"));
        assert_eq!(siblings(&roots, 5), set("5"));
        let placement = Placement {
            server: set("4"),
            client: set("5"),
        };
        assert_eq!(placement.apart(&roots, &set("0-7")), set("1-3,6-7"));
        assert!(placement.apart(&roots, &set("4-5")).is_empty());
    }
}
