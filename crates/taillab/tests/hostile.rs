//! Damaged and hostile files, given to the commands that read files: no panic, no hang, no more than
//! 500 MB, and an exit code that the manual knows.
//!
//! `make fuzz` does the same for half an hour, from another seed each time; `crates/taillab/fuzz` runs the same
//! readers, guided by what they cover.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arrow_array::{Int64Array, RecordBatch};
use parquet::arrow::ArrowWriter;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::support::is_built_in;
use tempfile::TempDir;

mod events;
mod files;

use self::files::{grown, is_numbered, reseal, unpacked};

/// No file of up to 10 MB may take more time of CPUs.
const CPU_SECONDS: u64 = 20;
/// A command that waits, without using a CPU, hangs. On a busy machine, one that works may take nearly as long.
const PATIENCE: Duration = Duration::from_secs(300);
/// One that sends may wait for the start that its file asks for: longer than this, it is not looked at.
const PATIENCE_TO_SEND: Duration = Duration::from_secs(10);
/// Private memory of the process that reads.
const MEMORY_BYTES: u64 = 500 << 20;
/// Files that `make test` tries of each kind, and of a kind whose command takes seconds.
const FILES: u64 = 250;
const FILES_OF_SLOW: u64 = 12;
/// How large a file may be.
const LARGE_BYTES: usize = 10_000_000;
/// Large files that are damaged.
const LARGE_FILES: u64 = 3;

/// Writes a file again with changed contents; `None` where there is nothing to change.
type Rewrite = fn(&[u8], &mut Xoshiro256PlusPlus) -> Option<Vec<u8>>;

/// A kind of file, and the command that reads it.
#[derive(Clone, Copy, Debug)]
struct Target {
    name: &'static str,
    extension: &'static str,
    /// The command, up to the file's name.
    command: &'static [&'static str],
    /// What follows the file's name.
    options: &'static [&'static str],
    /// What happens where the command does what a sound file asks for.
    then: Then,
    seeds: fn() -> Vec<Vec<u8>>,
    /// Half of the damaged files are of these seeds.
    often: fn(&[u8]) -> bool,
    /// A sound file of nearly [`LARGE_BYTES`], or less where its format packs the values; `None` where no file is large.
    large: Option<fn() -> Vec<u8>>,
    /// Damages what the file means.
    rewritten: Option<Rewrite>,
    /// Pieces that mean something in such a file.
    words: &'static [&'static [u8]],
    /// Makes checksums right again, so that what is behind them is read.
    reseal: fn(&mut [u8]),
}

/// What a command does with a sound file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// It reads it, and says what is in it.
    Reads,
    /// The same of two files, which are one here.
    ReadsTwo,
    /// It sends to the address that the file names: it gets a network of its own, which leads nowhere.
    Sends,
    /// It measures, for seconds.
    Measures,
}

/// What most kinds of files have in common.
const PLAIN: Target = Target {
    name: "",
    extension: "",
    command: &[],
    options: &[],
    then: Then::Reads,
    seeds: Vec::new,
    often: |_| true,
    large: None,
    rewritten: None,
    words: &[],
    reseal: |_| {},
};

