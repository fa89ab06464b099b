//! Whether there is room for the result.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Why the result cannot be stored.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// Too little room.
    #[error(
        "{path} has {} free and the result needs up to {}: free space, choose another folder (-o), or \
         measure less (-d; rtt: --count, --runs)", Bytes(*free_bytes), Bytes(*needed_bytes)
    )]
    Full {
        /// The folder for the result.
        path: PathBuf,
        /// Bytes that the user may still write there.
        free_bytes: u64,
        /// Bytes that the run may write.
        needed_bytes: u64,
    },
    /// The file system does not say how much is free.
    #[error("cannot see how much space is free at {path}: {source}; choose another folder (-o)")]
    Unknown {
        /// The folder for the result.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// Checks that `needed_bytes` fit into the file system that holds `folder`, or will
/// hold it once it and its parents are made. Returns the free bytes.
///
/// The part that the file system reserves for root does not count, even for root.
///
/// # Errors
/// [`DiskError`].
pub fn ensure_free(folder: &Path, needed_bytes: u64) -> Result<u64, DiskError> {
    let unknown = |source: io::Error| DiskError::Unknown {
        path: folder.to_owned(),
        source,
    };
    let absolute = std::path::absolute(folder).map_err(unknown)?;
    let mut answer = Err(rustix::io::Errno::NOENT);
    for ancestor in absolute.ancestors() {
        answer = rustix::fs::statvfs(ancestor);
        if !matches!(answer, Err(rustix::io::Errno::NOENT)) {
            break;
        }
    }
    let stat = answer.map_err(|e| unknown(e.into()))?;
    let free_bytes = stat.f_bavail.saturating_mul(stat.f_frsize);
    if free_bytes < needed_bytes {
        return Err(DiskError::Full {
            path: folder.to_owned(),
            free_bytes,
            needed_bytes,
        });
    }
    Ok(free_bytes)
}

/// Bytes that are free on the file system of an open file, without those reserved for root.
///
/// # Errors
/// The kernel's answer.
pub fn free_bytes(file: impl AsFd) -> io::Result<u64> {
    let stat = rustix::fs::fstatvfs(file)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// A number of bytes, shown with a binary unit (`1.5 GiB`).
#[derive(Clone, Copy, Debug)]
pub struct Bytes(pub u64);

impl std::fmt::Display for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return write!(f, "{} bytes", self.0);
        }
        let mut value = self.0 as f64 / 1024.0;
        let mut unit = 0;
        while value >= 1023.95 {
            value /= 1024.0;
            unit += 1;
        }
        write!(f, "{value:.1} {}", units[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_does_not_exist_yet_counts_as_its_parent() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("a/b/c");
        assert!(ensure_free(&deep, 1).unwrap() > 0);
        let error = ensure_free(&deep, u64::MAX).unwrap_err().to_string();
        assert!(error.contains("needs up to 16.0 EiB"), "{error}");
        assert!(error.contains("a/b/c"), "{error}");
    }

    #[test]
    fn a_file_in_the_way_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = ensure_free(&file.path().join("x"), 1)
            .unwrap_err()
            .to_string();
        assert!(error.contains("cannot see how much space"), "{error}");
    }

    #[test]
    fn bytes_have_a_unit() {
        let cases = [
            (0, "0 bytes"),
            (1024, "1.0 KiB"),
            (1 << 20, "1.0 MiB"),
            (3 << 29, "1.5 GiB"),
        ];
        for (bytes, text) in cases {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }
}
