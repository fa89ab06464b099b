//! Live tests of the server process: it runs where it is placed, says why it ended, and
//! never outlives its spawner.

use std::ffi::OsString;
use std::fs;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use crate::common::{
    Helper, Orphan, argument, eventually, is_gone, is_helper, live, tell, wait_for_death,
};
use taillab_host::server::{ServerError, ensure_tcp_port_free, ensure_udp_port_free};
use taillab_host::target::{StartedCommand, comm};
use taillab_host::{
    CpuSet, Invoker, NetNamespace, PrivateFolder, Roots, ServerProcess, ServerSpec, User, cpus,
    programs,
};

const PATIENCE: Duration = Duration::from_secs(30);

fn spec<'a>(program: &str, args: &[&str]) -> ServerSpec<'a> {
    ServerSpec {
        name: program.into(),
        program: program.into(),
        args: args.iter().map(OsString::from).collect(),
        env: Vec::new(),
        namespace: None,
        cpus: CpuSet::single(cpus::allowed().unwrap().first().unwrap()),
        user: None,
        folder: None,
        open_files: 0,
    }
}

/// The value of a line of /proc/PID/status.
fn status(pid: u32, name: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{name}:")));
    value
        .unwrap()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn a_command_runs_with_the_groups_of_its_user() {
    if !live("a_command_runs_with_the_groups_of_its_user") {
        return;
    }
    let words: [OsString; 2] = ["sleep".into(), "600".into()];
    let nobody = Invoker::nobody();
    let uid = nobody.uid();
    let command = StartedCommand::start(&words, Some(nobody), None).unwrap();
    let group = fs::read_to_string("/proc/sys/kernel/overflowgid").unwrap();
    let group = group.trim();
    for (name, ids) in [("Uid", uid.to_string()), ("Gid", group.to_owned())] {
        assert_eq!(status(command.pid(), name), [ids.as_str(); 4].join(" "));
    }
    assert_eq!(status(command.pid(), "Groups"), group);
    command.end(PATIENCE);
}

/// Where the kernel divides the CPUs among sessions, the server's threads would otherwise count as those of its generator.
#[test]
fn it_has_a_session_and_an_autogroup_of_its_own() {
    if !live("it_has_a_session_and_an_autogroup_of_its_own") {
        return;
    }
    let server = ServerProcess::spawn(&spec("sleep", &["600"])).unwrap();
    let session = |process: &str| {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        // state, parent, process group, session (proc_pid_stat(5))
        fields.split(' ').nth(3).unwrap().to_owned()
    };
    let pid = server.pid().to_string();
    assert_eq!(session(&pid), pid);
    assert_ne!(session("self"), pid);
    let autogroup = |process: &str| fs::read_to_string(format!("/proc/{process}/autogroup"));
    if let Ok(ours) = autogroup("self") {
        assert_ne!(autogroup(&pid).unwrap(), ours);
    }
    server.shutdown(PATIENCE).unwrap();
}

#[test]
fn it_runs_where_and_as_whom_it_was_told() {
    if !live("it_runs_where_and_as_whom_it_was_told") {
        return;
    }
    let namespace = NetNamespace::new().unwrap();
    let user = User::find(&Roots::default(), "nobody").unwrap();
    let cpu = cpus::allowed().unwrap().iter().last().unwrap();
    let server = ServerProcess::spawn(&ServerSpec {
        env: vec![("TAILLAB_TEST".into(), "here".into())],
        namespace: Some(&namespace),
        cpus: CpuSet::single(cpu),
        user: Some(user.clone()),
        ..spec("sleep", &["600"])
    })
    .unwrap();
    let pid = server.pid();
    // the kernel shows it at the end of exec, a moment after it has told us that it succeeds: until then the
    // process has the right by which its program is opened
    let environment = || fs::read_to_string(format!("/proc/{pid}/environ")).unwrap();
    eventually("its environment", || {
        let environment = environment();
        let mut variables = environment.split('\0');
        variables.any(|variable| variable == "TAILLAB_TEST=here")
    });
    let (uid, gid) = (user.uid, user.gid);
    assert_eq!(status(pid, "Uid"), format!("{uid} {uid} {uid} {uid}"));
    assert_eq!(status(pid, "Gid"), format!("{gid} {gid} {gid} {gid}"));
    assert_eq!(status(pid, "Groups"), "");
    assert_eq!(status(pid, "CapEff"), "0000000000000000");
    assert_eq!(status(pid, "Cpus_allowed_list"), cpu.to_string());
    let link = fs::read_link(format!("/proc/{pid}/ns/net")).unwrap();
    assert_eq!(
        link.to_str().unwrap(),
        format!("net:[{}]", namespace.inode())
    );
    assert_eq!(server.threads(), [pid]);
    // and nothing of ours that it does not need
    let environment = environment();
    for own in ["HOME=/", "USER=nobody"] {
        assert!(
            environment.split('\0').any(|one| one == own),
            "{environment}"
        );
    }
    let mut names = environment
        .split('\0')
        .map(|one| one.split('=').next().unwrap());
    let may_be_there = |name: &str| {
        let known = "PATH LANG LANGUAGE TZ TERM HOME USER LOGNAME TAILLAB_TEST";
        name.is_empty() || name.starts_with("LC_") || known.split(' ').any(|one| one == name)
    };
    assert!(names.all(may_be_there), "{environment}");
    assert_eq!(server.processes(), [pid]);
    // It has no handler for SIGTERM, which the first process of a pid namespace then
    // does not get.
    let exit = server.shutdown(PATIENCE).unwrap();
    assert_eq!(exit.status.signal(), Some(9));
    assert!(is_gone(pid));
}

/// A clone, and what is built in it, often lies in a home that only its owner may enter.
#[test]
fn a_program_in_a_closed_folder_runs_as_its_user() {
    if !live("a_program_in_a_closed_folder_runs_as_its_user") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let own = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        // as with a umask of 077
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let user = User::find(&Roots::default(), "nobody").unwrap();
    let spawn = |program: &str| {
        ServerProcess::spawn(&ServerSpec {
            user: Some(user.clone()),
            ..spec(program, &["600"])
        })
        .unwrap()
    };
    let sleep = programs::find("sleep".as_ref()).unwrap();
    let server = spawn(&own("sleep", &fs::read(sleep).unwrap()));
    // exec has told its result a moment before it has the new name and rights
    eventually("it sleeps", || {
        status(server.pid(), "State") == "S (sleeping)"
    });
    assert_eq!(comm(&Roots::default(), server.pid()), "sleep");
    assert_eq!(
        status(server.pid(), "Uid"),
        [user.uid; 4].map(|uid| uid.to_string()).join(" ")
    );
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(status(server.pid(), set), "0000000000000000", "{set}");
    }
    drop(server);
    // a shell opens its script by itself, without root's rights
    let mut server = spawn(&own("script", b"#!/bin/sh\nexec sleep 600\n"));
    let error = server
        .wait_ready(PATIENCE, || false)
        .unwrap_err()
        .to_string();
    assert!(error.contains("script exited with status"), "{error}");
    assert!(error.contains("(--server-user)"), "{error}");
}

