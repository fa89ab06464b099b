//! Files that a user asked for: the only place that writes them.
//!
//! They are made with the rights of the user who asked, also under sudo, and through the descriptor of their
//! folder. So neither a swapped folder nor a planted link can redirect what is written, not even for root itself.

use std::fs::{DirBuilder, File};
use std::io::{self, BufWriter, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, openat, renameat, statat, unlinkat};

use crate::disk;
use crate::invoker::Invoker;
use crate::roots::Roots;

/// Why a file cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum UserFileError {
    /// The kernel refuses it.
    #[error("cannot write {}: {source}; {remedy}", path.display())]
    Unwritable {
        /// The file or folder.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
        /// What helps.
        remedy: String,
    },
    /// The owner of the folder could replace its files while root works there.
    #[error(
        "{} belongs to another user (number {owner}), who could replace it or its files: choose a directory of your own",
        path.display()
    )]
    Foreign {
        /// The folder or the file.
        path: PathBuf,
        /// The user's number.
        owner: u32,
    },
    /// A link where the user has named a file.
    #[error("{} is a link, and links are not followed: name the file itself", path.display())]
    Link {
        /// The link.
        path: PathBuf,
    },
}

/// Who may read a file, or enter a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readers {
    /// Only its owner: a recording may hold parts of what the server was sent.
    Owner,
    /// Everybody who can enter the folder around it: its owner may want to share it.
    Everybody,
}

impl Readers {
    const fn mode(self) -> Mode {
        let owner = Mode::RUSR.union(Mode::WUSR);
        match self {
            Self::Owner => owner,
            Self::Everybody => owner.union(Mode::RGRP).union(Mode::ROTH),
        }
    }

    const fn folder_mode(self) -> u32 {
        match self {
            Self::Owner => 0o700,
            Self::Everybody => 0o755,
        }
    }
}

/// An open folder, and the user with whose rights we work in it.
#[derive(Debug)]
pub struct UserFolder {
    descriptor: OwnedFd,
    path: PathBuf,
    invoker: Invoker,
    /// Temporary files begun so far.
    begun: AtomicU32,
}

impl UserFolder {
    /// Makes `path` for the user behind this command unless it exists, and opens it.
    ///
    /// # Errors
    /// [`UserFileError`].
    pub fn make(path: impl Into<PathBuf>, readers: Readers) -> Result<Self, UserFileError> {
        let folder = Self::open(path.into(), Some(readers))?;
        let owner = fstat(&folder.descriptor)
            .map_err(|error| unwritable(&folder.path, error.into(), &folder.invoker))?
            .st_uid;
        match is_foreign(owner, &folder.invoker) {
            true => Err(UserFileError::Foreign {
                path: folder.path,
                owner,
            }),
            false => Ok(folder),
        }
    }

