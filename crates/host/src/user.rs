//! The user a server runs as.

use std::ffi::OsString;
use std::fs;

use crate::roots::Roots;

/// A local user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: String,
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
}

/// No such user.
#[derive(Debug, thiserror::Error)]
#[error(
    "there is no user \"{name}\" in /etc/passwd: add it (useradd --system {name}) or choose another"
)]
pub struct UnknownUser {
    /// The name looked for.
    pub name: String,
}

/// What a program of another user gets of our environment: where programs are, and how to write texts and times. The
/// rest may be secret, or lead to root's files.
const SHARED: [&str; 5] = ["PATH", "LANG", "LANGUAGE", "TZ", "TERM"];

impl User {
    /// The environment of a program that root starts as this user, out of `ours`. It has no home: those are closed to
    /// most users of servers.
    pub(crate) fn environment(
        &self,
        ours: impl Iterator<Item = (OsString, OsString)>,
    ) -> Vec<(OsString, OsString)> {
        let is_shared = |name: &OsString| {
            let name = name.to_string_lossy();
            SHARED.contains(&name.as_ref()) || name.starts_with("LC_")
        };
        let own = [
            ("HOME", "/"),
            ("USER", self.name.as_str()),
            ("LOGNAME", self.name.as_str()),
        ];
        let own = own.map(|(name, value)| (name.into(), value.into()));
        ours.filter(|(name, _)| is_shared(name))
            .chain(own)
            .collect()
    }

    /// Looks a local user up (passwd(5)); servers' users are local.
    ///
    /// # Errors
    /// [`UnknownUser`].
    pub fn find(roots: &Roots, name: &str) -> Result<Self, UnknownUser> {
        Self::first(roots, |user| user.name == name)
            .ok_or_else(|| UnknownUser { name: name.into() })
    }

    /// The first local user for which `wanted` holds.
    pub(crate) fn first(roots: &Roots, wanted: impl Fn(&Self) -> bool) -> Option<Self> {
        let users = fs::read(roots.etc.join("passwd")).unwrap_or_default();
        // the full name of a user may hold any bytes
        let users = String::from_utf8_lossy(&users);
        let user = |line: &str| {
            let mut fields = line.split(':');
            Some(Self {
                name: fields.next()?.to_owned(),
                uid: fields.nth(1)?.parse().ok()?,
                gid: fields.next()?.parse().ok()?,
            })
        };
        users.lines().filter_map(user).find(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_read_from_passwd() {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots::below(folder.path());
        fs::create_dir_all(&roots.etc).unwrap();
        // the first full name is in Latin-1
        let text = b"root:x:0:0:r\xf6t:/root:/bin/sh\nbroken\nnobody:x:65534:65533:n:/:/bin/sh\n";
        fs::write(roots.etc.join("passwd"), text).unwrap();
        let user = User::find(&roots, "nobody").unwrap();
        assert_eq!((user.uid, user.gid), (65534, 65533));
        let error = User::find(&roots, "broken").unwrap_err().to_string();
        assert!(error.contains("no user \"broken\""), "{error}");
    }

    #[test]
    fn a_program_of_another_user_gets_no_secret_of_ours() {
        let user = User {
            name: "www".into(),
            uid: 33,
            gid: 33,
        };
        let ours = [
            ("PATH", "/bin"),
            ("LC_ALL", "C"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("HOME", "/root"),
            ("SUDO_USER", "alice"),
            ("LD_PRELOAD", "/tmp/a.so"),
        ];
        let ours = ours.map(|(name, value)| (name.into(), value.into()));
        let environment = user.environment(ours.into_iter());
        let text = |(name, value): &(OsString, OsString)| {
            format!("{}={}", name.display(), value.display())
        };
        let all: Vec<String> = environment.iter().map(text).collect();
        assert_eq!(
            all,
            ["PATH=/bin", "LC_ALL=C", "HOME=/", "USER=www", "LOGNAME=www"]
        );
    }
}