#[test]
fn the_server_dies_with_its_spawner() {
    let name = "server::the_server_dies_with_its_spawner";
    if is_helper() {
        let user = User::find(&Roots::default(), "nobody").unwrap();
        let namespace = NetNamespace::new().unwrap();
        let server = ServerProcess::spawn(&ServerSpec {
            namespace: Some(&namespace),
            user: (argument() == "nobody").then_some(user),
            ..spec("sleep", &["600"])
        })
        .unwrap();
        tell(server.pid());
        wait_for_death();
    }
    if !live(name) {
        return;
    }
    for user in ["nobody", "root"] {
        let mut helper = Helper::start(name, user);
        let server = Orphan(helper.hear().parse().unwrap());
        assert!(!is_gone(server.0));
        helper.kill();
        eventually("the server is gone", || is_gone(server.0));
    }
}

/// A server with a worker process of its own, which would survive it, and a grandchild whose
/// parent has ended.
const WITH_WORKERS: [&str; 2] = [
    "-c",
    "trap 'exit 3' TERM; sleep 600 & (setsid sleep 600 &) ; echo started; wait",
];

fn with_workers() -> (ServerProcess, Vec<u32>) {
    let server = ServerProcess::spawn(&spec("sh", &WITH_WORKERS)).unwrap();
    // without the shell that starts the second one
    let sleeps = |pid: &&u32| comm(&Roots::default(), **pid) == "sleep";
    eventually("its workers are there", || {
        let processes = server.processes();
        processes.len() == 3 && processes.iter().filter(sleeps).count() == 2
    });
    let processes = server.processes();
    assert!(processes.contains(&server.pid()));
    (server, processes)
}