    /// Opens it; makes it first, if it is said for whom.
    fn open(path: PathBuf, readers: Option<Readers>) -> Result<Self, UserFileError> {
        let invoker = Invoker::find(&Roots::default());
        let open = || -> io::Result<OwnedFd> {
            if let Some(readers) = readers {
                DirBuilder::new()
                    .recursive(true)
                    .mode(readers.folder_mode())
                    .create(&path)?;
            }
            let flags = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
            Ok(rustix::fs::open(&path, flags, Mode::empty())?)
        };
        let opened = invoker.act(open).and_then(|opened| opened);
        let descriptor = opened.map_err(|error| unwritable(&path, error, &invoker))?;
        Ok(Self {
            descriptor,
            path,
            invoker,
            begun: AtomicU32::new(0),
        })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a regular file of this name exists, not a link.
    pub fn has_file(&self, name: &str) -> bool {
        statat(&self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|meta| FileType::from_raw_mode(meta.st_mode) == FileType::RegularFile)
    }

    /// Makes a new file; an existing one is refused.
    ///
    /// # Errors
    /// [`UserFileError::Unwritable`].
    pub fn make_file(&self, name: &str, readers: Readers) -> Result<File, UserFileError> {
        self.make_new(name, readers)
            .map_err(|error| self.unwritable(name, error))
    }

    fn make_new(&self, name: &str, readers: Readers) -> io::Result<File> {
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::RDWR | OFlags::CLOEXEC;
        let make = || openat(&self.descriptor, name, flags, readers.mode());
        Ok(self.invoker.act(make)??.into())
    }

    /// Writes a file from memory, whole or not at all. What had its name, a link too, is replaced.
    ///
    /// # Errors
    /// [`UserFileError::Unwritable`].
    pub fn put(self: &Arc<Self>, name: &str, bytes: &[u8]) -> Result<(), UserFileError> {
        let (unfinished, mut out) = self.begin(name, Readers::Everybody)?;
        out.write_all(bytes)
            .map_err(|error| self.unwritable(name, error))?;
        unfinished.finish(out)
    }

    /// Begins a file. It appears, whole, with [`UnfinishedFile::finish`], or not at all.
    ///
    /// # Errors
    /// [`UserFileError::Unwritable`].
    pub fn begin(
        self: &Arc<Self>,
        name: &str,
        readers: Readers,
    ) -> Result<(UnfinishedFile, BufWriter<File>), UserFileError> {
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        let temporary = format!(".{name}.{}-{number}.tmp", std::process::id());
        let file = self.make_new(&temporary, readers);
        let file = file.map_err(|error| self.unwritable(name, error))?;
        let unfinished = UnfinishedFile {
            name: name.to_owned(),
            temporary,
            folder: Arc::clone(self),
        };
        Ok((unfinished, BufWriter::with_capacity(1 << 18, file)))
    }

    /// Bytes that are free on its file system, without those reserved for root.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn free_bytes(&self) -> io::Result<u64> {
        disk::free_bytes(&self.descriptor)
    }

    /// Removes the folder if it is empty.
    pub fn remove_if_empty(&self) {
        // this removes only an empty folder; anything in it is not ours
        let _ = self.invoker.act(|| std::fs::remove_dir(&self.path));
    }

    fn unwritable(&self, name: &str, error: io::Error) -> UserFileError {
        unwritable(&self.path.join(name), error, &self.invoker)
    }
}

/// A file that is being written.
#[derive(Debug)]
pub struct UnfinishedFile {
    name: String,
    temporary: String,
    folder: Arc<UserFolder>,
}

impl UnfinishedFile {
    /// Puts the file in its place once its content is on the disk, so that a crash leaves it whole or absent.
    ///
    /// # Errors
    /// [`UserFileError::Unwritable`].
    pub fn finish(self, out: BufWriter<File>) -> Result<(), UserFileError> {
        let folder = &self.folder;
        let file = out.into_inner().map_err(io::IntoInnerError::into_error);
        file.and_then(|file| file.sync_all())
            .and_then(|()| {
                let (from, to) = (&self.temporary, &self.name);
                let moved = || renameat(&folder.descriptor, from, &folder.descriptor, to);
                Ok(folder.invoker.act(moved)??)
            })
            .map_err(|error| folder.unwritable(&self.name, error))
    }
}

impl Drop for UnfinishedFile {
    fn drop(&mut self) {
        let folder = &self.folder;
        // our unfinished file, or nothing if it has been renamed to its place; a failure changes nothing
        let _ = folder
            .invoker
            .act(|| unlinkat(&folder.descriptor, &self.temporary, AtFlags::empty()));
    }
}

