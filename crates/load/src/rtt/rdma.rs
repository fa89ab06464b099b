//! RDMA: what a machine lacks for it.
//!
//! Verbs are not spoken yet; the refusal says what else would be missing, so that nobody sets up
//! soft RoCE for nothing.

use std::path::Path;

use super::error::RttError;
use super::kinds::Proto;

/// Why RDMA cannot be measured; `sys` is `/sys`.
pub(super) fn refusal(sys: &Path) -> RttError {
    let devices = std::fs::read_dir(sys.join("class/infiniband"));
    let names: Vec<String> = devices
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    let why = match names.as_slice() {
        [] => {
            "there is no RDMA device (/sys/class/infiniband is empty), neither an adapter nor soft \
               RoCE (`modprobe rdma_rxe`, which this kernel may lack), and this version of taillab \
               speaks no verbs: use shm for a path around the kernel"
                .to_owned()
        }
        names => format!(
            "{} is there, but this version of taillab speaks no verbs: use shm for a path around \
             the kernel, or perftest's ib_read_lat",
            names.join(", ")
        ),
    };
    RttError::Unavailable {
        proto: Proto::Rdma,
        why,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusal_names_what_is_missing_and_what_is_there() {
        let sys = tempfile::tempdir().unwrap();
        let text = refusal(sys.path()).to_string();
        assert!(
            text.contains("no RDMA device") && text.contains("rdma_rxe"),
            "{text}"
        );
        std::fs::create_dir_all(sys.path().join("class/infiniband/rxe0")).unwrap();
        let text = refusal(sys.path()).to_string();
        assert!(text.contains("rxe0") && text.contains("verbs"), "{text}");
    }
}
