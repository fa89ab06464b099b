//! A result with a page of its own: the same two files and the same last line for every command.

use taillab_report::chart::Chart;

use crate::args::Output;
use crate::exit::Failure;
use crate::print::print_saved;
use crate::rundir::RunDir;

/// What a result is saved as, and what a terminal shows of it.
pub struct Rendered {
    /// The name of its files, without the extension.
    pub name: &'static str,
    /// The object that is printed with `--json`.
    pub json: Vec<u8>,
    /// The HTML page.
    pub page: Vec<u8>,
    /// For a terminal.
    pub text: String,
}

impl Rendered {
    /// Writes `NAME.json` and `NAME.html` where a directory was asked for, then prints the JSON or the text. The
    /// directory notes if a file cannot be written.
    pub fn save_and_print(self, dir: Option<&mut RunDir>, output: Output) -> Result<(), Failure> {
        let mut text = self.text;
        let mut saved = None;
        if let Some(dir) = dir {
            let written = dir.put(&format!("{}.json", self.name), &self.json);
            dir.note(written);
            let page = format!("{}.html", self.name);
            let written = dir.put(&page, &self.page);
            dir.note(written);
            saved = dir.whole();
            if let Some(folder) = saved {
                text += &format!("  saved in {}\n", folder.join(page).display());
            }
        }
        if output.is_silent() {
            return Ok(());
        }
        let shown = if output.json {
            &self.json
        } else {
            text.as_bytes()
        };
        print_saved(shown, saved)
    }
}

/// Writes `name.svg`.
pub fn save_figure(dir: &mut RunDir, name: &str, figure: &Chart) -> Result<(), Failure> {
    dir.put(&format!("{name}.svg"), &figure.svg())
}