/// Opens a file that the user has named, to be written anew: never through a link, and for root never over the file of
/// another user, nor over one with a second name, which another user can give it. Devices and pipes can be named, too.
///
/// # Errors
/// [`UserFileError`].
pub fn create_named(path: &Path) -> Result<File, UserFileError> {
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    let folder = UserFolder::open(above.unwrap_or(Path::new(".")).to_owned(), None);
    let folder = folder.map_err(|error| match error {
        // the user has named the file
        UserFileError::Unwritable { source, remedy, .. } => UserFileError::Unwritable {
            path: path.into(),
            source,
            remedy,
        },
        error => error,
    })?;
    let Some(name) = path.file_name() else {
        let error = rustix::io::Errno::ISDIR.into();
        return Err(unwritable(path, error, &folder.invoker));
    };
    let flags =
        OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::WRONLY | OFlags::CLOEXEC;
    let open = || openat(&folder.descriptor, name, flags, Readers::Everybody.mode());
    let file: File = match folder.invoker.act(open) {
        Ok(Ok(descriptor)) => descriptor.into(),
        Ok(Err(rustix::io::Errno::LOOP)) => return Err(UserFileError::Link { path: path.into() }),
        Ok(Err(error)) => return Err(unwritable(path, error.into(), &folder.invoker)),
        Err(error) => return Err(unwritable(path, error, &folder.invoker)),
    };
    let emptied = file.metadata().and_then(|meta| {
        if !meta.is_file() {
            return Ok(None);
        }
        let (path, owner) = (path.to_owned(), meta.uid());
        if is_foreign(owner, &folder.invoker) {
            return Ok(Some(UserFileError::Foreign { path, owner }));
        }
        if rustix::process::geteuid().is_root() && meta.nlink() > 1 {
            return Ok(Some(UserFileError::Link { path }));
        }
        file.set_len(0).map(|()| None)
    });
    match emptied.map_err(|error| unwritable(path, error, &folder.invoker))? {
        Some(refused) => Err(refused),
        None => Ok(file),
    }
}

/// Writes a file that the user has named ([`create_named`]).
///
/// # Errors
/// [`UserFileError`].
pub fn write_named(path: &Path, bytes: &[u8]) -> Result<(), UserFileError> {
    let mut file = create_named(path)?;
    file.write_all(bytes)
        .map_err(|error| unwritable(path, error, &Invoker::find(&Roots::default())))
}

/// Whether root must not write what this user owns.
fn is_foreign(owner: u32, invoker: &Invoker) -> bool {
    rustix::process::geteuid().is_root() && ![0, invoker.uid()].contains(&owner)
}

fn unwritable(path: &Path, source: io::Error, invoker: &Invoker) -> UserFileError {
    let remedy = match source.kind() {
        io::ErrorKind::StorageFull => "free some space or choose another place".into(),
        io::ErrorKind::PermissionDenied => format!(
            "files are written with the rights of user {}, so choose a place that this user can write to",
            invoker.uid()
        ),
        _ => "choose a writable place".into(),
    };
    UserFileError::Unwritable {
        path: path.into(),
        source,
        remedy,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_in_the_place_of_a_named_file_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let victim = place.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        let link = place.path().join("result.xml");
        symlink(&victim, &link).unwrap();
        let said = write_named(&link, b"mine").unwrap_err().to_string();
        assert!(said.contains("result.xml is a link"), "{said}");
        // one that leads nowhere makes no file there either
        let nowhere = place.path().join("nowhere");
        let dangling = place.path().join("other.xml");
        symlink(&nowhere, &dangling).unwrap();
        assert!(write_named(&dangling, b"mine").is_err());
        assert!(!nowhere.exists());
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
    }

    #[test]
    fn a_named_file_is_written_anew_and_a_device_is_only_written_to() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a");
        write_named(&path, b"a long text").unwrap();
        write_named(&path, b"short").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"short");
        write_named(Path::new("/dev/null"), b"mine").unwrap();
        let said = write_named(Path::new("/dev/full"), b"mine").unwrap_err();
        assert!(said.to_string().contains("free some space"), "{said}");
        let missing = write_named(&place.path().join("no/such"), b"mine").unwrap_err();
        assert!(
            missing.to_string().contains("no/such: No such file"),
            "{missing}"
        );
    }

    #[test]
    fn a_link_in_the_place_of_a_file_of_a_folder_is_replaced() {
        let place = tempfile::tempdir().unwrap();
        let victim = place.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        let folder =
            Arc::new(UserFolder::make(place.path().join("fix"), Readers::Everybody).unwrap());
        symlink(&victim, folder.path().join("fix.conf")).unwrap();
        assert!(!folder.has_file("fix.conf"));
        folder.put("fix.conf", b"mine").unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
        assert!(!folder.path().join("fix.conf").is_symlink());
        assert_eq!(fs::read(folder.path().join("fix.conf")).unwrap(), b"mine");
        assert!(folder.make_file("fix.conf", Readers::Owner).is_err());
    }
}
