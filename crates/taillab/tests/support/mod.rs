//! Shared by the test binaries: the machine's state and short runs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(unreachable_pub, reason = "every test binary includes this file")]
#![allow(dead_code, reason = "each test binary uses a part")]

mod canary;
#[path = "../../../load/tests/support/ports.rs"]
mod ports;
pub mod promises;
pub mod schema;
#[path = "../../../probe/tests/live/testbed/unspoiled.rs"]
mod unspoiled;

use std::fs::Permissions;
use std::io::{self, Read};
use std::net::{SocketAddr, UdpSocket};
use std::ops::{Deref, DerefMut};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::net;
use tempfile::TempDir;

pub use self::canary::Canary;
pub use self::ports::free_port;
use self::ports::ports_in_use;
pub use self::unspoiled::first_unspoiled;

/// A short run at a low rate: seconds, not minutes.
pub const SHORT: [&str; 13] = [
    "run",
    "memcached",
    "--json",
    "-R",
    "4000",
    "-d",
    "1500ms",
    "--warmup",
    "300ms",
    "--pairs",
    "6",
    "--block",
    "60ms",
];

/// The command under test, as the user of the test: beneath sudo it would write with the rights of the user
/// who called sudo, and into none of root's temporary folders.
pub fn taillab() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_taillab"));
    command.env_remove("SUDO_UID").env_remove("SUDO_GID");
    command
}

/// Whether a command is there: an instrument can be taken out.
pub fn is_built_in(command: &str) -> bool {
    let help = taillab().args([command, "--help"]).output();
    help.unwrap().status.success()
}

/// Whether the live tests can run; says loudly why not and fails unless told to skip.
pub fn live(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    let btf = Path::new("/sys/kernel/btf/vmlinux").exists();
    if root && btf {
        return true;
    }
    let why = format!("{test} needs root ({root}) and a kernel with BTF ({btf})");
    assert!(
        std::env::var_os("TAILLAB_SKIP_LIVE").is_some_and(|value| value == "1"),
        "{why}; run `make test`, or set TAILLAB_SKIP_LIVE=1 to skip it"
    );
    println!("SKIPPED {why}");
    false
}

/// Whether the machine has something; the guest of `make vm` (TAILLAB_GUEST) must have it.
pub fn must_be_in_a_guest(is_there: bool) -> bool {
    assert!(is_there || std::env::var_os("TAILLAB_GUEST").is_none());
    is_there
}

/// What a run could leave behind: interfaces, mounts, journals.
pub struct Machine(Vec<String>);

impl Machine {
    /// The state now.
    pub fn now() -> Self {
        let lines = |path: &str| -> Vec<String> {
            let text = std::fs::read_to_string(path).unwrap();
            text.lines().map(str::to_owned).collect()
        };
        let files = |folder: &str| -> Vec<String> {
            (std::fs::read_dir(folder).into_iter().flatten())
                .map(|entry| entry.unwrap().path().display().to_string())
                .collect()
        };
        let interfaces = lines("/proc/net/dev").into_iter().skip(2);
        let interfaces = interfaces.filter_map(|line| Some(line.split(':').next()?.to_owned()));
        let journals = files("/run/taillab").into_iter();
        let mut things = interfaces.collect::<Vec<_>>();
        let mounts = lines("/proc/self/mounts").into_iter();
        things.extend(mounts.filter(|mount| may_be_ours(mount)));
        things.extend(journals.filter(|path| path.ends_with(".json")));
        Self(things)
    }

    /// Fails if anything came or went since then.
    #[track_caller]
    pub fn assert_unchanged(&self) {
        let now = Self::now();
        let only = |some: &[String], others: &[String]| -> Vec<String> {
            let only = some.iter().filter(|thing| !others.contains(thing));
            only.cloned().collect()
        };
        let (came, went) = (only(&now.0, &self.0), only(&self.0, &now.0));
        assert!(
            came.is_empty() && went.is_empty() && now.0.len() == self.0.len(),
            "left behind: {came:?}, gone: {went:?}, in {:?}",
            now.0
        );
    }
}

/// Whether taillab mounts such things; other programs of the machine may mount theirs at any time.
fn may_be_ours(mount: &str) -> bool {
    let kinds = [" tmpfs ", " sysfs "];
    kinds.iter().any(|kind| mount.contains(kind)) && mount.contains("nosuid,nodev,noexec")
}

