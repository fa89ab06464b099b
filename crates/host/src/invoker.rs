//! Who asked for this command: results are written, and recordings read, with that user's rights.
//!
//! `sudo taillab …` needs root for the probe and the testbed, not for the folder of a result nor for the
//! analysis of a recording, whose content others may have written.

use std::io;

use rustix::process::{Gid, Uid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_keep_capabilities,
    set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use crate::roots::Roots;
use crate::syscall::answer;
use crate::user::User;

/// A user with the groups that decide which files it may touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invoker {
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
}

impl Invoker {
    /// The user who called sudo; otherwise the user of this process.
    pub fn find(roots: &Roots) -> Self {
        let own = || Self {
            uid: rustix::process::geteuid(),
            gid: rustix::process::getegid(),
            groups: Vec::new(),
        };
        // sudo sets these variables for root; any other user may have set them by hand.
        if !rustix::process::geteuid().is_root() {
            return own();
        }
        let number = |name| std::env::var(name).ok()?.parse::<u32>().ok();
        match (number("SUDO_UID"), number("SUDO_GID")) {
            (Some(uid), Some(gid)) if uid != 0 && uid != u32::MAX && gid != u32::MAX => Self {
                uid: Uid::from_raw(uid),
                gid: Gid::from_raw(gid),
                groups: groups_of(roots, uid, gid),
            },
            _ => own(),
        }
    }

    /// A local user with no supplementary group.
    pub(crate) fn with_primary_group(user: &User) -> Self {
        Self {
            uid: Uid::from_raw(user.uid),
            gid: Gid::from_raw(user.gid),
            groups: Vec::new(),
        }
    }

    /// The user's number.
    pub fn uid(&self) -> u32 {
        self.uid.as_raw()
    }

    /// Whether it is root.
    pub fn is_root(&self) -> bool {
        self.uid.is_root()
    }

    /// The user behind sudo; `None` when we were not started through it.
    pub fn behind_sudo(self) -> Option<Self> {
        (!self.is_current()).then_some(self)
    }

    /// Becomes this user for good, with its groups. Three system calls and nothing else:
    /// async-signal-safe, for between fork and exec. They change the calling thread, which after fork
    /// is the only one.
    pub(crate) fn assume(&self) -> io::Result<()> {
        set_thread_groups(&self.groups)?;
        set_thread_res_gid(self.gid, self.gid, self.gid)?;
        set_thread_res_uid(self.uid, self.uid, self.uid)?;
        Ok(())
    }

    /// [`Self::assume`], but until the next exec root's right to reach every file is kept: a program often
    /// lies in a home that only its owner may enter. What is executed has no capability (capabilities(7)).
    /// Async-signal-safe, too.
    pub(crate) fn assume_until_exec(&self) -> io::Result<()> {
        // where this is refused, the user's own rights must do
        let _ = set_keep_capabilities(true);
        self.assume()?;
        keep_only(CapabilitySet::DAC_OVERRIDE & capabilities(None)?.permitted)
    }

    /// Runs `work` with the calling thread's effective user and groups those of this user, so that the
    /// kernel checks this user's rights and gives it the files that are made. Other threads stay as they are.
    ///
    /// # Errors
    /// The kernel's answer when the thread may not become this user; `work` has not run then.
    pub fn act<T>(&self, work: impl FnOnce() -> T) -> io::Result<T> {
        if self.is_current() {
            return Ok(work());
        }
        let _back = IdentityGuard(Self {
            uid: rustix::process::geteuid(),
            gid: rustix::process::getegid(),
            groups: rustix::process::getgroups()?,
        });
        set_thread_groups(&self.groups)?;
        set_thread_res_gid(None, self.gid, None)?;
        set_thread_res_uid(None, self.uid, None)?;
        Ok(work())
    }

    /// The user nobody, who owns no files: for work of root on files that others wrote, once root has
    /// nothing left to write. It is the kernel's overflow user, which every Linux has.
    pub fn nobody() -> Self {
        let number = |name| -> u32 {
            let text = std::fs::read_to_string(format!("/proc/sys/kernel/{name}"));
            text.ok()
                .and_then(|text| text.trim().parse().ok())
                .unwrap_or(65_534)
        };
        let gid = Gid::from_raw(number("overflowgid"));
        Self {
            uid: Uid::from_raw(number("overflowuid")),
            gid,
            groups: vec![gid],
        }
    }