static TARGETS: [Target; 8] = [
    Target {
        name: "recording",
        extension: "tlc",
        command: &["explain", "--json"],
        seeds: recordings,
        often: is_numbered,
        large: Some(|| grown(&recordings()[0], LARGE_BYTES)),
        rewritten: Some(events::rewritten),
        words: &[
            b"\xb1TLB",
            b"taillabF",
            b"\"workers\":0",
            b"\"framing\":\"http\"",
            b"-1",
            b"1e999",
        ],
        reseal,
        ..PLAIN
    },
    Target {
        name: "CSV",
        extension: "csv",
        command: &["sim", "--json", "--trace"],
        options: &["--trace-column", "t_us", "-u", "0.8"],
        seeds: || vec![csv(400)],
        large: Some(|| csv(700_000)),
        words: &[
            b"\n",
            b",",
            b"\"",
            b"nan",
            b"inf",
            b"-1",
            b"1e308",
            b"18446744073709551616",
            b"\xff",
        ],
        ..PLAIN
    },
    Target {
        name: "list of times",
        extension: "txt",
        command: &["sim", "--json", "--trace"],
        options: &["-u", "0.8"],
        seeds: || {
            vec![
                b"# seconds\n0.1\n0.2\n0.25\n0.9\n1.5\n".repeat(20),
                list(400),
            ]
        },
        large: Some(|| list(1_100_000)),
        words: &[
            b"\n",
            b"#",
            b"nan",
            b"inf",
            b"-1",
            b"1e308",
            b"0.00000000000001",
            b"\xff",
        ],
        ..PLAIN
    },
    Target {
        name: "Parquet",
        extension: "parquet",
        command: &["sim", "--json", "--trace"],
        options: &["--trace-column", "t_us", "-u", "0.8"],
        seeds: || vec![columns(400)],
        large: Some(|| columns(1_200_000)),
        words: &[b"PAR1", b"\xff\xff\xff\x7f"],
        ..PLAIN
    },
    Target {
        name: "result",
        extension: "json",
        command: &["compare", "--json"],
        then: Then::ReadsTwo,
        seeds: results,
        words: NUMBERS,
        ..PLAIN
    },
    Target {
        name: "rate profile",
        extension: "rates",
        command: &[
            "load",
            "--json",
            "echo+tcp://127.0.0.1:9",
            "--floor",
            "off",
            "--profile",
        ],
        then: Then::Sends,
        seeds: || vec![b"time_s,rate_per_s\n0,10\n1.5,2000\n2,3e3\n10,0\n11,7\n".to_vec()],
        large: Some(|| {
            let rows: String = (0..400_000)
                .map(|i| format!("{i},{}\n", 100 + i % 7))
                .collect();
            format!("time_s,rate_per_s\n{rows}").into_bytes()
        }),
        words: &[
            b"\n", b",", b"\"", b"nan", b"inf", b"-1", b"1e308", b"0.0", b"1e-300", b"\xff",
        ],
        ..PLAIN
    },
    Target {
        name: "plan of an agent",
        extension: "plan",
        command: &["agent", "--json"],
        then: Then::Sends,
        seeds: || vec![plan()],
        words: NUMBERS,
        ..PLAIN
    },
    Target {
        name: "topology",
        extension: "toml",
        command: &[
            "budget",
            "--json",
            "-d",
            "1ms",
            "--draws",
            "10000",
            "--topology",
        ],
        then: Then::Measures,
        seeds: || {
            let all = "name = \"two racks\"\nhops = 3\nswitch = \"lognormal:600ns,cv=0.2\"\nfibre_m = 40\n\
                       nic = \"deterministic:470ns\"\nhost = \"bypass\"\n";
            vec![
                all.into(),
                b"name = \"x\"\nswitch = \"exponential:1us\"\n".to_vec(),
            ]
        },
        words: &[
            b"-1",
            b"1e308",
            b"18446744073709551616",
            b"4294967295",
            b"nan",
            b"exponential:",
            b"pareto:1ns,alpha=0.1",
            b"1e9s",
            b"0ns",
            b"\"",
            b"\n",
        ],
        ..PLAIN
    },
];

impl Target {
    fn is_built_in(&self) -> bool {
        is_built_in(self.command[0])
    }
}

/// Those whose command is built in.
fn targets() -> impl Iterator<Item = &'static Target> {
    TARGETS.iter().filter(|target| target.is_built_in())
}

/// Pieces of JSON.
const NUMBERS: &[&[u8]] = &[
    b"-1",
    b"1e308",
    b"1e999",
    b"18446744073709551616",
    b"18446744073709551615",
    b"null",
    b"[]",
    b"{}",
    b"\"\"",
    b"\\ud800",
    b"[[[[[[[[",
    b"\xff",
];

/// The plan of a client whose start has passed: it sends nothing.
fn plan() -> Vec<u8> {
    let version = env!("CARGO_PKG_VERSION");
    format!(
        r#"{{"taillab": "{version}", "client": 0, "clients": 3, "target": "echo+tcp://127.0.0.1:9", "rate_per_s": 5000,
        "arrivals": "poisson", "seed": 17, "warmup_ns": 1000000, "duration_ns": 1000000,
        "start": {{"clock": "monotonic", "at_ns": 1, "offset_ns": -1200, "error_ns": 300}}, "options": ["--connections=16"]}}"#
    )
    .into_bytes()
}

/// What is said of recorded streams.
fn results() -> Vec<Vec<u8>> {
    ["memcached_5k_per_s", "nginx_2_workers"]
        .map(|name| {
            let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../analysis/tests/golden");
            let mut explain = Command::new(env!("CARGO_BIN_EXE_taillab"));
            explain
                .args(["explain", "--json"])
                .arg(golden.join(format!("{name}.tlc")))
                .stdin(Stdio::null());
            let result = explain.output().unwrap().stdout;
            assert!(!result.is_empty(), "{name}");
            result
        })
        .to_vec()
}

