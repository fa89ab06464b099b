//! The whole server that a process belongs to.

use std::collections::BTreeSet;
use std::fs;

use super::error::TargetError;
use super::sockets::{WaitingSocket, holders, waiting};
use super::{all_held, comm, serving};
use crate::process::{Stat, family};
use crate::roots::Roots;

/// All processes of the server that `pid` belongs to, in ascending order: those that have one of its waiting sockets
/// open, also those that share its port by a socket of their own (SO_REUSEPORT), and all that come from them. Where
/// it waits on none, or its descriptors may not be read, it is `pid` and what comes from it; empty where that has
/// ended.
///
/// # Errors
/// [`TargetError::NotOneServer`]: different programs share its sockets.
pub fn whole_server(roots: &Roots, pid: u32) -> Result<Vec<u32>, TargetError> {
    let below = family(roots, pid);
    let held = all_held(roots, &below).unwrap_or_default();
    let sockets = waiting(roots, pid);
    let mine: Vec<&WaitingSocket> = (sockets.iter())
        .filter(|socket| held.contains(&socket.inode))
        .collect();
    if mine.is_empty() {
        return Ok(below);
    }
    // the sockets of a group have one address and port
    let place = |of: &WaitingSocket| (of.transport, of.port, of.address);
    let is_shared = |socket: &&WaitingSocket| mine.iter().any(|own| place(own) == place(socket));
    let shared = sockets.iter().filter(is_shared);
    let inodes: BTreeSet<u64> = shared.map(|socket| socket.inode).collect();
    let heads = heads(roots, &serving(holders(roots, &inodes)));
    let programs: BTreeSet<String> = heads.iter().map(|pid| program(roots, *pid)).collect();
    if programs.len() > 1 {
        return Err(TargetError::NotOneServer {
            servers: named(roots, &heads),
        });
    }
    let mut processes = BTreeSet::from_iter(below);
    processes.extend(heads.iter().flat_map(|head| family(roots, *head)));
    Ok(processes.into_iter().collect())
}

/// Checks that all of `processes` belong to the server of `pid`, so that no part of a server is taken for somebody
/// else. Those that have ended do not count.
///
/// # Errors
/// [`TargetError::NotOneServer`].
pub fn ensure_one_server(roots: &Roots, pid: u32, processes: &[u32]) -> Result<(), TargetError> {
    let whole = whole_server(roots, pid)?;
    let is_stranger = |other: &u32| {
        !whole.contains(other) && Stat::of(roots, *other).is_some_and(|stat| !stat.is_dead())
    };
    let strangers: Vec<u32> = processes.iter().copied().filter(is_stranger).collect();
    if strangers.is_empty() {
        return Ok(());
    }
    let firsts = strangers.iter().copied().filter(|one| {
        let parent = Stat::of(roots, *one).map(|stat| stat.parent);
        !parent.is_some_and(|parent| strangers.contains(&parent))
    });
    let servers: Vec<u32> = [pid].into_iter().chain(firsts).collect();
    Err(TargetError::NotOneServer {
        servers: named(roots, &servers),
    })
}

/// Of the processes that share a port, those of the server that is `asked` for, and those of others, with all that
/// comes from them. The server's are those that come from the same process as the ones asked for.
pub(super) fn own_and_others(
    roots: &Roots,
    asked: &[u32],
    sharers: &[u32],
) -> (Vec<u32>, Vec<u32>) {
    let is_own = |head: u32| {
        let comes_from_it = |pid: &u32| *pid == head || above(roots, *pid).any(|pid| pid == head);
        asked.iter().any(comes_from_it)
    };
    let heads = heads(roots, sharers);
    let (_, strangers): (Vec<u32>, Vec<u32>) = heads.into_iter().partition(|head| is_own(*head));
    let families = strangers.iter().flat_map(|head| family(roots, *head));
    let others: BTreeSet<u32> = families.filter(|pid| !asked.contains(pid)).collect();
    let own = sharers.iter().copied();
    let own = own.filter(|pid| !others.contains(pid)).collect();
    (own, others.into_iter().collect())
}

/// Those of the `holders` of a socket from which the others come. One that only passes it on to another program, as
/// a supervisor does, is none of the server.
fn heads(roots: &Roots, holders: &[u32]) -> Vec<u32> {
    let is_child =
        |child: u32, of: u32| Stat::of(roots, child).is_some_and(|stat| stat.parent == of);
    let passes_on = |pid: u32| {
        let mut heirs = holders
            .iter()
            .filter(|heir| is_child(**heir, pid))
            .peekable();
        heirs.peek().is_some() && heirs.all(|heir| program(roots, *heir) != program(roots, pid))
    };
    let of_server: Vec<u32> = (holders.iter().copied())
        .filter(|pid| !passes_on(*pid))
        .collect();
    let comes_from_another = |pid: &u32| above(roots, *pid).any(|pid| of_server.contains(&pid));
    (of_server.iter().copied())
        .filter(|pid| !comes_from_another(pid))
        .collect()
}

/// The processes above one, the nearest first.
fn above(roots: &Roots, pid: u32) -> impl Iterator<Item = u32> {
    let parent = |pid: u32| {
        Stat::of(roots, pid)
            .map(|stat| stat.parent)
            .filter(|pid| *pid > 0)
    };
    // a process that ends meanwhile can make no circle: its children go to process 1
    std::iter::successors(parent(pid), move |pid| parent(*pid))
}

/// What a process runs: the file of its program, or its name where that may not be seen.
fn program(roots: &Roots, pid: u32) -> String {
    let file = fs::read_link(roots.proc.join(format!("{pid}/exe")));
    file.map_or_else(
        |_| comm(roots, pid),
        |file| file.to_string_lossy().into_owned(),
    )
}

/// `nginx (pid 7), envoy (pid 20)`.
fn named(roots: &Roots, processes: &[u32]) -> String {
    let names = processes.iter();
    let names: Vec<String> = names
        .map(|pid| format!("{} (pid {pid})", comm(roots, *pid)))
        .collect();
    names.join(", ")
}