    /// Gives up all privileges for good: this user's rights remain and no capability, except CAP_KILL
    /// where it `ends_a_server` and stays root; programs that it starts gain none. A change of user holds
    /// for all threads, the rest for the calling thread and those that it starts.
    ///
    /// # Errors
    /// The kernel's answer; some privileges may be gone then, so the caller must end.
    pub fn become_for_good(&self, ends_a_server: bool) -> io::Result<()> {
        if !self.is_current() {
            let groups: Vec<libc::gid_t> = self.groups.iter().map(|gid| gid.as_raw()).collect();
            let (uid, gid) = (self.uid.as_raw(), self.gid.as_raw());
            // The C library's calls change every thread; the kernel's, which rustix makes, only one.
            // SAFETY: the pointer and the length are those of a live vector.
            answer(unsafe { libc::setgroups(groups.len(), groups.as_ptr()) })?;
            // SAFETY: takes numbers only.
            answer(unsafe { libc::setresgid(gid, gid, gid) })?;
            // SAFETY: takes numbers only.
            answer(unsafe { libc::setresuid(uid, uid, uid) })?;
        }
        let kept = match ends_a_server {
            // after a change of user there are none left to keep
            true => CapabilitySet::KILL & capabilities(None)?.permitted,
            false => CapabilitySet::empty(),
        };
        keep_only(kept)?;
        set_no_new_privs(true)?;
        Ok(())
    }

    /// Whether this process has this user already, so that no privilege has to be given up.
    pub(crate) fn is_current(&self) -> bool {
        self.uid == rustix::process::geteuid()
    }
}

/// Gives up all capabilities of the calling thread but these.
fn keep_only(kept: CapabilitySet) -> io::Result<()> {
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    Ok(set_capabilities(None, sets)?)
}

/// Gives the thread its identity back when dropped.
struct IdentityGuard(Invoker);

impl Drop for IdentityGuard {
    fn drop(&mut self) {
        let Invoker { uid, gid, groups } = &self.0;
        let restored = set_thread_res_uid(None, *uid, None)
            .and_then(|()| set_thread_res_gid(None, *gid, None))
            .and_then(|()| set_thread_groups(groups));
        // The real and saved user never changed, so the kernel has no reason to refuse; a thread of a wrong
        // user would fail later, and far from here.
        if let Err(error) = restored {
            panic!("the kernel does not give the thread its user back: {error}");
        }
    }
}

/// The groups of a local user (group(5)) with its primary one.
fn groups_of(roots: &Roots, uid: u32, gid: u32) -> Vec<Gid> {
    let user = User::first(roots, |user| user.uid == uid);
    let name = user.as_ref().map(|user| user.name.as_str());
    let groups = std::fs::read(roots.etc.join("group")).unwrap_or_default();
    let groups = String::from_utf8_lossy(&groups);
    let member = groups.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let number: u32 = fields.nth(2)?.parse().ok()?;
        let is_in = fields.next()?.split(',').any(|member| Some(member) == name);
        (is_in && number != gid).then_some(number)
    });
    std::iter::once(gid)
        .chain(member)
        .map(Gid::from_raw)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_groups_are_those_of_the_local_files() {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots::below(folder.path());
        std::fs::create_dir_all(&roots.etc).unwrap();
        std::fs::write(
            roots.etc.join("passwd"),
            "alice:x:1000:1000:::\nbob:x:1001:1001:::\n",
        )
        .unwrap();
        let text =
            "alice:x:1000:\ndev:x:50:bob,alice\nops:x:51:alicexx\nbroken\nwheel:x:52:alice\n";
        std::fs::write(roots.etc.join("group"), text).unwrap();
        let raw = |uid, gid| -> Vec<u32> {
            groups_of(&roots, uid, gid)
                .iter()
                .map(|gid| gid.as_raw())
                .collect()
        };
        assert_eq!(raw(1000, 1000), [1000, 50, 52]);
        assert_eq!(raw(77, 78), [78]);
    }

    #[test]
    fn the_own_user_acts_without_a_change() {
        let own = Invoker {
            uid: rustix::process::geteuid(),
            gid: rustix::process::getegid(),
            groups: Vec::new(),
        };
        assert_eq!(own.act(|| 7).unwrap(), 7);
    }
}
