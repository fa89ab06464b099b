use std::os::unix::fs::symlink;

use super::*;

/// A machine of files: processes with their parents, namespaces and sockets.
struct Machine {
    folder: tempfile::TempDir,
    roots: Roots,
}

const HEAD: &str = "  sl  local_address rem_address   st\n";

impl Machine {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots::below(folder.path());
        let machine = Self { folder, roots };
        machine.file("sys/devices/system/cpu/online", "0-3\n");
        machine
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A process in namespace 100 on `cpus` with sockets of these inodes.
    fn process(&self, pid: u32, parent: u32, comm: &str, cpus: &str, sockets: &[u64]) {
        self.process_in(100, pid, parent, comm, cpus, sockets);
    }

    fn process_in(
        &self,
        namespace: u64,
        pid: u32,
        parent: u32,
        comm: &str,
        cpus: &str,
        sockets: &[u64],
    ) {
        let stat = format!(
            "{pid} ({comm}) S {parent} 1 1 0 -1 0 0 0 0 0 7 9 0 0 20 0 5 0 12345 1000 200 0 1 1 0 \
             0 0 0 0 0 0 0 0 0 17 3 0 0 0"
        );
        self.file(&format!("proc/{pid}/stat"), &stat);
        let status = format!("State:\tS\nCpus_allowed_list:\t{cpus}\n");
        self.file(&format!("proc/{pid}/status"), &status);
        self.file(&format!("proc/{pid}/task/{pid}/status"), &status);
        let process = self.roots.proc.join(pid.to_string());
        fs::create_dir_all(process.join("ns")).unwrap();
        fs::create_dir_all(process.join("fd")).unwrap();
        symlink(format!("net:[{namespace}]"), process.join("ns/net")).unwrap();
        for (number, inode) in sockets.iter().enumerate() {
            let link = process.join("fd").join((number + 3).to_string());
            symlink(format!("socket:[{inode}]"), link).unwrap();
        }
    }

    /// What the processes' network namespace shows.
    fn sockets(&self, pids: &[u32], tcp: &[(u16, u64)], udp: &[(u16, u64)]) {
        let table = |state: &str, sockets: &[(u16, u64)]| {
            let lines = sockets.iter().map(|(port, inode)| {
                format!(
                    " 0: 00000000:{port:04X} 00000000:0000 {state} 0:0 00:0 0 0 0 {inode} 1 0\n"
                )
            });
            HEAD.to_owned() + &lines.collect::<String>()
        };
        for pid in pids {
            self.file(&format!("proc/{pid}/net/tcp"), &table("0A", tcp));
            self.file(&format!("proc/{pid}/net/udp"), &table("07", udp));
        }
    }
}

fn nginx() -> Machine {
    let machine = Machine::new();
    machine.process(7, 1, "nginx", "0-7", &[1]);
    machine.process(8, 7, "nginx", "1", &[1, 5]);
    machine.process(9, 7, "nginx", "2", &[1]);
    machine.process(20, 1, "other", "0", &[]);
    machine.sockets(&[7, 8, 9, 20], &[(80, 1), (22, 9)], &[]);
    machine
}

#[test]
fn the_whole_server_is_found_from_any_of_its_processes_and_from_its_port() {
    let machine = nginx();
    for pid in [7, 8, 9] {
        let target = Target::of_process(&machine.roots, pid).unwrap();
        let endpoint = target.endpoint(None, None).unwrap();
        assert_eq!((endpoint.port, endpoint.transport), (80, Transport::Tcp));
        let server = target.server(&machine.roots, endpoint).unwrap();
        assert_eq!(server.processes, [7, 8, 9]);
        assert_eq!(server.cpus, "0-3".parse().unwrap());
        let name = format!("pid {pid} (nginx), port 80 over TCP");
        assert_eq!(server.to_string(), name);
    }
    let target = Target::of_port(&machine.roots, 80, None).unwrap();
    assert_eq!((target.pid, &target.processes[..]), (7, &[7, 8, 9][..]));
}

