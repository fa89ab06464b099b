//! The screens of commands whose result is short, from results as `--json` printed them on a
//! virtual machine with two CPUs: at most 45 lines of 80 columns.

use serde::de::DeserializeOwned;
use taillab_report::terminal::{self, Detail, Style};

use crate::one_screen;

fn read<T: DeserializeOwned>(json: &str) -> T {
    serde_json::from_str(json).expect("the result is what the schema says")
}

#[test]
fn what_the_machine_allows() {
    let diagnosis = read(include_str!("screens/doctor.json"));
    one_screen!(terminal::render_doctor(
        &diagnosis,
        Detail::Screen,
        Style::PLAIN
    ));
}

#[test]
fn what_can_be_changed() {
    let list = read(include_str!("screens/tune-list.json"));
    one_screen!(terminal::render_tune(&list, false, Style::PLAIN));
}

#[test]
fn what_would_be_changed() {
    let plan = read(include_str!("screens/tune-plan.json"));
    one_screen!(terminal::render_tune(&plan, false, Style::PLAIN));
}