#[test]
fn the_workers_die_with_the_spawner() {
    let name = "server::the_workers_die_with_the_spawner";
    if is_helper() {
        let (server, processes) = with_workers();
        let words: Vec<String> = processes.iter().map(u32::to_string).collect();
        tell(words.join(" "));
        wait_for_death_with(server);
    }
    if !live(name) {
        return;
    }
    let mut helper = Helper::start(name, "");
    let told = helper.hear();
    let all: Vec<Orphan> = told
        .split(' ')
        .map(|pid| Orphan(pid.parse().unwrap()))
        .collect();
    assert_eq!(all.len(), 3);
    helper.kill();
    eventually("all are gone", || all.iter().all(|one| is_gone(one.0)));
}

/// Keeps the server until the helper is killed.
fn wait_for_death_with(server: ServerProcess) -> ! {
    let _server = server;
    wait_for_death()
}

#[test]
fn the_workers_die_with_the_first_process() {
    if !live("the_workers_die_with_the_first_process") {
        return;
    }
    for how in ["shutdown", "drop", "death"] {
        let (mut server, processes) = with_workers();
        match how {
            "shutdown" => {
                let exit = server.shutdown(PATIENCE).unwrap();
                assert_eq!(exit.status.code(), Some(3), "its own handler");
            }
            "drop" => drop(server),
            _ => {
                let first = rustix::process::Pid::from_raw(server.pid() as i32).unwrap();
                rustix::process::kill_process(first, rustix::process::Signal::KILL).unwrap();
                eventually("it is dead", || server.try_exit().unwrap().is_some());
                assert_eq!(server.processes(), [0; 0]);
            }
        }
        assert!(processes.iter().all(|pid| is_gone(*pid)), "{how}");
    }
}

#[test]
fn its_files_are_its_own_and_go_with_it() {
    if !live("its_files_are_its_own_and_go_with_it") {
        return;
    }
    let mounts = || fs::read_to_string("/proc/self/mounts").unwrap();
    let before = mounts();
    let user = User::find(&Roots::default(), "nobody").unwrap();
    let files = PrivateFolder::new(1 << 20).unwrap();
    files.write("greeting", b"found it").unwrap();
    files.make_folder("scratch", &user).unwrap();
    let script = "cat greeting >scratch/own && ! echo 1 2>/dev/null >greeting && exec sleep 600";
    let server = ServerProcess::spawn(&ServerSpec {
        user: Some(user),
        folder: Some(&files),
        ..spec("sh", &["-c", script])
    })
    .unwrap();
    eventually("it has read its file and written its own", || {
        fs::read(files.path().join("scratch/own")).is_ok_and(|own| own == b"found it")
    });
    eventually("it could not write what is not its own", || {
        comm(&Roots::default(), server.pid()) == "sleep"
    });
    assert_eq!(mounts(), before);
    // More than its size does not fit.
    let error = files.write("flood", &[0; 2 << 20]).unwrap_err().to_string();
    assert!(
        error.contains("flood") && error.contains("memory"),
        "{error}"
    );
    drop(server);
}

#[test]
fn it_may_open_as_many_descriptors_as_it_needs() {
    if !live("it_may_open_as_many_descriptors_as_it_needs") {
        return;
    }
    let user = User::find(&Roots::default(), "nobody").unwrap();
    let mut server = ServerProcess::spawn(&ServerSpec {
        user: Some(user),
        open_files: 20_000,
        ..spec("sh", &["-c", "ulimit -Sn"])
    })
    .unwrap();
    eventually("it ends", || server.try_exit().unwrap().is_some());
    let exit = server.try_exit().unwrap().unwrap();
    let limit: u64 = exit.last_lines.unwrap().parse().unwrap();
    assert!(limit >= 20_000, "{limit}");
}

#[test]
fn dropping_it_ends_it() {
    let server = ServerProcess::spawn(&spec("sleep", &["600"])).unwrap();
    let pid = server.pid();
    assert!(!is_gone(pid));
    drop(server);
    assert!(is_gone(pid));
}

#[test]
fn one_that_ignores_the_request_is_killed() {
    let args = ["-c", "trap '' TERM; exec sleep 600"];
    let mut server = ServerProcess::spawn(&spec("sh", &args)).unwrap();
    eventually("it is deaf", || {
        comm(&Roots::default(), server.pid()) == "sleep"
    });
    assert_eq!(server.try_exit().unwrap(), None);
    let pid = server.pid();
    let exit = server.shutdown(Duration::from_millis(100)).unwrap();
    assert_eq!(exit.status.signal(), Some(9));
    assert!(
        exit.to_string()
            .starts_with("sh was killed by signal 9 (SIGKILL)"),
        "{exit}"
    );
    assert!(is_gone(pid));
}