#[test]
fn several_ports_are_listed_and_one_can_be_chosen() {
    let machine = Machine::new();
    machine.process(7, 1, "memcached", "0", &[1, 2, 3]);
    machine.sockets(&[7], &[(11211, 1), (11212, 2)], &[(11211, 3)]);
    let target = Target::of_process(&machine.roots, 7).unwrap();
    let error = |port, transport| target.endpoint(port, transport).unwrap_err().to_string();
    assert_eq!(
        error(None, None),
        "pid 7 (memcached) listens on port 11211 over TCP, port 11211 over UDP, port 11212 over \
         TCP: choose one with --port, and with --tcp or --udp"
    );
    assert!(error(Some(11211), None).contains("--tcp or --udp"));
    assert!(
        error(Some(11212), Some(Transport::Udp)).contains("does not listen on port 11212 over UDP")
    );
    let udp = target.endpoint(None, Some(Transport::Udp)).unwrap();
    assert_eq!(udp.port, 11211);
}

#[test]
fn a_datagram_socket_of_a_client_is_no_server() {
    let machine = Machine::new();
    machine.process(7, 1, "go", "0", &[1, 2]);
    machine.sockets(&[7], &[(8080, 1)], &[(40_000, 2)]);
    let target = Target::of_process(&machine.roots, 7).unwrap();
    assert_eq!(target.endpoint(None, None).unwrap().port, 8080);
    // asked for by its transport, it is found
    let udp = target.endpoint(None, Some(Transport::Udp)).unwrap();
    assert_eq!(udp.port, 40_000);
    // also where it has sockets of clients over the same transport
    let machine = Machine::new();
    machine.process(7, 1, "dns", "0", &[1, 2, 3]);
    machine.sockets(&[7], &[], &[(53, 1), (40_000, 2), (41_000, 3)]);
    let target = Target::of_process(&machine.roots, 7).unwrap();
    let udp = target.endpoint(None, Some(Transport::Udp)).unwrap();
    assert_eq!(udp.port, 53);
    // it counts where there is a TCP port of the same number, or no other socket at all
    let machine = Machine::new();
    machine.process(7, 1, "memcached", "0", &[1, 2]);
    machine.sockets(&[7], &[(40_000, 1)], &[(40_000, 2)]);
    let target = Target::of_process(&machine.roots, 7).unwrap();
    let error = target.endpoint(None, None).unwrap_err();
    assert!(
        matches!(error, TargetError::BothTransports { .. }),
        "{error}"
    );
    let machine = Machine::new();
    machine.process(7, 1, "echo", "0", &[2]);
    machine.sockets(&[7], &[], &[(40_000, 2)]);
    let target = Target::of_process(&machine.roots, 7).unwrap();
    assert_eq!(target.endpoint(None, None).unwrap().port, 40_000);
}

#[test]
fn a_server_that_connects_a_socket_to_each_client_is_known_by_it() {
    let machine = Machine::new();
    machine.process(7, 1, "quic", "0", &[1, 2, 3]);
    machine.sockets(&[7], &[], &[(4433, 1), (53, 3)]);
    let connected = |port| {
        let target = Target::of_port(&machine.roots, port, None).unwrap();
        let endpoint = target.endpoint(Some(port), None).unwrap();
        let server = target.server(&machine.roots, endpoint).unwrap();
        server.has_connected_datagrams
    };
    assert!(!connected(4433));
    let waiting = fs::read_to_string(machine.roots.proc.join("7/net/udp")).unwrap();
    let own = " 0: 0100007F:1151 0100007F:ABCD 01 0:0 00:0 0 0 0 2 1 0\n";
    let clients = " 0: 0100007F:ABCD 0100007F:0035 01 0:0 00:0 0 0 0 4 1 0\n";
    machine.file("proc/7/net/udp", &(waiting + own + clients));
    assert!(connected(4433));
    assert!(!connected(53));
}

