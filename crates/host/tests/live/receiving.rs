//! Who receives packets, and after how many interrupts, before and after a change: on the loopback of a
//! network namespace of the test, and on the cards of the guest of `make vm`, where QEMU
//! answers at the other end.

use std::fs;
use std::io;
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::ioctl;
use taillab_host::cpus::pin_current_thread;
use taillab_host::tune::{
    Change, EthtoolSetting, MITIGATIONS, Parameter, Part, Plan, RevertSelection, Scope, Setting,
    Unavailable,
};
use taillab_host::{CpuSet, NetNamespace, Roots};

use crate::common::{eventually, live};
use crate::effects::Applied;
use crate::first_unspoiled;
use crate::tune::{Process, in_namespace, quiet, tuner};

/// How many packets a measurement sends.
const PACKETS: u64 = 200;

/// For so long `irq-suspension` keeps a card from interrupting a server that was given packets, less a margin.
const SUSPENDED: Duration = Duration::from_millis(15);

/// Longer than any working system needs for one of them.
const PATIENCE: Duration = Duration::from_secs(30);

fn ip(arguments: &[&str]) {
    let status = Command::new("ip").args(arguments).status().unwrap();
    assert!(status.success(), "ip {arguments:?}");
}

/// Applies a mitigation as it is planned.
fn applied(name: &str, scope: &Scope) -> Applied {
    Applied::new(name, scope, |_| true)
}

/// What a plan says where a mitigation is not possible.
fn unavailable(name: &str, scope: &Scope) -> String {
    let journal = tempfile::tempdir().unwrap();
    let plan = tuner(journal.path()).plan(&[name], scope).unwrap();
    match &plan.parts[0].proposal {
        Err(Unavailable(reason)) => reason.clone(),
        Ok(proposal) => panic!("{name}: {proposal:?}"),
    }
}

fn of_device(device: &str) -> Scope {
    Scope {
        device: Some(device.to_owned()),
        ..Scope::default()
    }
}

/// Whether this is the guest of `make vm`. Elsewhere a card carries other people's packets.
fn in_guest() -> bool {
    std::env::var_os("TAILLAB_GUEST").is_some()
}

/// How often each CPU was told by another one to receive packets (`received_rps`).
fn told_to_receive() -> Vec<u64> {
    let table = fs::read_to_string("/proc/net/softnet_stat").unwrap();
    let lines = table.lines().map(|line| {
        let field = line.split_whitespace().nth(9).unwrap();
        u64::from_str_radix(field, 16).unwrap()
    });
    lines.collect()
}

/// Sends packets from CPU 0 to a reader on CPU 1, each after the answer to the last, over the loopback
/// of a process's namespace. Returns how often CPU 1 was told to receive.
fn told_by_the_other_cpu(process: &Process) -> u64 {
    let namespace = NetNamespace::of_process(&Roots::default(), process.pid()).unwrap();
    let start = told_to_receive()[1];
    let exchange = || {
        ip(&["link", "set", "lo", "up"]);
        let socket = || {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket
        };
        let (sender, reader) = (socket(), socket());
        sender.connect(reader.local_addr().unwrap()).unwrap();
        reader.connect(sender.local_addr().unwrap()).unwrap();
        let turns = |cpu, first: bool, socket: &UdpSocket| {
            pin_current_thread(&CpuSet::single(cpu)).unwrap();
            for _ in 0..PACKETS {
                if first {
                    socket.send(b"packet").unwrap();
                }
                socket.recv(&mut [0; 16]).unwrap();
                if !first {
                    socket.send(b"answer").unwrap();
                }
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| turns(1, false, &reader));
            scope.spawn(|| turns(0, true, &sender));
        });
    };
    namespace.run(exchange).unwrap();
    told_to_receive()[1] - start
}