/// Recorded streams, as they are and with their blocks unpacked.
fn recordings() -> Vec<Vec<u8>> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../analysis/tests");
    let folders = ["golden", "cases"].map(|folder| fs::read_dir(tests.join(folder)).unwrap());
    let mut paths: Vec<PathBuf> = (folders.into_iter().flatten())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "tlc"))
        .collect();
    paths.sort();
    let mut seeds = vec![events::of_ipv6()];
    for path in paths {
        let packed = fs::read(path).unwrap();
        seeds.push(unpacked(&packed));
        seeds.push(packed);
    }
    seeds
}

fn stamps(count: i64) -> impl Iterator<Item = i64> {
    (0..count).map(|i| 1_000 + 37 * i + i % 7 * 11)
}

fn csv(rows: i64) -> Vec<u8> {
    let rows: String = stamps(rows).map(|t| format!("7,{t},\"a\"\n")).collect();
    format!("id,t_us,note\n{rows}").into_bytes()
}

fn list(rows: i64) -> Vec<u8> {
    let rows: String = stamps(rows).map(|t| format!("{t}\n")).collect();
    format!("# seconds\n{rows}").into_bytes()
}

fn columns(rows: i64) -> Vec<u8> {
    let column = Arc::new(Int64Array::from_iter_values(stamps(rows)));
    let batch = RecordBatch::try_from_iter([("t_us", column as _)]).unwrap();
    let mut file = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    file
}

/// A seed with one to eight things changed.
fn damaged(target: &Target, seeds: &[Vec<u8>], rng: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    let often: Vec<&Vec<u8>> = seeds.iter().filter(|seed| (target.often)(seed)).collect();
    let mut file = match rng.random_bool(0.5) && !often.is_empty() {
        true => often[rng.random_range(0..often.len())].clone(),
        false => seeds[rng.random_range(0..seeds.len())].clone(),
    };
    if let Some(rewritten) = target.rewritten.filter(|_| rng.random_bool(0.5)) {
        file = rewritten(&file, rng).unwrap_or(file);
        // as it is, what it means is all that is wrong
        if rng.random_bool(0.7) {
            return file;
        }
    }
    for _ in 0..1 << rng.random_range(0..4) {
        if file.is_empty() {
            break;
        }
        let at = rng.random_range(0..file.len());
        let some = rng.random_range(1..=64).min(file.len() - at);
        let part = at..at + some;
        match rng.random_range(0..8) {
            0 => file[at] ^= 1 << rng.random_range(0..8),
            1 => file[at] = rng.random(),
            // the numbers at the edges
            2 => {
                let edges = [
                    0,
                    1,
                    0x7f,
                    0x80,
                    u64::MAX,
                    1 << 31,
                    1 << 48,
                    1 << 63,
                    i64::MAX as u64,
                ];
                let edge = edges[rng.random_range(0..edges.len())].to_le_bytes();
                let width = [1, 2, 4, 8][rng.random_range(0..4)].min(file.len() - at);
                file[at..at + width].copy_from_slice(&edge[..width]);
            }
            3 => file.truncate(at),
            4 => drop(file.drain(part)),
            5 => {
                let twice = file[part].to_vec();
                file.splice(at..at, twice);
            }
            6 => {
                let word = target.words[rng.random_range(0..target.words.len())];
                file.splice(at..at, word.iter().copied());
            }
            // the beginning of one and the end of another
            _ => {
                let other = &seeds[rng.random_range(0..seeds.len())];
                let from = rng.random_range(0..=other.len());
                file.truncate(at);
                file.extend(&other[from..]);
            }
        }
    }
    if rng.random_bool(0.8) {
        (target.reseal)(&mut file);
    }
    file
}

/// Runs a command in a network of its own, without the rights of root outside of it.
const ALONE: [&str; 3] = ["unshare", "--map-root-user", "--net"];

/// Whether the command of this target can be run here; says so if not.
fn can_run(target: &Target) -> bool {
    if matches!(target.then, Then::Reads | Then::ReadsTwo) {
        return true;
    }
    let tried = Command::new(ALONE[0])
        .args(&ALONE[1..])
        .arg("true")
        .stdin(Stdio::null())
        .status();
    let can = tried.is_ok_and(|status| status.success());
    if !can {
        eprintln!(
            "{} not tried: this kernel allows no namespaces to users",
            target.name
        );
    }
    can
}

