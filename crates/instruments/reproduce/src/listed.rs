//! The result of `taillab reproduce list`.

use schemars::JsonSchema;
use serde::Serialize;
use taillab_report::figures::counted;
use taillab_report::table::{Column, Table, cell, name};
use taillab_report::text::Ink;

use crate::declared::{PaperName, RowStatus};

/// Every figure, table and claim of the papers.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FigureList {
    /// Version of this shape.
    #[schemars(extend("const" = crate::result::SCHEMA_VERSION))]
    pub schema_version: u32,
    /// Always `reproduce`.
    #[schemars(extend("const" = "reproduce"))]
    pub command: &'static str,
    /// One for each, paper by paper.
    pub rows: Vec<ListedRow>,
}

/// A figure, table or claim.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ListedRow {
    /// The paper.
    pub paper: PaperName,
    /// The figure, table or claim: `fig5`.
    pub figure: String,
    /// What it shows.
    pub what: String,
    /// Whether it can be had on this machine.
    pub status: RowStatus,
    /// What it needs or lacks here, with what stands in for that; empty if nothing.
    pub needs: String,
    /// The command that shows it here, or what stands in for it.
    pub show: String,
    /// About how long that takes, in seconds, on two CPUs.
    pub seconds: u32,
}

impl FigureList {
    /// The rows with this status.
    pub fn count(&self, status: RowStatus) -> usize {
        self.rows.iter().filter(|row| row.status == status).count()
    }

    /// How many rows have each status.
    pub fn tally(&self) -> String {
        let counts = RowStatus::ALL
            .into_iter()
            .filter_map(|status| match self.count(status) {
                0 => None,
                n => Some(format!("{n} {}", status.text())),
            });
        let counts: Vec<String> = counts.collect();
        let rows = counted(self.rows.len() as u64, "row", "rows");
        format!("{rows}: {}", counts.join(", "))
    }

    /// The rows of one paper.
    pub fn table(&self, paper: PaperName) -> Table {
        /// The maximum widths of texts in a terminal.
        const WIDEST: [usize; 2] = [56, 40];
        let columns = [
            Column::left(""),
            Column::left("what").wrapped(WIDEST[0]).gap(2),
            Column::left("here").gap(2),
            Column::left("needs").wrapped(WIDEST[1]).gap(2),
            Column::right("seconds").gap(2),
        ];
        let mut table = Table::new(paper.text(), columns);
        for row in self.rows.iter().filter(|row| row.paper == paper) {
            let ink = match row.status {
                RowStatus::RunsHere | RowStatus::ModelOnly => Ink::Good,
                RowStatus::NeedsCpus
                | RowStatus::NeedsHardware
                | RowStatus::NeedsProgram
                | RowStatus::NotBuiltIn => Ink::Notable,
            };
            let cells = [
                name(&row.figure),
                cell(&row.what),
                cell(row.status.text()).ink(ink),
                cell(&row.needs),
                cell(row.seconds.to_string()),
            ];
            table.row(cells).command(&row.show);
        }
        table
    }
}