#[test]
fn packets_are_received_on_another_cpu() {
    if !live("packets_are_received_on_another_cpu") {
        return;
    }
    let process = in_namespace();
    let online = taillab_host::cpus::online(&Roots::default()).unwrap();
    let scope = Scope {
        pid: Some(process.pid()),
        // the server keeps these, so RPS goes to CPU 1
        cpus: Some(online.difference(&CpuSet::single(1))),
        ..of_device("lo")
    };
    let without = told_by_the_other_cpu(&process);
    let held = applied("softirq-cpu", &scope);
    let with = told_by_the_other_cpu(&process);
    held.revert();
    let again = told_by_the_other_cpu(&process);
    println!("{without}, {with}, {again} of {PACKETS}");
    assert!(with >= PACKETS / 2, "{with}");
    assert!(
        without < PACKETS / 4 && again < PACKETS / 4,
        "{without}, {again}"
    );
}

/// A network card of the guest, up until the test ends.
struct Card {
    name: String,
    /// Its interrupts' numbers.
    interrupts: Vec<String>,
}

impl Card {
    /// The one of this driver; `None` where this is not the guest.
    fn of(driver: &str) -> Option<Self> {
        let names = |folder: &str| -> Vec<String> {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            let names = entries.map(|entry| entry.file_name().into_string().unwrap());
            names.collect()
        };
        let is_of = |name: &String| {
            let path = format!("/sys/class/net/{name}/device/driver");
            fs::read_link(path).is_ok_and(|driven| driven.ends_with(driver))
        };
        if !in_guest() {
            return None;
        }
        let mut all = names("/sys/class/net").into_iter();
        let name = all.find(is_of).expect("the guest has such a card");
        // a virtio device uses those of the PCI device above it
        let folders = ["msi_irqs", "../msi_irqs"];
        let interrupts = (folders.into_iter())
            .map(|folder| names(&format!("/sys/class/net/{name}/device/{folder}")))
            .find(|numbers| !numbers.is_empty())
            .unwrap();
        ip(&["address", "add", "10.0.2.15/24", "dev", &name]);
        ip(&["link", "set", &name, "up"]);
        let card = Self { name, interrupts };
        eventually("its link", || {
            let state = fs::read_to_string(format!("/sys/class/net/{}/carrier", card.name));
            state.is_ok_and(|state| state.trim() == "1")
        });
        card.exchange();
        Some(card)
    }

    /// A socket whose requests QEMU answers at once, saying that it has no files (TFTP, RFC 1350).
    fn socket() -> UdpSocket {
        let socket = UdpSocket::bind("10.0.2.15:0").unwrap();
        socket.connect("10.0.2.2:69").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }

    fn ask(socket: &UdpSocket) {
        socket.send(b"\0\x01none\0octet\0").unwrap();
    }

    fn answered(socket: &UdpSocket) {
        socket.recv(&mut [0; 512]).unwrap();
    }

    /// Requests and their answers, one after the other.
    fn exchange(&self) {
        let socket = Self::socket();
        for _ in 0..PACKETS {
            Self::ask(&socket);
            Self::answered(&socket);
        }
    }

    /// How often each CPU has had those of its interrupts whose user's name contains `part`.
    fn interrupted(&self, part: &str) -> Vec<u64> {
        let table = fs::read_to_string("/proc/interrupts").unwrap();
        let cpus = table.lines().next().unwrap().split_whitespace().count();
        let mut counts = vec![0; cpus];
        for line in table.lines().skip(1) {
            let (number, rest) = line.split_once(':').unwrap();
            let user = rest.split_whitespace().next_back().unwrap_or_default();
            if self.interrupts.iter().any(|own| own == number.trim()) && user.contains(part) {
                for (count, text) in counts.iter_mut().zip(rest.split_whitespace()) {
                    *count += text.parse::<u64>().unwrap();
                }
            }
        }
        counts
    }

    fn scope(&self) -> Scope {
        of_device(&self.name)
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        // a panic here would end a test that has failed before it puts the rest back
        for words in [
            ["link", "set", &self.name, "down"],
            ["address", "flush", "dev", &self.name],
        ] {
            let _ = Command::new("ip").args(words).status();
        }
    }
}

/// How a server wants epoll to poll its cards: `struct epoll_params` of linux/eventpoll.h.
#[repr(C)]
#[allow(dead_code, reason = "the kernel reads them")]
struct EpollParameters {
    busy_poll_usecs: u32,
    busy_poll_budget: u16,
    prefer_busy_poll: u8,
    pad: u8,
}

/// `EPIOCSPARAMS`, since Linux 6.9.
const SET_PARAMETERS: ioctl::Opcode = ioctl::opcode::write::<EpollParameters>(0x8a, 1);