#[test]
fn what_cannot_be_watched_is_refused_with_its_reason() {
    let machine = nginx();
    let of_process = |pid| Target::of_process(&machine.roots, pid).unwrap_err();
    assert_eq!(of_process(99), TargetError::NoProcess { pid: 99 });
    assert!(matches!(of_process(20), TargetError::NoPort { .. }));
    machine.file(
        "proc/20/net/unix",
        "Num RefCount Protocol Flags Type St Inode Path\n\
         0: 2 0 00010000 0001 01 44 /run/x.sock\n0: 3 0 0 0001 03 45 /run/x.sock\n",
    );
    symlink("socket:[44]", machine.roots.proc.join("20/fd/3")).unwrap();
    let error = of_process(20).to_string();
    assert!(
        error.contains("/run/x.sock") && error.contains("no packets"),
        "{error}"
    );
    machine.process_in(100, 30, 1, "kworker", "0", &[]);
    let stat = fs::read_to_string(machine.roots.proc.join("30/stat")).unwrap();
    // PF_KTHREAD
    machine.file("proc/30/stat", &stat.replacen(" -1 0 ", " -1 2097152 ", 1));
    assert!(matches!(of_process(30), TargetError::KernelThread { .. }));
    let of_port = |port, transport| Target::of_port(&machine.roots, port, transport).unwrap_err();
    assert!(matches!(
        of_port(81, None),
        TargetError::NobodyListens { .. }
    ));
    assert!(matches!(
        of_port(80, Some(Transport::Udp)),
        TargetError::NobodyListens { .. }
    ));
    // port 22's socket is in no process that can be looked at
    let error = of_port(22, None);
    assert!(
        matches!(error, TargetError::UnknownListener { .. }),
        "{error}"
    );
    let error = crate::HostError::from(error);
    assert_eq!(error.kind(), crate::ErrorKind::Unsupported);
    let error = Target::of_cgroup(&machine.roots, Path::new("/nobody")).unwrap_err();
    assert!(matches!(error, TargetError::NoCgroup { .. }));
}

#[test]
fn one_port_in_two_namespaces_must_be_chosen_by_process() {
    let machine = Machine::new();
    machine.process(7, 1, "nginx", "0", &[1]);
    machine.process_in(200, 8, 1, "caddy", "0", &[2]);
    machine.sockets(&[7], &[(80, 1)], &[]);
    machine.sockets(&[8], &[(80, 2)], &[]);
    let error = Target::of_port(&machine.roots, 80, None)
        .unwrap_err()
        .to_string();
    let both = "nginx (pid 7) at all addresses (0.0.0.0), caddy (pid 8) at all addresses (0.0.0.0)";
    assert!(error.contains(both), "{error}");
    let target = Target::of_process(&machine.roots, 8).unwrap();
    let server = target.server(&machine.roots, target.endpoint(None, None).unwrap());
    let server = server.unwrap();
    assert_eq!((server.namespace, server.processes), (200, vec![8]));
}

#[test]
fn servers_on_one_port_at_different_addresses_are_not_one() {
    let machine = Machine::new();
    machine.process(7, 1, "resolver", "0", &[1, 2]);
    machine.process(8, 1, "dns", "1", &[3]);
    // 127.0.0.1 and 127.0.0.2 for one, 10.0.0.1 for the other
    let line = |address: &str, inode: u64| {
        format!(" 0: {address}:0035 00000000:0000 0A 0:0 00:0 0 0 0 {inode} 1 0\n")
    };
    let lines = [("0100007F", 1), ("0200007F", 2), ("0100000A", 3)];
    let lines: String = lines.iter().map(|(at, inode)| line(at, *inode)).collect();
    for pid in [7, 8] {
        machine.file(&format!("proc/{pid}/net/tcp"), &(HEAD.to_owned() + &lines));
    }
    let error = Target::of_port(&machine.roots, 53, None).unwrap_err();
    let said = error.to_string();
    let both = "(resolver (pid 7) at 127.0.0.1 and 127.0.0.2, dns (pid 8) at 10.0.0.1): choose";
    assert!(said.contains(both), "{said}");
    let of_process = |pid| {
        let target = Target::of_process(&machine.roots, pid).unwrap();
        let endpoint = target.endpoint(None, None).unwrap();
        target.server(&machine.roots, endpoint).unwrap()
    };
    let own = [IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2])];
    let other = [IpAddr::from([10, 0, 0, 1])];
    let resolver = of_process(7);
    assert_eq!(resolver.processes, [7]);
    assert_eq!(resolver.endpoint.addresses, own);
    assert_eq!(resolver.taken_addresses, other);
    let dns = of_process(8);
    assert_eq!(dns.processes, [8]);
    assert_eq!(dns.taken_addresses, own);
}