/// A process that is killed when this is dropped, also by a test that fails, unless it has ended.
pub struct Guarded(Option<Child>);

impl Guarded {
    /// Starts it.
    pub fn spawn(command: &mut Command) -> Self {
        Self(Some(command.spawn().unwrap()))
    }

    /// Waits for its end and reads the rest of what it writes.
    pub fn wait_with_output(mut self) -> io::Result<Output> {
        self.0.take().unwrap().wait_with_output()
    }
}

impl Deref for Guarded {
    type Target = Child;

    fn deref(&self) -> &Child {
        self.0.as_ref().unwrap()
    }
}

impl DerefMut for Guarded {
    fn deref_mut(&mut self) -> &mut Child {
        self.0.as_mut().unwrap()
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A thread that goes on until this is ended or dropped, also by a test that fails.
pub struct Meanwhile<T> {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<T>>,
}

impl<T: Send + 'static> Meanwhile<T> {
    /// Starts it; `goes_on` looks at the flag again and again.
    pub fn start(name: &str, goes_on: impl FnOnce(&AtomicBool) -> T + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(move || goes_on(&stopped)).unwrap();
        Self {
            stop,
            thread: Some(thread),
        }
    }

    /// Ends it.
    pub fn end(mut self) -> T {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl<T> Drop for Meanwhile<T> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Starts the command in the background, with stdout and stderr in pipes.
pub fn start(args: &[&str], output: &Path) -> Guarded {
    let mut command = taillab();
    command.args(args).arg("-o").arg(output);
    Guarded::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
}

/// A folder that every user can enter, unlike that of the clone, or one in TMPDIR.
pub fn reachable() -> TempDir {
    let place = tempfile::tempdir_in("/tmp").unwrap();
    std::fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
    place
}

/// A copy of the command that every user can run, in a folder that every user can write.
pub fn for_everybody() -> (TempDir, PathBuf) {
    let place = reachable();
    std::fs::set_permissions(place.path(), Permissions::from_mode(0o777)).unwrap();
    let copy = place.path().join("taillab");
    // copied by another program: a process that another test starts while we have the copy open for
    // writing would inherit the descriptor, and the copy would be busy
    let mut install = Command::new("install");
    install.args(["-m", "755", env!("CARGO_BIN_EXE_taillab")]);
    assert!(install.arg(&copy).status().unwrap().success());
    (place, copy)
}

/// If a CPU stands still for this long, a block of the calibration in [`SHORT`] may have no answer: 60 ms of it count, and
/// a nap of the canary hides 2 ms.
const BLOCK: Duration = Duration::from_millis(55);

/// The first run, of five, that the machine let come to its end: it may have stood still while the calibration
/// waited for an answer.
pub fn on_a_steady_machine(mut run: impl FnMut(usize) -> Output) -> Output {
    let attempt = |number| {
        let canary = Canary::start();
        let output = run(number);
        (output, canary.end())
    };
    let spoiled = |(output, still): &(Output, Duration)| {
        let said = String::from_utf8_lossy(&output.stderr);
        let is_unanswered = said.contains("stopped answering during calibration");
        let is_spoiled = is_unanswered && *still >= BLOCK;
        (output.status.code() == Some(1) && is_spoiled)
            .then(|| format!("{said}; the machine stood still for up to {still:?}"))
    };
    first_unspoiled(5, attempt, spoiled).0
}

/// [`SHORT`] for another server.
pub fn short<'a>(server: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec!["run"];
    args.extend(server);
    args.extend(&SHORT[2..]);
    args
}

/// A run that says it is measuring and has done so for a moment, and its server process, called
/// `name`.
pub fn in_mid_run(args: &[&str], name: &str, output: &Path) -> (Guarded, u32) {
    let length = args.iter().position(|arg| *arg == "-d").unwrap() + 1;
    let mut long = args.to_vec();
    long[length] = "600s";
    long.push("-v");
    let mut child = start(&long, output);
    let server = server_of(child.id(), name);
    // Byte by byte, so that what follows this line is left for whoever waits for the child.
    let mut stderr = child.stderr.take().unwrap();
    let mut said = Vec::new();
    let mut byte = [0];
    while !said.ends_with(b"requests per second\n") {
        assert_eq!(stderr.read(&mut byte).unwrap(), 1, "the run ended early");
        said.push(byte[0]);
    }
    child.stderr = Some(stderr);
    // The warm-up is 300 ms, 1,200 requests of at most two packets each; how much is measured after it does not
    // matter. What comes to the server tells how far the load is, however busy the machine is.
    let began = packets_to(server);
    wait_for("a measurement", || {
        (packets_to(server) >= began + 6_000).then_some(())
    });
    (child, server)
}

/// Waits until a program has bound a UDP port, without binding it for a test.
pub fn bound(port: u16) {
    wait_for("a bound port", || {
        ports_in_use(&["udp"]).contains(&port).then_some(())
    });
}

/// Packets that have come to the network namespace of a process.
fn packets_to(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/net/dev")).unwrap();
    let counts = text
        .lines()
        .filter_map(|line| Some(line.split_once(':')?.1));
    // behind the bytes, proc_pid_net(5)
    let packets = counts.filter_map(|row| row.split_whitespace().nth(1)?.parse::<u64>().ok());
    packets.sum()
}

/// How long the threads of a process have had a CPU.
pub fn cpu_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after = stat.rsplit(')').next().unwrap_or_default();
    // utime and stime, proc_pid_stat(5), in ticks of 10 ms
    let ticks = after.split_whitespace().skip(11).take(2);
    let ticks = ticks.map(|number| number.parse::<u64>().unwrap());
    Duration::from_millis(10 * ticks.sum::<u64>())
}

/// The server called `name` that `parent` started, once it is there.
pub fn server_of(parent: u32, name: &str) -> u32 {
    wait_for("the server's start", || {
        children(parent, name).into_iter().next()
    })
}

/// Processes called `name` whose parent is `parent`.
pub fn children(parent: u32, name: &str) -> Vec<u32> {
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| {
            std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
                let after = stat.rsplit(')').next().unwrap_or_default();
                stat.contains(&format!("({name})"))
                    && after.split_whitespace().nth(1) == Some(&parent.to_string())
            })
        })
        .collect()
}