/// An epoll that polls the card for up to 20 ms before it sleeps.
fn polling(socket: &UdpSocket) -> io::Result<std::os::fd::OwnedFd> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let readable = epoll::EventFlags::IN;
    epoll::add(&epoll, socket, epoll::EventData::new_u64(0), readable)?;
    let parameters = EpollParameters {
        busy_poll_usecs: 20_000,
        busy_poll_budget: 8,
        prefer_busy_poll: 1,
        pad: 0,
    };
    // SAFETY: this call of an epoll reads a `struct epoll_params`, which is what it gets.
    unsafe {
        let set = ioctl::Setter::<SET_PARAMETERS, _>::new(parameters);
        ioctl::ioctl(&epoll, set)?;
    }
    Ok(epoll)
}

/// A card whose server polls it interrupts less often for as many packets (napi.rst, "IRQ suspension").
#[test]
fn a_server_that_polls_is_hardly_interrupted() {
    if !live("a_server_that_polls_is_hardly_interrupted") {
        return;
    }
    let Some(card) = Card::of("virtio_net") else {
        // the loopback has no receive context whose interrupts could be off
        let journal = tempfile::tempdir().unwrap();
        let plan = tuner(journal.path()).plan(&["irq-suspension"], &of_device("lo"));
        let plan = plan.unwrap();
        let of_contexts = |setting: &Setting| matches!(setting, Setting::Napi(_));
        assert!(!plan.changes().any(|change| of_contexts(&change.setting)));
        return;
    };
    // how many there were, and for how many packets the server took so long that the card may interrupt it again
    let interrupts = || {
        let socket = Card::socket();
        let epoll = polling(&socket).unwrap();
        let exchange = || {
            let begun = Instant::now();
            Card::ask(&socket);
            // the answer comes while the server works
            while begun.elapsed() < Duration::from_millis(3) {
                std::hint::spin_loop();
            }
            let mut events = Vec::<epoll::Event>::with_capacity(4);
            let within = Some(&rustix::time::Timespec {
                tv_sec: PATIENCE.as_secs() as i64,
                tv_nsec: 0,
            });
            let buffer = rustix::buffer::spare_capacity(&mut events);
            assert_eq!(epoll::wait(&epoll, buffer, within).unwrap(), 1);
            Card::answered(&socket);
            u64::from(begun.elapsed() > SUSPENDED)
        };
        // the kernel learns from packets which card to poll
        for _ in 0..20 {
            exchange();
        }
        let start = card.interrupted("input").iter().sum::<u64>();
        let late: u64 = (0..PACKETS).map(|_| exchange()).sum();
        (card.interrupted("input").iter().sum::<u64>() - start, late)
    };
    let attempt = |_| {
        let (without, _) = interrupts();
        let held = applied("irq-suspension", &card.scope());
        let (with, late) = interrupts();
        held.revert();
        let (again, _) = interrupts();
        println!("{without}, {with}, {again} interrupts for {PACKETS} packets, {late} late");
        ([without, with, again], late)
    };
    let stood_still = |(_, late): &([u64; 3], u64)| {
        (*late > PACKETS / 10).then(|| format!("{late} exchanges took longer than {SUSPENDED:?}"))
    };
    let ([without, with, again], _) = first_unspoiled(5, attempt, stood_still);
    assert!(2 * with < without.min(again), "{without}, {with}, {again}");
}