#[test]
fn who_hands_sockets_to_services_is_not_one_of_them() {
    let machine = Machine::new();
    machine.process(1, 0, "systemd", "0-3", &[1]);
    machine.process(9, 1, "sshd", "1", &[1]);
    machine.sockets(&[1, 9], &[(22, 1)], &[]);
    let target = Target::of_port(&machine.roots, 22, None).unwrap();
    assert_eq!((target.pid, target.processes), (9, vec![9]));
}

#[test]
fn a_control_group_is_its_processes() {
    let machine = nginx();
    machine.file("sys/fs/cgroup/web/cgroup.procs", "8\n9\n20\n");
    machine.file("sys/fs/cgroup/web/cgroup.controllers", "");
    let target = Target::of_cgroup(&machine.roots, Path::new("web")).unwrap();
    assert_eq!(target.processes, [8, 9, 20]);
    assert_eq!(target.name, "control group web");
    let endpoint = target.endpoint(None, None).unwrap();
    let server = target.server(&machine.roots, endpoint).unwrap();
    // the master shares the socket
    assert_eq!(server.processes, [7, 8, 9, 20]);
}

#[test]
fn what_a_process_of_a_control_group_has_started_in_another_one_is_not_its_server() {
    let machine = Machine::new();
    machine.process(7, 1, "shim", "0", &[]);
    machine.process(8, 7, "nginx", "0", &[1]);
    machine.sockets(&[7, 8], &[(80, 1)], &[]);
    machine.file("sys/fs/cgroup/shims/cgroup.procs", "7\n");
    let error = Target::of_cgroup(&machine.roots, Path::new("shims")).unwrap_err();
    let is_meant = matches!(error, TargetError::NoPort { pid: 7, .. });
    assert!(is_meant, "{error}");
}

#[test]
fn a_process_that_has_ended_does_not_hide_that_another_cannot_be_seen() {
    let machine = Machine::new();
    machine.file("proc/7/fd", "no folder\n");
    let error = all_held(&machine.roots, &[7, 8]).unwrap_err();
    assert_ne!(error.kind(), io::ErrorKind::NotFound, "{error}");
}

#[test]
fn a_process_that_is_ending_is_not_said_to_be_protected() {
    let machine = nginx();
    let of_process = || Target::of_process(&machine.roots, 20).unwrap_err();
    // the kernel has no namespace to show any more
    fs::remove_file(machine.roots.proc.join("20/ns/net")).unwrap();
    assert!(matches!(of_process(), TargetError::NotPermitted { .. }));
    let stat = fs::read_to_string(machine.roots.proc.join("20/stat")).unwrap();
    // PF_EXITING
    machine.file("proc/20/stat", &stat.replacen(" -1 0 ", " -1 4 ", 1));
    assert_eq!(of_process(), TargetError::NoProcess { pid: 20 });
}

#[test]
fn this_process_is_found_by_its_own_port() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let roots = Roots::default();
    let own = std::process::id();
    let target = Target::of_port(&roots, port, Some(Transport::Tcp)).unwrap();
    assert!(target.processes.contains(&own));
    let endpoint = target.endpoint(Some(port), None).unwrap();
    assert_eq!(endpoint.addresses, [IpAddr::from([127, 0, 0, 1])]);
    let server = target.server(&roots, endpoint).unwrap();
    assert!(!server.cpus.is_empty());
    ensure_first_pid_namespace(&roots).unwrap();
}

