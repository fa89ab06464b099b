//! The result of `taillab budget`: tables and figures, for a terminal and for a page.

mod figure;
mod tables;

pub(crate) use self::figure::{components_charts, networks_chart};
pub(crate) use self::tables::{
    PAPER, STAND_IN, earlier_table, networks_table, parameters, reproduces, rows_beside_paper,
    rows_screen, rows_table, title,
};
