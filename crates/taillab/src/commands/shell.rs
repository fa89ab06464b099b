//! `taillab completions` and `taillab man`.

use std::path::Path;
use std::sync::Arc;

use taillab_console::exit::{Exit, Failure, OrExit};
use taillab_console::fail::host;
use taillab_console::print::print;
use taillab_host::user_files::{Readers, UserFolder};

use crate::cli;

/// Prints the completion script of `shell`.
pub fn completions(shell: clap_complete::Shell) -> Result<Exit, Failure> {
    // not to stdout: the generator panics where the reader has closed the pipe (`| head`)
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut cli::command(), "taillab", &mut script);
    print(&script)?;
    Ok(Exit::Ok)
}

/// Writes `taillab.1`, `taillab-run.1` … into `directory`.
pub fn man(directory: &Path) -> Result<Exit, Failure> {
    let folder = Arc::new(UserFolder::make(directory, Readers::Everybody).map_err(host)?);
    let mut command = cli::command().disable_help_subcommand(true);
    command.build();
    put_pages(&folder, command)?;
    Ok(Exit::Ok)
}

/// The page of a command, and those of the commands below it.
fn put_pages(folder: &Arc<UserFolder>, command: clap::Command) -> Result<(), Failure> {
    for below in command.get_subcommands() {
        if !below.is_hide_set() {
            put_pages(folder, below.clone())?;
        }
    }
    let man = clap_mangen::Man::new(command);
    let mut page = Vec::new();
    man.render(&mut page).or_exit(Exit::Failed)?;
    folder.put(&man.get_filename(), &page).map_err(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_cannot_be_written_is_named() {
        let place = tempfile::tempdir().unwrap();
        // a page cannot replace a folder
        std::fs::create_dir(place.path().join("taillab.1")).unwrap();
        let said = man(place.path()).unwrap_err().message;
        let named = place.path().display().to_string();
        assert!(said.contains(&named) && said.contains("; choose"), "{said}");
    }

    /// Every command of the definition with the name of its page.
    fn commands(command: &clap::Command, name: &str, found: &mut Vec<(String, clap::Command)>) {
        for below in command
            .get_subcommands()
            .filter(|below| below.get_name() != "help")
        {
            let name = format!("{name}-{}", below.get_name());
            found.push((name.clone(), below.clone()));
            commands(below, &name, found);
        }
    }

    #[test]
    fn every_command_has_a_page_and_completions_with_all_its_options() {
        let place = tempfile::tempdir().unwrap();
        assert_eq!(man(place.path()).unwrap(), Exit::Ok);
        let mut script = Vec::new();
        clap_complete::generate(
            clap_complete::Shell::Bash,
            &mut cli::command(),
            "taillab",
            &mut script,
        );
        let script = String::from_utf8(script).unwrap();
        let mut found = Vec::new();
        let mut whole = cli::command();
        whole.build();
        commands(&whole, "taillab", &mut found);
        for name in ["trace", "explain", "tune-plan", "doctor"] {
            let page = format!("taillab-{name}");
            let (_, command) = found.iter().find(|(other, _)| *other == page).unwrap();
            let text = std::fs::read_to_string(place.path().join(page + ".1")).unwrap();
            let text = text.replace("\\-", "-");
            assert!(text.contains("Exit codes:"), "{name}");
            for option in command.get_arguments().filter_map(clap::Arg::get_long) {
                let option = format!("--{option}");
                assert!(text.contains(&option), "{name}: no {option} in the page");
                assert!(
                    script.contains(&option),
                    "{name}: no completion of {option}"
                );
            }
        }
        for (name, _) in &found {
            assert!(place.path().join(format!("{name}.1")).exists(), "{name}");
        }
    }
}