#[test]
fn the_whole_server_is_meant_by_any_of_its_processes() {
    let machine = nginx();
    // a worker may have the lowest number, and a helper no socket at all
    machine.process(3, 7, "nginx", "3", &[1]);
    machine.process(10, 7, "nginx", "3", &[]);
    machine.sockets(&[3, 10], &[(80, 1), (22, 9)], &[]);
    for pid in [3, 7, 8, 9] {
        let whole = whole_server(&machine.roots, pid).unwrap();
        assert_eq!(whole, [3, 7, 8, 9, 10], "{pid}");
        ensure_one_server(&machine.roots, pid, &[3, 8, 9]).unwrap();
    }
    // it waits for nobody: nothing says where else it belongs
    assert_eq!(whole_server(&machine.roots, 10).unwrap(), [10]);
    assert!(whole_server(&machine.roots, 99).unwrap().is_empty());
    let error = ensure_one_server(&machine.roots, 8, &[8, 9, 20, 99]).unwrap_err();
    let said = error.to_string();
    assert!(
        said.starts_with("nginx (pid 8), other (pid 20) share"),
        "{said}"
    );
}

#[test]
fn processes_that_share_a_port_by_sockets_of_their_own_are_one_server_if_they_run_one_program() {
    let machine = Machine::new();
    machine.process(7, 1, "echo", "0", &[1]);
    machine.process(8, 7, "helper", "0", &[]);
    machine.process(20, 1, "echo", "1", &[2]);
    machine.process(30, 1, "sshd", "1", &[3]);
    machine.sockets(&[7, 8, 20, 30], &[(80, 1), (80, 2), (22, 3)], &[]);
    for pid in [7, 20] {
        assert_eq!(whole_server(&machine.roots, pid).unwrap(), [7, 8, 20]);
    }
    assert_eq!(whole_server(&machine.roots, 30).unwrap(), [30]);
    // the names are equal, and the programs are not
    symlink("/usr/bin/echo", machine.roots.proc.join("7/exe")).unwrap();
    symlink("/usr/bin/other", machine.roots.proc.join("20/exe")).unwrap();
    let said = whole_server(&machine.roots, 7).unwrap_err().to_string();
    assert!(
        said.starts_with("echo (pid 7), echo (pid 20) share a port") && said.contains("-p PID"),
        "{said}"
    );
}

#[test]
fn a_process_that_has_the_port_by_a_socket_of_its_own_is_another_server_unless_the_port_is_asked_for()
 {
    let machine = Machine::new();
    machine.process(7, 1, "echo", "0", &[1]);
    machine.process(8, 7, "helper", "0", &[]);
    machine.process(20, 1, "echo", "1", &[2]);
    machine.process(21, 20, "echo", "1", &[2]);
    machine.sockets(&[7, 8, 20, 21], &[(80, 1), (80, 2)], &[]);
    let server_of = |target: Target| {
        let endpoint = target.endpoint(None, None).unwrap();
        let server = target.server(&machine.roots, endpoint).unwrap();
        (server.processes, server.others)
    };
    let by_pid = |pid| server_of(Target::of_process(&machine.roots, pid).unwrap());
    assert_eq!(by_pid(7), (vec![7, 8], vec![20, 21]));
    assert_eq!(by_pid(20), (vec![20, 21], vec![7, 8]));
    // a worker means its server
    assert_eq!(by_pid(21), (vec![20, 21], vec![7, 8]));
    let all = server_of(Target::of_port(&machine.roots, 80, None).unwrap());
    assert_eq!(all, (vec![7, 20, 21], vec![]));
}

