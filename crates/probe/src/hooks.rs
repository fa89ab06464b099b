//! The kernel hooks that can give each stamp, best first.

use std::ffi::OsStr;
use std::io;

use taillab_model::summary::Hook;

mod table;

pub(crate) use table::stamps;

/// A way to get one stamp.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// The hook that gives the stamp.
    pub(crate) hook: &'static str,
    /// The eBPF programs that it needs.
    pub(crate) programs: &'static [&'static str],
    /// What it loses compared with the best hook.
    pub(crate) lost_precision: Option<&'static str>,
}

/// A stamp and the ways to get it.
#[derive(Debug)]
pub(crate) struct Stamp {
    /// Its name in the result.
    pub(crate) name: &'static str,
    /// Best first.
    pub(crate) candidates: &'static [Candidate],
    /// What the result lacks if no candidate works; `None` if the result is useless
    /// without this stamp.
    pub(crate) without: Option<&'static str>,
}

/// The wanted stamps and disturbances.
pub(crate) type Stamps = [&'static Stamp];

/// The hook chosen for each of the [`Stamps`]; `None` if there is none.
pub(crate) type Choice = Vec<Option<&'static Candidate>>;

/// A trial that failed.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// The step that failed.
    pub(crate) phase: &'static str,
    /// It failed for lack of memory, which says nothing about the hook.
    pub(crate) out_of_memory: bool,
    /// The kernel's answer.
    pub(crate) source: io::Error,
}

/// The stamp that is not available, its best hook, and why.
pub(crate) type Failure = (&'static str, &'static str, Refusal);

/// The best choice that `load` accepts, and what `load` returned for it.
///
/// `load` loads and attaches programs, which takes time. Where every best
/// hook works, as on most kernels, it is called once. Otherwise the stamps with several
/// candidates are tried one by one, and the other stamps only if that is refused too.
pub(crate) fn choose<T>(
    stamps: &Stamps,
    avoided: &[&str],
    mut load: impl FnMut(&[&'static str]) -> Result<T, Refusal>,
) -> Result<(T, Choice), Failure> {
    let candidates = |stamp: &'static Stamp| {
        let allowed = |candidate: &&Candidate| !avoided.contains(&candidate.hook);
        stamp.candidates.iter().filter(allowed)
    };
    let mut choice: Choice = stamps
        .iter()
        .map(|stamp| candidates(stamp).next())
        .collect();
    let complete = |choice: &Choice| {
        let mut pairs = choice.iter().zip(stamps);
        pairs.all(|(chosen, stamp)| chosen.is_some() || stamp.without.is_some())
    };
    if complete(&choice)
        && let Ok(loaded) = load(&programs(&choice))
    {
        return Ok((loaded, choice));
    }
    for with_rivals in [true, false] {
        for (chosen, stamp) in choice.iter_mut().zip(stamps) {
            if (candidates(stamp).count() > 1) == with_rivals {
                *chosen = try_each(stamp, candidates(stamp), &mut load)?;
            }
        }
        match load(&programs(&choice)) {
            Ok(loaded) if complete(&choice) => return Ok((loaded, choice)),
            // each one was accepted alone: report the first
            Err(refusal) if !with_rivals => {
                return Err((stamps[0].name, "all together", refusal));
            }
            _ => {}
        }
    }
    // not reached: try_each fails for a missing stamp
    let refusal = Refusal::avoided();
    Err((stamps[0].name, stamps[0].candidates[0].hook, refusal))
}

/// The first candidate that works alone; `None` if none works and the stamp is optional.
fn try_each<T>(
    stamp: &'static Stamp,
    candidates: impl Iterator<Item = &'static Candidate>,
    load: &mut impl FnMut(&[&'static str]) -> Result<T, Refusal>,
) -> Result<Option<&'static Candidate>, Failure> {
    let mut best_refusal = None;
    for candidate in candidates {
        match load(candidate.programs) {
            Ok(_) => return Ok(Some(candidate)),
            Err(refusal) if refusal.out_of_memory => {
                return Err((stamp.name, candidate.hook, refusal));
            }
            Err(refusal) => {
                best_refusal.get_or_insert((stamp.name, candidate.hook, refusal));
            }
        }
    }
    if stamp.without.is_some() {
        return Ok(None);
    }
    let hook = stamp.candidates[0].hook;
    Err(best_refusal.unwrap_or_else(|| (stamp.name, hook, Refusal::avoided())))
}

impl Refusal {
    fn avoided() -> Self {
        Self {
            phase: "choosing",
            out_of_memory: false,
            source: io::Error::other("all its hooks are to be avoided"),
        }
    }
}

/// The programs of a choice.
fn programs(choice: &Choice) -> Vec<&'static str> {
    choice
        .iter()
        .flatten()
        .flat_map(|candidate| candidate.programs)
        .copied()
        .collect()
}

/// By this, programs are sorted before they are attached.
///
/// One that sees the end of something comes before the one that sees its beginning. Otherwise what begins and ends
/// between the two would seem to run until the next one of its kind, and `on_top` in disturbances.bpf.h would hide what
/// threads ask of storage.
pub(crate) fn attach_rank(program: &OsStr) -> u8 {
    u8::from(!program.as_encoded_bytes().ends_with(b"_ends"))
}

/// The programs that stay attached where everything else is recorded in slices: those of T1 and T6,
/// and one that runs so seldom that it costs nothing.
pub(crate) fn always_attached(stamps: &Stamps, choice: &Choice) -> Vec<&'static str> {
    let pairs = stamps.iter().zip(choice);
    pairs
        .filter(|(stamp, _)| matches!(stamp.name, "T1" | "T6" | "others" | "major_fault"))
        .filter_map(|(_, chosen)| *chosen)
        .flat_map(|candidate| candidate.programs)
        .copied()
        .collect()
}

/// Whether nothing is lost when the kernel skips this program because it already runs on the
/// CPU: another program does its work then, or there is nothing to do.
pub(crate) fn loses_nothing(program: &str) -> bool {
    matches!(
        program,
        "segment_queued"
            | "segment_queued_upon"
            | "to_wake_stream_reader"
            | "to_wake_stream_reader_upon"
            // an interrupt's own waits and requests are not waits of the thread
            | "lock_wanted"
            | "lock_taken"
            | "storage_asked"
            | "direct_io_ended"
    )
}

/// The choice in the form that the result uses.
pub(crate) fn describe(stamps: &Stamps, choice: &Choice) -> Vec<Hook> {
    let describe = |(stamp, chosen): (&&Stamp, &Option<&Candidate>)| {
        let (hook, lost_precision) = match chosen {
            Some(candidate) => (candidate.hook, candidate.lost_precision),
            None => ("none", stamp.without),
        };
        Hook {
            stamp: stamp.name.into(),
            hook: hook.into(),
            lost_precision: lost_precision.map(Into::into),
        }
    };
    stamps.iter().zip(choice).map(describe).collect()
}

/// How the payload of segments is read, for the result.
pub(crate) fn of_payload(recorded: bool) -> Hook {
    Hook {
        stamp: "payload".into(),
        hook: if recorded {
            "kfunc bpf_dynptr_from_skb"
        } else {
            "none"
        }
        .into(),
        lost_precision: (!recorded).then(|| {
            "only the amount of each segment's payload is recorded: its bytes need Linux 6.11 or later"
                .into()
        }),
    }
}

#[cfg(test)]
mod tests;
