//! What root is and is not used for: results, other users' directories, CPUs of another run.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use crate::support::{
    Guarded, SHORT, free_port, in_mid_run, is_built_in, live, reachable, signal, taillab, wait_for,
};

/// An unprivileged user, in the role of the one who called sudo.
const USER: u32 = 65534;

/// `taillab ARGS` as sudo starts it for [`USER`].
fn under_sudo(args: &[&str]) -> Output {
    taillab()
        .env("SUDO_UID", USER.to_string())
        .env("SUDO_GID", USER.to_string())
        .args(args)
        .output()
        .unwrap()
}

/// `taillab explain` of a golden recording into `dir`, as sudo starts it for [`USER`].
fn explain_under_sudo(dir: &Path) -> Output {
    let golden = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../analysis/tests/golden/memcached_90_percent.tlc"
    );
    under_sudo(&["explain", golden, "-q", "-o", dir.to_str().unwrap()])
}

fn folder(place: &Path, owner: u32) -> PathBuf {
    let dir = place.join(format!("of-{owner}"));
    fs::create_dir(&dir).unwrap();
    chown(&dir, Some(owner), Some(owner)).unwrap();
    dir
}

#[test]
fn a_directory_of_root_is_not_given_away() {
    if !live("a_directory_of_root_is_not_given_away") {
        return;
    }
    let place = reachable();
    let dir = folder(place.path(), 0);
    let output = explain_under_sudo(&dir);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("with the rights of user 65534"), "{stderr}");
    assert_eq!(fs::metadata(&dir).unwrap().uid(), 0);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
}

#[test]
fn links_in_the_users_directory_lead_root_nowhere() {
    if !live("links_in_the_users_directory_lead_root_nowhere") {
        return;
    }
    let place = reachable();
    let dir = folder(place.path(), USER);
    let files = ["report.html", "summary.json", "requests.parquet"];
    let with_temporary: Vec<&str> = files.into_iter().chain([".report.html.tmp"]).collect();
    let victim = plant(place.path(), &dir, &with_temporary);
    let output = explain_under_sudo(&dir);
    assert_replaced(&victim, &dir, &files, &output);
}

/// Links to a file of root in a user's directory, and that file.
fn plant(place: &Path, dir: &Path, names: &[&str]) -> PathBuf {
    let victim = place.join("victim");
    fs::write(&victim, "precious").unwrap();
    for name in names {
        symlink(&victim, dir.join(name)).unwrap();
    }
    victim
}

/// Checks that files of the user have replaced the links, and that root's file is unchanged.
fn assert_replaced(victim: &Path, dir: &Path, names: &[&str], output: &Output) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(fs::read(victim).unwrap(), b"precious");
    for name in names {
        let meta = fs::symlink_metadata(dir.join(name)).unwrap();
        assert!(meta.is_file(), "{name} is still a link: {stderr}");
        assert_eq!(meta.uid(), USER, "{name}");
    }
}

#[test]
fn links_lead_noise_and_the_budget_nowhere() {
    if !live("links_lead_noise_and_the_budget_nowhere") {
        return;
    }
    for (args, files) in [
        (
            &["noise", "-q", "-d", "50ms", "--no-causes", "-o"][..],
            ["noise.json", "noise.html"],
        ),
        (
            &["budget", "-q", "-d", "20ms", "--draws", "10000", "-o"],
            ["budget.json", "budget.html"],
        ),
    ] {
        if !is_built_in(args[0]) {
            continue;
        }
        let place = reachable();
        let dir = folder(place.path(), USER);
        let victim = plant(place.path(), &dir, &files);
        let args: Vec<&str> = args.iter().copied().chain(dir.to_str()).collect();
        let output = under_sudo(&args);
        assert_replaced(&victim, &dir, &files, &output);
    }
}

#[test]
fn a_simulation_writes_as_the_user_who_asked() {
    if !live("a_simulation_writes_as_the_user_who_asked") || !is_built_in("sim") {
        return;
    }
    let place = reachable();
    let dir = folder(place.path(), USER);
    let files = ["sim.json", "sim.parquet", "sim.html", "sim.svg"];
    let victim = plant(place.path(), &dir, &files);
    let into = dir.to_str().unwrap();
    let output = under_sudo(&["sim", "-n", "10k", "-o", into]);
    assert_replaced(&victim, &dir, &files, &output);
    // a single file that the user names may not be a link
    let plot = dir.join("plot.svg");
    symlink(&victim, &plot).unwrap();
    let output = under_sudo(&["sim", "-n", "10k", "--plot", plot.to_str().unwrap()]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("links are not followed"), "{stderr}");
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
}

