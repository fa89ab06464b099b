//! `taillab budget`: the latency of each component, and of networks made of them.

mod bench;
mod bypass_rows;
mod clock_rows;
mod device_rows;
mod host_rows;
mod networks;
mod paper;
mod row;
mod server_rows;
mod topology;
mod topology_file;

use taillab_console::exit::{Exit, Failure, OrExit};
use taillab_console::fail::host;
use taillab_console::messages::Messages;
use taillab_console::print::style;
use taillab_console::rendered::Rendered;
use taillab_console::rights::recover;
use taillab_console::rundir::{RunDir, with_files};
use taillab_host::environment::{Virtualization, kernel_release};
use taillab_host::{CpuSet, Interrupt, Roots, clock, cpus};
use taillab_report::json;

use self::bench::Bench;
use self::networks::Network;
use self::row::Row;
use crate::args::BudgetArgs;
use crate::result::{BudgetResult, SCHEMA_VERSION};
use crate::{page, terminal};

/// Measures row by row, adds up the networks, and prints. `command` is `budget`, or `reproduce` to
/// compare with the paper's figures.
pub fn run(args: &BudgetArgs, command: &str) -> Result<Exit, Failure> {
    let own: Vec<Network> = (args.topology.iter())
        .map(|path| topology_file::read(path))
        .collect::<Result<_, _>>()?;
    let places = places(args.cpus.as_ref())?;
    let mut dir = RunDir::create_if_asked(args.output.clone(), 0)?;
    let result = measure(args, command, &own, places)?;
    show(args, dir.as_mut(), &result)?;
    let exit = match result.partial {
        true => Exit::Interrupted,
        false => Exit::Ok,
    };
    with_files(Ok(exit), dir.map_or(Ok(()), RunDir::outcome))
}

/// Everything but the output.
fn measure(
    args: &BudgetArgs,
    command: &str,
    own: &[Network],
    (here, there): (u32, Option<u32>),
) -> Result<BudgetResult, Failure> {
    let (roots, messages) = (Roots::default(), Messages::of(args.common));
    recover(&roots, messages)?;
    let interrupt = Interrupt::register().map_err(host)?;
    let started_unix_s = clock::unix_s();
    let bench = Bench {
        roots: &roots,
        interrupt: &interrupt,
        length: args.duration,
        here,
        there,
        messages,
    };
    let rows = rows(&bench);
    let (topologies, mut notes) = topology::all(&rows, own, args.draws as usize, args.seed);
    notes.extend(unsupported(&rows));
    Ok(BudgetResult {
        schema_version: SCHEMA_VERSION,
        command: command.into(),
        taillab_version: env!("CARGO_PKG_VERSION").into(),
        started_unix_s,
        partial: interrupt.is_raised(),
        kernel: kernel_release(&roots),
        hypervisor: Virtualization::read(&roots).hypervisor(),
        earlier: topology::earlier(&rows, &topologies),
        rows: rows.into_iter().map(Row::shown).collect(),
        topologies,
        notes,
    })
}

/// The paper's rows, in its order, until Ctrl-C.
fn rows(bench: &Bench<'_>) -> Vec<Row> {
    let mut rows = Vec::new();
    for measure in [
        clock_rows::all as fn(&Bench<'_>) -> Vec<Row>,
        host_rows::user_space,
        server_rows::host,
        bypass_rows::all,
        device_rows::pcie,
        server_rows::client_server,
    ] {
        if bench.interrupt.is_raised() {
            break;
        }
        let found = measure(bench).into_iter();
        let is_early = bench.interrupt.is_raised();
        // a row that was interrupted says nothing about this machine
        rows.extend(found.filter(|row| !is_early || row.has_figures()));
    }
    rows
}

/// Why a row has no 99.9th percentile.
fn unsupported(rows: &[Row]) -> Option<String> {
    let lacks = |row: &&Row| {
        row.latency()
            .is_some_and(|latency| latency.quantile(0.999).is_none())
    };
    // names contain commas
    let names: Vec<String> = (rows.iter().filter(lacks))
        .map(|row| format!("“{}”", row.name()))
        .collect();
    let (last, others) = names.split_last()?;
    let names = match others {
        [] => last.clone(),
        others => format!("{} and {last}", others.join(", ")),
    };
    Some(format!(
        "no 99.9th percentile of {names}: the slowest samples come from too few independent stalls; \
         measure longer with -d"
    ))
}

fn places(wanted: Option<&CpuSet>) -> Result<(u32, Option<u32>), Failure> {
    let chosen = match wanted {
        Some(wanted) => cpus::ensure_usable(wanted).map(|_| wanted.clone()),
        None => cpus::allowed(),
    };
    let chosen = chosen.map_err(host)?;
    let roots = Roots::default();
    pair(&chosen, |cpu| cpus::siblings(&roots, cpu))
        .ok_or_else(|| Failure::usage("no CPU is named; give two: --cpus 0,1"))
}

/// The first CPU and the next that shares no core with it; any other, where all share it.
fn pair(chosen: &CpuSet, siblings: impl Fn(u32) -> CpuSet) -> Option<(u32, Option<u32>)> {
    let here = chosen.first()?;
    let there = cpus::others(chosen, &CpuSet::single(here), siblings).first();
    Some((here, there))
}

fn show(args: &BudgetArgs, dir: Option<&mut RunDir>, result: &BudgetResult) -> Result<(), Failure> {
    let rendered = Rendered {
        name: "budget",
        json: json::of(result).or_exit(Exit::Failed)?,
        page: page::render(result),
        text: terminal::render(result, args.common.verbose > 0, style()),
    };
    rendered.save_and_print(dir, args.common)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_cpu_is_on_another_core_where_there_is_one() {
        let pair = |cpus: &str| {
            // each core has two neighbours
            let siblings = |cpu: u32| [cpu & !1, cpu | 1].into_iter().collect();
            pair(&cpus.parse().unwrap(), siblings)
        };
        assert_eq!(pair("0-15"), Some((0, Some(2))));
        assert_eq!(pair("3,8,9"), Some((3, Some(8))));
        assert_eq!(pair("0-1"), Some((0, Some(1))));
        assert_eq!(pair("5"), Some((5, None)));
    }
}
