//! A folder in memory that is in no mount table and goes with its last user.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use crate::detached;
use crate::user::User;

/// Why a private folder could not be made or filled.
#[derive(Debug, thiserror::Error)]
pub enum PrivateFolderError {
    /// The file system could not be made.
    #[error(
        "cannot make a file system in memory for the server's files: {0}; this needs root (sudo) \
         and Linux 5.2 or later"
    )]
    Make(io::Error),
    /// A file or folder in it could not be made.
    #[error("cannot write the server's file {name}: {source}; free some memory")]
    File {
        /// The file's name in the folder.
        name: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// A detached tmpfs, reached by a descriptor or as the working directory of a server started
/// in it ([`crate::ServerSpec::folder`]): the kernel removes it with the last process that
/// uses it, however that ends.
#[derive(Debug)]
pub struct PrivateFolder(OwnedFd);

impl PrivateFolder {
    /// An empty one that takes at most `bytes`.
    ///
    /// # Errors
    /// [`PrivateFolderError::Make`].
    pub fn new(bytes: u64) -> Result<Self, PrivateFolderError> {
        let size = bytes.to_string();
        let options = [("size", size.as_str()), ("mode", "0755")];
        let mount = detached::mount("tmpfs", &options);
        Ok(Self(mount.map_err(|e| PrivateFolderError::Make(e.into()))?))
    }

    /// Its path for this process; other processes have no path to it.
    pub fn path(&self) -> PathBuf {
        Path::new("/proc/self/fd").join(self.0.as_raw_fd().to_string())
    }

    /// Writes a file that everybody who reaches the folder can read.
    ///
    /// # Errors
    /// [`PrivateFolderError::File`].
    pub fn write(&self, name: &str, content: &[u8]) -> Result<(), PrivateFolderError> {
        let write = || {
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o644)
                .open(self.path().join(name))?;
            // whatever our umask says
            file.set_permissions(Permissions::from_mode(0o644))?;
            file.write_all(content)
        };
        write().map_err(|source| PrivateFolderError::File {
            name: name.to_owned(),
            source,
        })
    }

    /// Makes a folder in it that only `user` can use.
    ///
    /// # Errors
    /// [`PrivateFolderError::File`].
    pub fn make_folder(&self, name: &str, user: &User) -> Result<(), PrivateFolderError> {
        let path = self.path().join(name);
        let make = || {
            DirBuilder::new().mode(0o700).create(&path)?;
            fs::set_permissions(&path, Permissions::from_mode(0o700))?;
            chown(&path, Some(user.uid), Some(user.gid))
        };
        make().map_err(|source| PrivateFolderError::File {
            name: name.to_owned(),
            source,
        })
    }
}

impl AsFd for PrivateFolder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