#[test]
fn figures_of_a_paper_belong_to_the_user_who_asked() {
    if !live("figures_of_a_paper_belong_to_the_user_who_asked") || !is_built_in("reproduce") {
        return;
    }
    for (paper, args) in [
        ("tales", &["fig4", "-n", "100k"][..]),
        (
            "deconstructing",
            &["fig4", "--count", "1000", "--runs", "1"],
        ),
    ] {
        let place = reachable();
        let dir = folder(place.path(), USER);
        let (json, html) = (format!("{paper}.json"), format!("{paper}.html"));
        let files = [json.as_str(), html.as_str(), "fig4.svg"];
        let victim = plant(place.path(), &dir, &files);
        let output = under_sudo(
            &[
                &["reproduce", paper],
                args,
                &["-q", "-o"],
                &[dir.to_str().unwrap()],
            ]
            .concat(),
        );
        assert_replaced(&victim, &dir, &files, &output);
    }
}

#[test]
fn a_directory_of_somebody_else_is_refused() {
    if !live("a_directory_of_somebody_else_is_refused") {
        return;
    }
    let place = reachable();
    let dir = folder(place.path(), 12345);
    let mode = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o777);
    fs::set_permissions(&dir, mode).unwrap();
    let output = explain_under_sudo(&dir);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.contains("belongs to another user (number 12345)"),
        "{stderr}"
    );
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
}

#[test]
fn a_second_run_on_the_same_cpus_is_refused() {
    if !live("a_second_run_on_the_same_cpus_is_refused") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let (first, _) = in_mid_run(&SHORT, "memcached", &place.path().join("first"));
    let second = taillab()
        .args(SHORT)
        .arg("-o")
        .arg(place.path().join("second"))
        .output()
        .unwrap();
    let holder = first.id();
    signal(holder, "INT");
    // read to its end: its result does not fit into a pipe
    first.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(1), "{stderr}");
    let named = format!("is in use by another measurement, of taillab (pid {holder})");
    assert!(stderr.contains(&named), "{stderr}");
}

#[test]
fn a_traced_command_ends_with_a_tracer_that_is_killed() {
    if !live("a_traced_command_ends_with_a_tracer_that_is_killed") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    // the server is a grandchild, in a session of its own
    let script = format!(
        "setsid {} serve null-rpc --listen {address} & wait",
        env!("CARGO_BIN_EXE_taillab")
    );
    let mut command = taillab();
    command
        .args(["trace", "-q", "-d", "600s", "-o"])
        .arg(place.path())
        .args(["--", "sh", "-c", &script]);
    let mut tracer = Guarded::spawn(command.stdout(Stdio::null()).stderr(Stdio::null()));
    let recording = place.path().join("capture.tlc");
    wait_for("a recording", || recording.exists().then_some(()));
    std::net::TcpStream::connect(&address).unwrap();
    signal(tracer.id(), "KILL");
    tracer.wait().unwrap();
    let free = || std::net::TcpListener::bind(&address).ok();
    wait_for("the port", free);
    // the next start forgets the run
    taillab()
        .args(["trace", "-q", "-d", "10ms", "--no-save", "-p", "1"])
        .output()
        .unwrap();
}

/// The command runs as the user who called sudo, and so does the tracer when it ends it.
#[test]
fn a_command_traced_under_sudo_ends_with_the_trace() {
    if !live("a_command_traced_under_sudo_ends_with_the_trace") {
        return;
    }
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    let output = under_sudo(&[
        "trace",
        "-q",
        "-d",
        "200ms",
        "--no-save",
        "--",
        "memcached",
        "-l",
        "127.0.0.1",
        "-p",
        &port.to_string(),
    ]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("no request reached"), "{stderr}");
    std::net::TcpListener::bind(&address).unwrap();
}

/// In a container with a pid namespace of its own, a thread's number is not the kernel's: what the kernel records would
/// be taken for that of strangers.
#[test]
fn a_pid_namespace_of_its_own_is_refused_in_one_line() {
    if !live("a_pid_namespace_of_its_own_is_refused_in_one_line") {
        return;
    }
    let port = free_port().to_string();
    // `noise` measures without the probe then, and says so; no other command reads the kernel's numbers of threads
    let commands: [&[&str]; 6] = [
        &["run", "memcached", "-R", "1000", "-d", "1s", "--no-save"],
        &["trace", "-p", "1", "-d", "1s", "--no-save"],
        &["trace", "--no-save", "-d", "1s", "--", "sleep", "5"],
        &[
            "run",
            "memcached",
            "-R",
            "1000",
            "-d",
            "1s",
            "--no-save",
            "--testbed",
            "loopback",
        ],
        &["trace", "--port", &port, "-d", "1s", "--no-save"],
        &[
            "rtt",
            "--proto",
            "udp",
            "--count",
            "1000",
            "--runs",
            "1",
            "--explain",
        ],
    ];
    for args in commands {
        if !is_built_in(args[0]) {
            continue;
        }
        let output = std::process::Command::new("unshare")
            .args(["--pid", "--fork", "--mount-proc"])
            .arg(taillab().get_program())
            .args(args)
            .arg("-q")
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(5), "{args:?}: {stderr}");
        let said: Vec<&str> = stderr.lines().collect();
        assert!(
            matches!(said[..], [line] if line.contains("pid namespace of its own")),
            "{args:?}: {stderr}"
        );
    }
}
