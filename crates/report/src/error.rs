//! Why an output could not be written.

use std::io;

/// Why an output could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The stream refused the bytes.
    #[error("cannot write {output}: {source}; {}", remedy(source))]
    Write {
        /// The output: the name of its file, or what it is.
        output: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The format cannot express a value.
    #[error("cannot write {output}: {cause}; this is a defect of taillab, please report it")]
    Format {
        /// The output: the name of its file, or what it is.
        output: &'static str,
        /// What the encoder said.
        cause: String,
    },
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free some space or choose another directory with -o"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "choose a directory that you may write to with -o"
        }
        _ => "check the disk, or choose another directory with -o",
    }
}
