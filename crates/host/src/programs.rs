//! Programs that others must have installed: where they are and how to get them.

use std::env;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A program that is not there, with the way to get it.
#[derive(Debug, thiserror::Error)]
#[error("{program} is not installed: {remedy}")]
pub struct MissingProgram {
    /// What was looked for.
    pub program: String,
    /// What installs it, as a command or in words.
    pub remedy: String,
}

/// Finds a program by name in PATH and in the system folders that a user's PATH may
/// lack, or checks the path given.
///
/// # Errors
/// [`MissingProgram`] with the package to install.
pub fn find(program: &Path) -> Result<PathBuf, MissingProgram> {
    let mut folders: Vec<PathBuf> = env::var_os("PATH")
        .map(|path| env::split_paths(&path).collect())
        .unwrap_or_default();
    folders.extend(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from));
    find_in(program, &folders)
}

fn find_in(program: &Path, folders: &[PathBuf]) -> Result<PathBuf, MissingProgram> {
    let executable = |path: &Path| {
        path.metadata()
            .is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    let found = if program.components().count() > 1 {
        executable(program).then(|| program.to_owned())
    } else {
        folders
            .iter()
            .map(|folder| folder.join(program))
            .find(|path| executable(path))
    };
    found.ok_or_else(|| MissingProgram {
        program: program.display().to_string(),
        remedy: match program.to_str() {
            Some("memcached") => "apt-get install memcached".into(),
            Some("nginx") => "apt-get install nginx-light".into(),
            Some("redis-server") => "apt-get install redis-server".into(),
            // with its drivers; in Debian the program is in the development package
            Some("dpdk-testpmd") => "apt-get install dpdk-dev".into(),
            Some("ip") => "apt-get install iproute2".into(),
            _ => "install it, or give its path".into(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_comes_with_its_remedy() {
        let none: &[PathBuf] = &[];
        let error = find_in(Path::new("memcached"), none)
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "memcached is not installed: apt-get install memcached"
        );
        let error = find_in(Path::new("/nowhere/x"), none)
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "/nowhere/x is not installed: install it, or give its path"
        );
    }

    #[test]
    fn only_executable_files_count() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tool");
        std::fs::write(&path, "").unwrap();
        let folders = [folder.path().to_owned()];
        assert!(find_in(Path::new("tool"), &folders).is_err());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find_in(Path::new("tool"), &folders).unwrap(), path);
        assert!(find_in(folder.path(), &folders).is_err());
    }
}
