//! Figures and claims of the papers as files: what each is, what it needs, and for those that are measured or simulated here,
//! the configurations and the statements about them. A file in `figures` is one figure; nothing else names it.

mod file;
mod hardware;
mod region;
mod status;

use taillab_console::exit::Failure;

pub use self::file::{
    ClosedClients, Configuration, DeclaredFigure, DeclaredRow, FanOut, FigureFile, Panel,
    PaperName, SimulatedQueue, Source, Statement,
};
pub use self::region::Region;
pub use self::status::{RowStatus, ThisMachine};

/// The name and the text of each file.
const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/figures.rs"));

/// All of them, paper by paper, in the order of their names.
///
/// # Errors
/// Never: a test reads all of them.
pub fn all() -> Result<Vec<FigureFile>, Failure> {
    let mut files = Vec::new();
    for (name, text) in FILES {
        let read = FigureFile::read(text);
        files.push(read.map_err(|why| Failure::failed(format!("figures/{name}.toml: {why}")))?);
    }
    // stable: within a paper, the order of the names stays
    files.sort_by_key(|file| file.paper);
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_file_is_valid() {
        for (name, text) in FILES {
            let file = FigureFile::read(text).unwrap_or_else(|why| panic!("{name}: {why}"));
            assert!(!file.rows.is_empty(), "{name} has no row");
            for row in &file.rows {
                assert!(row.seconds > 0 && !row.what.is_empty(), "{name}: {row:?}");
                let of_others = ["noise", "budget", "rtt", "sim", "time-gone"];
                let mut words = row.command.split(' ');
                let is_of_another = words.any(|word| of_others.contains(&word));
                assert_eq!(is_of_another, row.instrument.is_some(), "{name}: {row:?}");
                let needs_substitute = row.hardware.is_some() || row.cpus > 2;
                assert_eq!(
                    needs_substitute,
                    row.substitute.is_some(),
                    "{name}: {row:?}"
                );
            }
            if let Some(figure) = &file.figure {
                assert!(!figure.statements.is_empty(), "{name} states nothing");
                let live = |panel: &&Panel| panel.is_live();
                for panel in figure.panels.iter().filter(live) {
                    let about = figure.statements.iter().filter(|one| one.is_about(panel));
                    for statement in about {
                        assert!(
                            statement.explanation.is_some(),
                            "{name}: {}",
                            statement.says
                        );
                    }
                }
                let command = format!("reproduce tales {}", figure.name);
                let runs_it = |row: &DeclaredRow| row.command.ends_with(&command);
                assert!(file.rows.iter().any(runs_it), "{name}: no row runs it");
            }
        }
    }

    #[test]
    fn all_that_the_papers_show_is_there_once() {
        let files = all().unwrap();
        let rows = || files.iter().flat_map(|file| &file.rows);
        assert!(rows().count() >= 40, "{}", rows().count());
        let whats: BTreeSet<&str> = rows().map(|row| row.what.as_str()).collect();
        assert_eq!(whats.len(), rows().count());
        let figures = |paper| {
            let of = files.iter().filter(move |file| file.paper == paper);
            of.flat_map(|file| file.rows.iter().map(|row| row.figure.as_str()))
                .collect::<BTreeSet<&str>>()
        };
        let tales = figures(PaperName::Tales);
        for number in 1..=10 {
            assert!(tales.contains(format!("fig{number}").as_str()), "{number}");
        }
        let deconstructing = figures(PaperName::Deconstructing);
        for number in 4..=12 {
            assert!(
                deconstructing.contains(format!("fig{number}").as_str()),
                "{number}"
            );
        }
        let names: Vec<&str> = (files.iter())
            .filter_map(|file| Some(file.figure.as_ref()?.name.as_str()))
            .collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    }
}
