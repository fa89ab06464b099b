//! Files of simulations, each written as a whole.

use std::fs;
use std::path::Path;

use taillab_report::chart::Chart;

use crate::exit::{Exit, Failure, OrExit};

/// Writes `name.svg` and `name.png`.
pub fn save_figure(directory: &Path, name: &str, figure: &Chart) -> Result<(), Failure> {
    write(&directory.join(format!("{name}.svg")), &figure.svg())?;
    let png = figure.png().or_exit(Exit::Failed)?;
    write(&directory.join(format!("{name}.png")), &png)
}

/// Makes the directory unless it is there.
pub fn make_directory(directory: &Path) -> Result<(), Failure> {
    fs::create_dir_all(directory).map_err(|error| {
        let text = format!(
            "cannot make the directory {}: {error}; choose another with -o",
            directory.display()
        );
        Failure::new(Exit::Failed, text)
    })
}

/// Writes a file as a whole.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    fs::write(path, bytes).map_err(|error| {
        let text = format!(
            "cannot write {}: {error}; choose a place that you may write to",
            path.display()
        );
        Failure::new(Exit::Failed, text)
    })
}
