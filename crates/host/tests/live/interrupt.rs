//! Ctrl-C: the first raises the flag, a later one kills.

use std::os::unix::process::ExitStatusExt;
use std::thread;
use std::time::Duration;

use crate::common::{Helper, argument, eventually, is_helper, tell, wait_for_death};
use rustix::process::{Pid, Signal, kill_process};
use taillab_host::Interrupt;

#[test]
fn the_first_signal_raises_the_flag_and_a_later_one_kills() {
    let name = "interrupt::the_first_signal_raises_the_flag_and_a_later_one_kills";
    if is_helper() {
        assert_eq!(argument(), "helper");
        let interrupt = Interrupt::register().unwrap();
        assert!(!interrupt.is_raised());
        tell("ready");
        eventually("the flag is raised", || interrupt.is_raised());
        // timeout(1) sends each signal twice
        thread::sleep(Duration::from_millis(100));
        tell("raised, and alive");
        wait_for_death();
    }
    for signal in [Signal::INT, Signal::TERM] {
        let mut helper = Helper::start(name, "helper");
        let pid = Pid::from_raw(helper.pid() as i32).unwrap();
        assert_eq!(helper.hear(), "ready");
        kill_process(pid, signal).unwrap();
        kill_process(pid, signal).unwrap();
        assert_eq!(helper.hear(), "raised, and alive");
        thread::sleep(Duration::from_millis(500));
        kill_process(pid, signal).unwrap();
        assert_eq!(helper.wait().signal(), Some(signal.as_raw()));
    }
}