#[test]
fn one_that_ends_at_once_says_why() {
    let args = [
        "-c",
        "echo starting; echo 'bad: Address already in use' >&2; exit 71",
    ];
    let mut server = ServerProcess::spawn(&spec("sh", &args)).unwrap();
    let error = server.wait_ready(PATIENCE, || false).unwrap_err();
    assert!(matches!(error, ServerError::Exited(_)));
    assert_eq!(
        error.to_string(),
        "sh exited with status 71: starting | bad: Address already in use; stop the process that holds the \
         port (ss -lntup shows it) or choose another port"
    );
    // asked again, it gives the same answer
    assert_eq!(server.try_exit().unwrap().unwrap().status.code(), Some(71));
    assert_eq!(server.threads(), [0; 0]);
}

#[test]
fn one_that_never_answers_is_given_up() {
    let args = ["-c", "echo still thinking; exec sleep 600"];
    let mut server = ServerProcess::spawn(&spec("sh", &args)).unwrap();
    eventually("what it says is quoted", || {
        let answered = server.wait_ready(Duration::from_millis(50), || false);
        let error = answered.unwrap_err().to_string();
        assert!(error.contains("sh did not answer"), "{error}");
        error.ends_with("it last wrote: still thinking")
    });
    let mut calls = 0;
    server
        .wait_ready(PATIENCE, || {
            calls += 1;
            calls == 3
        })
        .unwrap();
    assert_eq!(calls, 3);
}

#[test]
fn a_talkative_server_is_not_held_up() {
    // far more than a pipe holds, and it ends by itself only when all is written
    let args = [
        "-c",
        "head -c 3000000 /dev/zero | tr '\\0' x; echo; echo done",
    ];
    let mut server = ServerProcess::spawn(&spec("sh", &args)).unwrap();
    eventually("it ends", || server.try_exit().unwrap().is_some());
    let exit = server.try_exit().unwrap().unwrap();
    assert!(exit.status.success());
    assert_eq!(exit.last_lines.as_deref(), Some("done"));
}

#[test]
fn what_prevents_the_start_is_named() {
    let error = ServerProcess::spawn(&spec("no-such-server", &[]))
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "no-such-server is not installed: install it, or give its path"
    );
    let nowhere = ServerSpec {
        cpus: CpuSet::single(cpus::MAX_CPUS - 1),
        ..spec("sleep", &["600"])
    };
    let error = ServerProcess::spawn(&nowhere).unwrap_err().to_string();
    assert!(
        error.starts_with("cannot start sleep: cannot bind to its CPUs: "),
        "{error}"
    );
}

#[test]
fn a_taken_port_is_found_before_the_server_starts() {
    // with a number that nobody has over TCP
    let socket = std::iter::repeat_with(|| UdpSocket::bind("127.0.0.1:0").unwrap())
        .find(|socket| TcpListener::bind(socket.local_addr().unwrap()).is_ok())
        .unwrap();
    let address: SocketAddr = socket.local_addr().unwrap();
    let error = ensure_udp_port_free(address).unwrap_err().to_string();
    assert!(
        error.contains(&format!("UDP port {}", address.port())),
        "{error}"
    );
    assert!(error.contains("is taken"), "{error}");
    // The other transport has ports of its own.
    ensure_tcp_port_free(address).unwrap();
    drop(socket);
    ensure_udp_port_free(address).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let error = ensure_tcp_port_free(address).unwrap_err().to_string();
    assert!(
        error.contains(&format!("TCP port {}", address.port())) && error.contains("is taken"),
        "{error}"
    );
}

/// The real server: on a taken port it says so itself, and the line names the remedy.
#[test]
fn memcached_on_a_taken_port_says_so() {
    let name = "memcached_on_a_taken_port_says_so";
    if !live(name) {
        return;
    }
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port().to_string();
    let user = User::find(&Roots::default(), "nobody").unwrap();
    let args = ["-l", "127.0.0.1", "-U", &port, "-p", "0", "-t", "1"];
    let mut server = ServerProcess::spawn(&ServerSpec {
        user: Some(user),
        ..spec("memcached", &args)
    })
    .unwrap();
    let error = server
        .wait_ready(PATIENCE, || false)
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("memcached exited with status"), "{error}");
    assert!(error.contains("choose another port"), "{error}");
}
