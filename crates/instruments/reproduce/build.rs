//! Lists the files in `figures`, so that a new one needs no other change.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=figures");
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    fs::write(out.join("figures.rs"), list(&root.join("figures"))?)
}

/// A Rust expression: the name and the text of each file, in the order of the names.
fn list(folder: &Path) -> io::Result<String> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "toml")
        {
            files.push(path);
        }
    }
    files.sort();
    let mut text = String::from("&[\n");
    for path in files {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let path = path.to_string_lossy();
        let _ = writeln!(text, "    ({name:?}, include_str!({path:?})),");
    }
    text.push(']');
    Ok(text)
}
