//! Who holds the lock of a file (flock(2)).

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;

use crate::process::Stat;
use crate::roots::Roots;

/// In words: `taillab (pid 4711), which is stopped`; `another program` where the kernel does not say.
pub(crate) fn holder(roots: &Roots, file: &File) -> String {
    let Some(pid) = file.metadata().ok().and_then(|meta| {
        let locks = fs::read_to_string(roots.proc.join("locks")).ok()?;
        holder_in(&locks, meta.ino())
    }) else {
        return "another program".into();
    };
    let Some(stat) = Stat::of(roots, pid) else {
        return format!("pid {pid}");
    };
    let stopped = match stat.state {
        'T' | 't' => ", which is stopped",
        _ => "",
    };
    format!("{} (pid {pid}){stopped}", stat.comm)
}

/// The process that has locked the file with this inode (proc_locks(5)): `1: FLOCK ADVISORY WRITE 4711 00:16:3591 0 EOF`.
/// Those that wait for it have an arrow. The device is not compared, since some file systems show another one here.
fn holder_in(locks: &str, inode: u64) -> Option<u32> {
    locks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, "FLOCK", _, _, pid, file, ..] = fields.as_slice() else {
            return None;
        };
        let is_it = file.rsplit(':').next()?.parse() == Ok(inode);
        // 0 in a pid namespace that does not see it
        pid.parse().ok().filter(|pid| is_it && *pid > 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roots::testing::tree;

    #[test]
    fn the_holder_is_told_from_those_who_wait() {
        let locks = "1: POSIX  ADVISORY  WRITE 7 00:16:3591 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 8 00:16:3591 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 9 00:16:3591 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 0 00:16:77 0 EOF\n";
        assert_eq!(holder_in(locks, 3591), Some(9));
        assert_eq!(holder_in(locks, 77), None);
        assert_eq!(holder_in(locks, 1), None);
    }

    #[test]
    fn a_holder_that_is_stopped_is_said_to_be() {
        let stat = |state: char| {
            format!(
                "9 (taillab) {state} 1 1 1 0 -1 0 0 0 0 0 7 9 0 0 20 0 5 0 9 1 2 0 1 1 0 0 0 0 0 0 0 0 0 0 0 17 3 \
                 0 0 0"
            )
        };
        for (state, said) in [('S', ""), ('T', ", which is stopped")] {
            let (folder, roots) = tree(&[("lock", ""), ("proc/9/stat", &stat(state))]);
            let file = File::open(folder.path().join("lock")).unwrap();
            assert_eq!(holder(&roots, &file), "another program");
            let inode = file.metadata().unwrap().ino();
            let locks = format!("1: FLOCK  ADVISORY  WRITE 9 fe:00:{inode} 0 EOF\n");
            fs::write(roots.proc.join("locks"), locks).unwrap();
            assert_eq!(holder(&roots, &file), format!("taillab (pid 9){said}"));
        }
    }
}