/// Starts the command, and ends it once a child of it works as nobody, without capabilities; false if it ended before.
pub fn analyses_without_root(command: &mut Command) -> bool {
    let is_unprivileged = |pid: &u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name));
            line.unwrap_or_default().split_whitespace().nth(1)
        };
        field("Uid:") == Some("65534")
            && field("CapEff:").is_some_and(|set| !set.contains(|c: char| c != '0'))
    };
    let mut child = Guarded::spawn(command.stdout(Stdio::null()).stderr(Stdio::null()));
    let mut before = Vec::new();
    let is_seen = wait_for("an analysis without root, or the end", || {
        let mut now = children(child.id(), "taillab");
        now.retain(is_unprivileged);
        // one that was seen once may be about to become another program
        let stays = now.iter().any(|pid| before.contains(pid));
        before = now;
        match stays {
            true => Some(true),
            false => child.try_wait().unwrap().map(|_| false),
        }
    });
    signal(child.id(), "INT");
    child.wait().unwrap();
    is_seen
}

/// Whether a process is there and not a zombie.
pub fn alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        !stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .starts_with(" Z")
    })
}

/// Asks again and again, for two minutes at most.
pub fn wait_for<T>(what: &str, ask: impl FnMut() -> Option<T>) -> T {
    wait_within(Duration::from_secs(120), what, ask)
}

/// Asks again and again, for `most` at most.
pub fn wait_within<T>(most: Duration, what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = ask() {
            return found;
        }
        assert!(began.elapsed() < most, "no sign of {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Ports of TCP and UDP at which nobody listens. While the sockets live, nobody else can take them: one
/// socket does not listen, the other is connected to another port.
pub fn unused_ports() -> [(SocketAddr, OwnedFd); 2] {
    let tcp = net::socket(net::AddressFamily::INET, net::SocketType::STREAM, None).unwrap();
    net::bind(&tcp, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let tcp_address = SocketAddr::try_from(net::getsockname(&tcp).unwrap()).unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.connect("127.0.0.1:9").unwrap();
    [(tcp_address, tcp), (udp.local_addr().unwrap(), udp.into())]
}

/// Sends a signal by name.
pub fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill")
        .args(["-s", name, &pid.to_string()])
        .status()
        .unwrap();
    assert!(sent.success(), "could not send {name} to {pid}");
}