#[test]
fn one_of_the_servers_cpus_has_the_interrupts_alone() {
    if !live("one_of_the_servers_cpus_has_the_interrupts_alone") {
        return;
    }
    let server = Process::start("taskset", &["-c", "0-1", "sleep", "600"]);
    let affinity = Setting::affinity(server.identity());
    eventually("the server's CPUs", || server.reads(&affinity) == "0-1");
    let Some(card) = Card::of("virtio_net") else {
        let scope = Scope {
            pid: Some(server.pid()),
            ..of_device("lo")
        };
        let reason = unavailable("interrupt-cpu", &scope);
        assert!(reason.contains("lo has no interrupts"), "{reason}");
        return;
    };
    let list =
        |number: &String| fs::read_to_string(format!("/proc/irq/{number}/smp_affinity_list"));
    let lists = || -> Vec<String> {
        let lists = card.interrupts.iter().map(list);
        lists.map(Result::unwrap).collect()
    };
    let before = lists();
    let scope = Scope {
        pid: Some(server.pid()),
        ..card.scope()
    };
    let held = applied("interrupt-cpu", &scope);
    assert_eq!(server.reads(&affinity), "0");
    // each of its queues moves with its own next interrupt
    let is_alone = (0..20).any(|_| {
        let start = card.interrupted("");
        card.exchange();
        let end = card.interrupted("");
        assert!(end.iter().sum::<u64>() > start.iter().sum(), "{end:?}");
        let mut cpus = start.iter().zip(&end).enumerate();
        cpus.all(|(cpu, (start, end))| cpu == 1 || start == end)
    });
    assert!(is_alone, "other CPUs have some of them in all 20 exchanges");
    held.revert();
    assert_eq!((server.reads(&affinity), lists()), ("0-1".into(), before));
}

/// What an earlier version has changed at a driver is put back: its mitigation is gone, and its setting is in the
/// journal.
#[test]
fn a_driver_coalesces_as_before() {
    if !live("a_driver_coalesces_as_before") {
        return;
    }
    let of = |device: &str| {
        Setting::Ethtool(EthtoolSetting {
            device: device.to_owned(),
            namespace: None,
            parameter: Parameter::RxUsecs,
        })
    };
    let Some(card) = Card::of("e1000e") else {
        let loopback = of("lo").read(&Roots::default());
        assert!(loopback.is_err(), "{loopback:?}");
        return;
    };
    let setting = of(&card.name);
    let now = || setting.read(&Roots::default());
    let before = now().unwrap();
    assert_ne!(before, "50");
    let journal = tempfile::tempdir().unwrap();
    let tuner = tuner(journal.path());
    let change = Change::new(setting.clone(), "50", "a test");
    let plan = Plan {
        parts: vec![Part {
            mitigation: MITIGATIONS[0],
            proposal: Ok(vec![change].into()),
        }],
        conflicts: Vec::new(),
        process: None,
    };
    tuner.apply(&plan, false, &mut quiet).unwrap();
    assert_eq!(now().unwrap(), "50");
    tuner.revert(RevertSelection::All, &mut quiet).unwrap();
    assert_eq!(now().unwrap(), before);
}

/// The kernel takes what `each_writes_what_it_says_and_is_put_back` shows on a recorded tree.
#[test]
fn a_kernel_of_its_own_takes_settings_of_the_whole_machine() {
    if !live("a_kernel_of_its_own_takes_settings_of_the_whole_machine") {
        return;
    }
    if !in_guest() {
        // here they belong to others
        let journal = tempfile::tempdir().unwrap();
        let plan = tuner(journal.path()).plan(&["busy-poll"], &of_device("nonesuch0"));
        assert!(plan.unwrap_err().to_string().contains("nonesuch0"));
        return;
    }
    let scope = Scope {
        cpus: Some("3".parse().unwrap()),
        ..of_device("lo")
    };
    let roots = Roots::default();
    let debugfs = Path::new("/sys/kernel/debug");
    if !debugfs.join("sched").exists() {
        let mount = ["-t", "debugfs", "debugfs", "/sys/kernel/debug"];
        let status = Command::new("mount").args(mount).status().unwrap();
        assert!(status.success());
    }
    for (name, fewest) in [
        // from 6.12 the limit may be off, and the fair server in its place
        ("rt-runtime", 1),
        ("busy-poll", 2),
    ] {
        let journal = tempfile::tempdir().unwrap();
        let plan = tuner(journal.path()).plan(&[name], &scope).unwrap();
        let values = || -> Vec<String> {
            let all = plan.changes().map(|change| change.setting.read(&roots));
            all.map(Result::unwrap).collect()
        };
        let before = values();
        assert!(before.len() >= fewest, "{name}: {plan:?}");
        let held = applied(name, &scope);
        for (change, now) in plan.changes().zip(values()) {
            assert!(change.setting.same(&change.new, &now), "{change:?}: {now}");
        }
        held.revert();
        assert_eq!(values(), before, "{name}");
    }
}