#[test]
fn a_supervisor_that_passes_a_socket_on_is_none_of_the_server() {
    let machine = Machine::new();
    machine.process(5, 1, "supervisord", "0", &[1]);
    machine.process(7, 5, "php-fpm", "0", &[1]);
    machine.process(8, 7, "php-fpm", "0", &[1]);
    machine.process(9, 5, "cron", "0", &[]);
    machine.sockets(&[5, 7, 8, 9], &[(9000, 1)], &[]);
    assert_eq!(whole_server(&machine.roots, 8).unwrap(), [7, 8]);
    // unless it is named
    assert_eq!(whole_server(&machine.roots, 5).unwrap(), [5, 7, 8, 9]);
}

/// nginx has accepted two connections on port 80, and has opened three to memcached and one to a machine
/// elsewhere; one to itself does not count.
#[test]
fn the_servers_that_a_server_asks_are_found() {
    let machine = nginx();
    machine.process(30, 1, "memcached", "0", &[41, 42, 43, 44]);
    let line = |(own, port): (&str, u16),
                (peer, peer_port): (&str, u16),
                state: &str,
                inode: u64| {
        format!(" 0: {own}:{port:04X} {peer}:{peer_port:04X} {state} 0:0 00:0 0 0 0 {inode} 1 0\n")
    };
    let (any, here, far) = ("00000000", "0100007F", "0501A8C0");
    let mut table = HEAD.to_owned();
    table += &line((any, 80), (any, 0), "0A", 1);
    // accepted
    table += &line((here, 80), (here, 50_000), "01", 5);
    let mut held = vec![1, 5];
    for n in 0..3 {
        let port = 40_000 + n;
        let (inode, other) = (31 + u64::from(n), 41 + u64::from(n));
        table += &line((here, port), (here, 11_211), "01", inode);
        table += &line((here, 11_211), (here, port), "01", other);
        held.push(inode);
    }
    table += &line((here, 41_000), (far, 5_432), "02", 60);
    table += &line((here, 41_001), (here, 80), "01", 61);
    table += &line((here, 80), (here, 41_001), "01", 62);
    // closed, and no longer of any process
    table += &line((here, 41_002), (far, 6_379), "06", 0);
    // another program waits here
    table += &line((any, 11_212), (any, 0), "0A", 44);
    held.extend([60, 61, 62]);
    machine.file("proc/8/net/tcp", &table);
    for (number, inode) in held.iter().enumerate() {
        let link = machine
            .roots
            .proc
            .join("8/fd")
            .join((number + 20).to_string());
        symlink(format!("socket:[{inode}]"), link).unwrap();
    }
    let found = upstreams(&machine.roots, &[8, 7, 9]);
    let told: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(told, ["127.0.0.1:11211 (memcached)", "192.168.1.5:5432"]);
    assert_eq!(found[0].connections, 3);
    assert_eq!(upstreams(&machine.roots, &[20]), []);
    let server = Target::of_process(&machine.roots, 8).unwrap();
    let endpoint = server.endpoint(Some(80), None).unwrap();
    let server = server.server(&machine.roots, endpoint).unwrap();
    assert!(server.served_ports.is_empty(), "{:?}", server.served_ports);

    // those that it was seen to ask have numbers, also where no connection was found
    let asked = [
        (2, "127.0.0.1:11211"),
        (1, "10.9.8.7:443"),
        (3, "127.0.0.1:11212"),
    ];
    let asked = asked.map(|(number, address)| (number, address.parse().unwrap()));
    let mut known = found;
    add_asked(&mut known, &machine.roots, &[8, 7, 9], &asked);
    let told: Vec<(String, u16)> = (known.iter())
        .map(|server| (server.to_string(), server.number))
        .collect();
    let wanted = [
        ("127.0.0.1:11211 (memcached)", 2),
        ("192.168.1.5:5432", 0),
        ("10.9.8.7:443", 1),
        ("127.0.0.1:11212 (memcached)", 3),
    ];
    assert_eq!(told, wanted.map(|(name, number)| (name.to_owned(), number)));
}