/// Gives a file to its command; returns what was wrong with how that ended.
fn read(target: &Target, file: &Path) -> Option<String> {
    let mut command = Command::new("prlimit");
    // a signal at the first limit of CPU time
    let cpu = format!("--cpu={CPU_SECONDS}:{}", 2 * CPU_SECONDS);
    command.args([&format!("--data={MEMORY_BYTES}"), "--core=0", &cpu]);
    if matches!(target.then, Then::Sends | Then::Measures) {
        command.args(ALONE);
    }
    command
        .arg(env!("CARGO_BIN_EXE_taillab"))
        .args(target.command)
        .arg(file)
        .args((target.then == Then::ReadsTwo).then_some(file))
        .args(target.options)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let waits = target.then == Then::Sends;
    let patience = if waits { PATIENCE_TO_SEND } else { PATIENCE };
    let began = Instant::now();
    let mut child = command.spawn().unwrap();
    let ended = loop {
        match child.try_wait().unwrap() {
            Some(status) => break Some(status),
            None if began.elapsed() > patience => break None,
            None => thread::sleep(Duration::from_millis(2)),
        }
    };
    let Some(status) = ended else {
        child.kill().unwrap();
        child.wait().unwrap();
        return (!waits).then(|| "it hangs".to_owned());
    };
    let stderr = std::io::read_to_string(child.stderr.take().unwrap()).unwrap();
    match status.code() {
        // done, and what the manual has for a file that cannot be used, or asks for what is not there
        Some(0..=5) if !stderr.contains("panicked") => None,
        _ => Some(format!("{status}\n{stderr}")),
    }
}

/// Tries damaged files until `done` accepts their number; a file that does harm is kept.
fn attack(target: &Target, seed: u64, done: &(impl Fn(u64) -> bool + Sync)) {
    if !can_run(target) {
        return;
    }
    let folder = TempDir::new().unwrap();
    let seeds = (target.seeds)();
    for (place, whole) in seeds.iter().enumerate() {
        let file = folder.path().join(format!("whole.{}", target.extension));
        fs::write(&file, whole).unwrap();
        assert_eq!(read(target, &file), None, "seed {place}");
    }
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut number = 0;
    while !done(number) {
        let name = format!("{}-{seed}-{number}.{}", target.extension, target.extension);
        let file = folder.path().join(&name);
        fs::write(&file, damaged(target, &seeds, &mut rng)).unwrap();
        if let Some(harm) = read(target, &file) {
            let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(&name);
            fs::copy(&file, &kept).unwrap();
            panic!(
                "a {} does harm, see {}: {harm}",
                target.name,
                kept.display()
            );
        }
        fs::remove_file(&file).unwrap();
        number += 1;
    }
    eprintln!("{number} files of kind {}", target.name);
}

/// Tries the same files each time; with `make fuzz`, other files each time, for as long as it asks for.
#[test]
fn damaged_files_do_no_harm() {
    let asked = std::env::var("FUZZ_SECONDS").ok();
    let asked = asked.map(|seconds| Duration::from_secs(seconds.parse().unwrap()));
    let seed = asked.map_or(1, |_| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.unwrap().as_secs()
    });
    let began = Instant::now();
    thread::scope(|scope| {
        for target in targets() {
            let most = match target.then {
                Then::Measures => FILES_OF_SLOW,
                _ => FILES,
            };
            let done =
                move |number| asked.map_or(number >= most, |length| began.elapsed() >= length);
            scope.spawn(move || attack(target, seed, &done));
        }
    });
}

/// The limits hold for files as large as they may be.
#[test]
fn large_files_do_no_harm() {
    let folder = TempDir::new().unwrap();
    for target in targets().filter(|target| can_run(target)) {
        let Some(large) = target.large else {
            continue;
        };
        let whole = large();
        assert!(whole.len() > LARGE_BYTES / 4, "{}", target.name);
        let file = folder.path().join(format!("large.{}", target.extension));
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        fs::write(&file, &whole).unwrap();
        assert_eq!(read(target, &file), None, "{}", target.name);
        let seeds = [whole];
        for number in 0..LARGE_FILES {
            fs::write(&file, damaged(target, &seeds, &mut rng)).unwrap();
            assert_eq!(read(target, &file), None, "{} {number}", target.name);
        }
    }
}

/// Files that once did harm.
#[test]
fn files_that_did_harm_once_do_none() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hostile/corpus");
    let mut tried = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let extension = path.extension().unwrap_or_default();
        let target = TARGETS.iter().find(|target| extension == target.extension);
        let target = target.unwrap_or_else(|| panic!("no command reads {}", path.display()));
        if !target.is_built_in() {
            continue;
        }
        assert_eq!(read(target, &path), None, "{}", path.display());
        tried += 1;
    }
    assert!(tried > 0);
}
