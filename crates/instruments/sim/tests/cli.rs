//! `taillab sim` as a user runs it: outputs, formats of traces, errors.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{
    Array, ArrayRef, Float64Array, Int64Array, RecordBatch, TimestampMicrosecondArray,
};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::Value;
use tempfile::TempDir;

use crate::support;

fn taillab(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_taillab"))
        .args(args)
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A successful `taillab sim --json`.
fn json(args: &[&str]) -> Value {
    let output = taillab(&[&["sim", "--json"], args].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The error line of a call that must end with exit code 2.
fn usage_error(args: &[&str]) -> String {
    let output = taillab(&[&["sim"], args].concat());
    assert_eq!(
        output.status.code(),
        Some(2),
        "{args:?}: {}",
        stderr(&output)
    );
    assert_eq!(stdout(&output), "", "{args:?}");
    stderr(&output)
}

fn complaints(instance: &Value) -> Vec<String> {
    support::schema::complaints("sim", instance)
}

/// The result without what the engine says about itself, such as how long it took.
fn without_engine(mut result: Value) -> Value {
    let object = result.as_object_mut().unwrap();
    object.remove("engine");
    for run in object
        .get_mut("runs")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        run.as_object_mut().unwrap().remove("engine");
    }
    result
}

fn path(directory: &TempDir, name: &str) -> String {
    directory.path().join(name).to_str().unwrap().to_owned()
}

fn file(directory: &TempDir, name: &str, text: &str) -> String {
    let path = path(directory, name);
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn every_kind_of_result_keeps_to_the_schema() {
    let calls: [&[&str]; 6] = [
        &["-n", "200k", "--exact"],
        &["-n", "50k", "--arrivals", "lognormal:cv=2", "--exact"],
        &["-n", "200k", "--discipline", "fifo,lifo,ps", "--exact"],
        &[
            "-n",
            "100k",
            "--sweep",
            "utilization=0.5,0.7",
            "--workers",
            "2",
        ],
        &[
            "-n",
            "200k",
            "--fanout",
            "10",
            "--fork-join",
            "--service",
            "exponential:1ms",
        ],
        &["--precision", "p90=5%", "-n", "20M"],
    ];
    for call in calls {
        assert_eq!(complaints(&json(call)), [""; 0], "{call:?}");
    }
    // the schema refuses properties that it does not list
    let mut result = json(&["-n", "50k"]);
    result["surprise"] = Value::Bool(true);
    assert_ne!(complaints(&result), [""; 0]);
}

#[test]
fn the_same_seed_gives_the_same_result_on_any_number_of_threads() {
    let call = |seed, threads| {
        without_engine(json(&[
            "-n",
            "300k",
            "--workers",
            "4",
            "--discipline",
            "fifo,random-request",
            "--seed",
            seed,
            "--threads",
            threads,
        ]))
    };
    let one = call("7", "1");
    assert_eq!(one, call("7", "2"));
    assert_ne!(one, call("8", "2"));
    let fork_join = |threads| {
        without_engine(json(&[
            "-n",
            "50k",
            "--fanout",
            "3",
            "--fork-join",
            "-t",
            threads,
        ]))
    };
    assert_eq!(fork_join("1"), fork_join("2"));
}

#[test]
fn simulated_stands_beside_exact() {
    let result = json(&["-n", "4M", "--exact", "--workers", "4"]);
    assert_eq!(result["exact"]["model"], "M/D/4");
    let z = result["z"]["quantiles"].as_array().unwrap();
    let tested: Vec<f64> = z.iter().filter_map(|z| z["z"].as_f64()).collect();
    assert!(tested.len() >= 4, "{z:?}");
    assert!(tested.iter().all(|z| z.abs() <= 4.0), "{z:?}");
    // crates/queueing/tests/reference/mdc_sojourn_quantiles.csv: p99 of M/D/4 at 80 %, service 50 µs
    let p99 = result["exact"]["quantiles"][2]["value"].as_f64().unwrap();
    assert!((p99 / 172_734.0 - 1.0).abs() < 1e-3, "{p99}");
    let unknown = json(&[
        "-n",
        "50k",
        "--exact",
        "--discipline",
        "jsq",
        "--workers",
        "2",
    ]);
    assert!(unknown["exact"].is_null() && unknown.get("z").is_none());
}

#[test]
fn a_service_time_of_hours_has_its_percentiles() {
    let result = json(&[
        "--service",
        "exponential:4000s",
        "-u",
        "0.5",
        "-n",
        "2M",
        "--exact",
    ]);
    let (exact, found) = (&result["exact"], &result["sojourn"]);
    for place in 0..3 {
        let exact = exact["quantiles"][place]["value"].as_f64().unwrap();
        let found = found["quantiles"][place]["value"].as_f64().unwrap();
        assert!((found / exact - 1.0).abs() < 0.03, "{found} {exact}");
    }
}

/// 46 years: the median is known, p90 is about a thousand years.
#[test]
fn a_time_that_no_result_can_hold_is_no_number() {
    let call = [
        "--service",
        "exponential:400000h",
        "-u",
        "0.9",
        "-n",
        "200k",
    ];
    let result = json(&[&call[..], &["--exact"]].concat());
    assert_eq!(complaints(&result), [""; 0]);
    let quantiles = &result["sojourn"]["quantiles"];
    let years = |value: &Value| value.as_f64().unwrap() / 3.1536e16;
    let median = years(&quantiles[0]["value"]);
    assert!((200.0..500.0).contains(&median), "{median} years");
    let beyond = [&quantiles[1], &quantiles[2]].map(|x| [&x["value"], &x["hi"]]);
    assert!(
        beyond.as_flattened().iter().all(|x| x.is_null()),
        "{quantiles}"
    );
    assert!(
        result["exact"]["quantiles"][1]["value"].is_null(),
        "{result}"
    );
    assert!(result["sojourn"]["max"].is_null(), "{result}");
    let text = stdout(&taillab(&[&["sim"], &call[..]].concat()));
    assert!(text.contains("beyond 584 years"), "{text}");
    let warning = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        warning.contains("the longest time that a result can hold"),
        "{text}"
    );
}

#[test]
fn what_the_sample_cannot_support_says_what_it_needs() {
    let result = json(&["-n", "20k"]);
    let last = result["sojourn"]["quantiles"]
        .as_array()
        .unwrap()
        .last()
        .unwrap()
        .clone();
    assert!(last["value"].is_null());
    let text = stdout(&taillab(&["sim", "-n", "20k"]));
    let line = text
        .lines()
        .find(|line| line.trim_start().starts_with("p99.999"))
        .unwrap();
    assert!(
        line.contains("needs ") && line.ends_with(" requests"),
        "{line}"
    );
}

#[test]
fn a_precision_is_reached_or_the_limit_is_named() {
    let result = json(&["--precision", "p99=3%", "-n", "100M"]);
    assert_eq!(result["stopped"], "precise");
    let p99 = &result["sojourn"]["quantiles"][2];
    let [value, lo, hi] = ["value", "lo", "hi"].map(|key| p99[key].as_f64().unwrap());
    assert!((hi - lo) / 2.0 / value <= 0.0301, "{p99}");
    assert_eq!(
        json(&["--precision", "p99.99=0.01%", "-n", "200k"])["stopped"],
        "limit"
    );
}

#[test]
fn disciplines_are_compared_on_the_same_arrivals() {
    let result = json(&[
        "-n",
        "400k",
        "--workers",
        "2",
        "--discipline",
        "fifo,lifo,random-request",
    ]);
    let means: Vec<f64> = (result["runs"].as_array().unwrap().iter())
        .map(|run| run["sojourn"]["mean"].as_f64().unwrap())
        .collect();
    // the order of service does not change the mean, given the same arrivals
    assert_eq!(means.len(), 3);
    for mean in &means {
        assert!((mean / means[0] - 1.0).abs() < 1e-3, "{means:?}");
    }
    let text = stdout(&taillab(&[
        "sim",
        "-n",
        "400k",
        "--workers",
        "2",
        "--discipline",
        "fifo,lifo",
        "--plot",
        "-",
    ]));
    assert!(
        text.contains("common random numbers") && text.contains("● fifo   ○ lifo"),
        "{text}"
    );
}

#[test]
fn pictures_are_whole_and_show_something() {
    let directory = TempDir::new().unwrap();
    let [svg, html] = ["a.svg", "a.html"].map(|name| path(&directory, name));
    let output = taillab(&[
        "sim",
        "-n",
        "200k",
        "--discipline",
        "fifo,lifo",
        "--plot",
        &svg,
        "--plot",
        &html,
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    let svg = fs::read_to_string(svg).unwrap();
    assert!(svg.starts_with("<?xml") && svg.trim_end().ends_with("</svg>"));
    assert!(
        svg.contains("stroke-dasharray") && svg.contains(">lifo</text>") && svg.contains("99.9 %")
    );
    let html = fs::read_to_string(html).unwrap();
    assert!(html.contains("<svg") && html.contains("p99.999") && !html.contains("http://example"));
    assert!(!html.contains("src=") && !html.contains("<script"));
}

#[test]
fn a_sweep_is_a_table_a_figure_and_a_parquet_file() {
    let directory = TempDir::new().unwrap();
    let out = path(&directory, "out");
    let parquet = path(&directory, "sweep.parquet");
    let output = taillab(&[
        "sim",
        "-n",
        "100k",
        "--sweep",
        "utilization=0.5..0.7:0.1",
        "--sweep",
        "workers=1,2",
        "--parquet",
        &parquet,
        "-o",
        &out,
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        stdout(&output).contains("2 workers, 60 %"),
        "{}",
        stdout(&output)
    );
    let reader = ParquetRecordBatchReaderBuilder::try_new(fs::File::open(parquet).unwrap())
        .unwrap()
        .build()
        .unwrap();
    let batches: Vec<RecordBatch> = reader.map(Result::unwrap).collect();
    let batch = &batches[0];
    assert_eq!((batches.len(), batch.num_rows()), (1, 6));
    let utilization = batch.column_by_name("utilization").unwrap();
    let utilization = utilization.as_any().downcast_ref::<Float64Array>().unwrap();
    assert_eq!(
        utilization.values().to_vec(),
        [0.5, 0.6, 0.7, 0.5, 0.6, 0.7]
    );
    let p50 = batch.column_by_name("p50_ns").unwrap();
    assert_eq!(p50.null_count(), 0);
    assert_eq!(batch.column_by_name("p99_999_ns").unwrap().null_count(), 6);
    for name in ["sim.json", "sim.parquet", "sim.svg", "sim.html"] {
        assert!(
            fs::metadata(Path::new(&out).join(name)).unwrap().len() > 500,
            "{name}"
        );
    }
    let result: Value =
        serde_json::from_slice(&fs::read(Path::new(&out).join("sim.json")).unwrap()).unwrap();
    assert_eq!(complaints(&result), [""; 0]);
}

/// A thousand arrivals, 100 µs apart, except that every tenth comes together with the next.
fn stamps_us() -> Vec<i64> {
    (0..1_000)
        .map(|i| 1_000_000 + 100 * (i + i64::from(i % 10 == 9)))
        .collect()
}

fn write_parquet(path: &str, name: &str, column: ArrayRef) {
    let batch = RecordBatch::try_from_iter([(name, column)]).unwrap();
    let mut writer =
        ArrowWriter::try_new(fs::File::create(path).unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

#[test]
fn a_trace_is_the_same_in_every_format() {
    let directory = TempDir::new().unwrap();
    let stamps = stamps_us();
    let lines = |write: &dyn Fn(i64) -> String| -> String {
        stamps.iter().map(|t| write(*t) + "\n").collect()
    };
    let seconds = |t: i64| format!("{}.{:06}", t / 1_000_000, t % 1_000_000);
    let text = file(
        &directory,
        "a.txt",
        &format!("# seconds\n\n{}", lines(&seconds)),
    );
    let csv = file(
        &directory,
        "a.csv",
        &format!(
            "id,\"time_us\",size\r\n{}",
            lines(&|t| format!("x,{t},7\r"))
        ),
    );
    let plain = file(&directory, "b.csv", &lines(&|t| format!("{t};{}", t % 7)));
    let [integers, typed, floats] =
        ["i.parquet", "t.parquet", "f.parquet"].map(|name| path(&directory, name));
    write_parquet(
        &integers,
        "arrival_us",
        Arc::new(Int64Array::from(stamps.clone())),
    );
    write_parquet(
        &typed,
        "when",
        Arc::new(TimestampMicrosecondArray::from(stamps.clone())),
    );
    let milliseconds: Vec<f64> = stamps.iter().map(|t| *t as f64 / 1e3).collect();
    write_parquet(&floats, "t", Arc::new(Float64Array::from(milliseconds)));
    let play = |args: &[&str]| {
        let mut result =
            without_engine(json(&[args, &["--service", "deterministic:80us"]].concat()));
        assert_eq!(complaints_of_trace(&mut result), [""; 0]);
        result.as_object_mut().unwrap().remove("arrivals");
        result
    };
    let first = play(&["--trace", &text, "--trace-unit", "s"]);
    assert_eq!(first["sojourn"]["count"], 1_000);
    assert_eq!(first["sojourn"]["max"], 160_000);
    let others: [&[&str]; 5] = [
        &["--trace", &csv],
        &[
            "--trace",
            &plain,
            "--trace-column",
            "1",
            "--trace-unit",
            "us",
        ],
        &["--trace", &integers],
        &["--trace", &typed],
        &["--trace", &floats, "--trace-unit", "ms"],
    ];
    for other in others {
        assert_eq!(play(other), first, "{other:?}");
    }
    // scaled to a utilization, the unit does not matter
    let scaled = |args: &[&str]| play(&[args, &["--utilization", "50%"]].concat());
    let as_seconds = scaled(&["--trace", &plain, "--trace-column", "1"]);
    assert_eq!(as_seconds["utilization"], 0.5);
    assert_eq!(as_seconds["sojourn"]["count"], 1_000);
}

/// The schema's complaints about a result whose `engine` was taken away.
fn complaints_of_trace(result: &mut Value) -> Vec<String> {
    result["engine"] = serde_json::json!({
        "kernel": "", "isa": "", "threads": 1, "requests": 1, "elapsed_ns": 1, "requests_per_second": 1.0
    });
    let complaints = complaints(result);
    result.as_object_mut().unwrap().remove("engine");
    complaints
}

#[test]
fn a_bad_trace_is_named_in_one_line() {
    let directory = TempDir::new().unwrap();
    let nulls = path(&directory, "n.parquet");
    write_parquet(
        &nulls,
        "t_us",
        Arc::new(Int64Array::from(vec![Some(1), None])),
    );
    let cases = [
        ("", "is empty"),
        ("# nothing\n", "is empty"),
        ("time\n", "has no time stamps"),
        ("1\n2\n1.5\n", "line 3 is 500 ms before"),
        ("# head\n1\n\nabc\n", "line 4: `abc` is not a number"),
        ("1\nNaN\n", "line 2: `NaN` is not a number"),
        ("-1\n2\n", "line 1: -1 is negative"),
        ("5\n5\n", "all its 2 time stamps are equal"),
        ("7\n", "all its 1 time stamps are equal"),
        ("1795183401123456789\n1795183401123456790\n", "--trace-unit"),
        ("a,b\n1,2\n", "`a`, `b`; choose one with --trace-column"),
        ("t,v\n1,2\n3\n", ""),
    ];
    for (i, (text, wanted)) in cases.into_iter().enumerate() {
        let name = file(&directory, &format!("{i}.txt"), text);
        let mut args = vec!["--trace", &name, "-u", "0.5"];
        if wanted.is_empty() {
            args.extend(["--trace-column", "v"]);
        }
        let error = usage_error(&args);
        assert_eq!(error.lines().count(), 1, "{error}");
        let wanted = if wanted.is_empty() {
            "line 3: has no column 2"
        } else {
            wanted
        };
        assert!(error.contains(wanted), "{text:?}: {error}");
    }
    assert!(usage_error(&["--trace", &nulls, "-u", "0.5"]).contains("row 2: `t_us` is null"));
    assert!(
        usage_error(&["--trace", "/nowhere/at/all"]).contains("/nowhere/at/all cannot be read")
    );
    assert!(usage_error(&["--trace", "/tmp"]).contains("is not a regular file"));
}

#[test]
fn an_overloaded_trace_runs_only_when_it_is_allowed() {
    let directory = TempDir::new().unwrap();
    let text: String = (0..1_000).map(|i| format!("{i}\n")).collect();
    let name = file(&directory, "fast.txt", &text);
    let args = [
        "--trace",
        &name,
        "--trace-unit",
        "us",
        "--service",
        "deterministic:2us",
    ];
    let error = usage_error(&args);
    assert!(
        error.contains("without bound") && error.contains("--allow-overload"),
        "{error}"
    );
    let result = json(&[&args[..], &["--allow-overload"]].concat());
    assert!(result["utilization"].as_f64().unwrap() > 1.9);
    assert!(
        result["warnings"][0]
            .as_str()
            .unwrap()
            .contains("more than can be served")
    );
}

#[test]
fn service_times_may_come_from_a_file() {
    let directory = TempDir::new().unwrap();
    let name = file(&directory, "times.csv", "service_us\n40\n60\n40\n60\n");
    let result = json(&[
        "-n",
        "200k",
        "--service",
        &format!("empirical:{name}"),
        "--exact",
    ]);
    assert_eq!(result["service_mean_ns"], 50_000.0);
    assert!(
        result["z"]["mean"].as_f64().unwrap().abs() <= 4.0,
        "{}",
        result["z"]
    );
    let error = usage_error(&["--service", &format!("empirical:{name},size=3")]);
    assert!(error.contains("column=NAME,unit=us"), "{error}");
}

#[test]
fn errors_teach() {
    let cases: [(&[&str], &[&str]); 23] = [
        (&["-u", "1"], &["without bound", "--allow-overload"]),
        (&["-u", "80"], &["a percentage needs its sign, e.g. 80%"]),
        (&["-u", "0"], &["above 0 and at most 150%"]),
        (&["-u", "-0.5"], &["above 0 and at most 150%"]),
        (&["-u", "NaN"], &["75% or 0.75"]),
        (&["-n", "0"], &["20M"]),
        (&["-n", "-3"], &["20M"]),
        (&["--workers", "0"], &["whole number from 1"]),
        (&["--workers", "1.5"], &["whole number from 1"]),
        (
            &["--discipline", "best"],
            &["choose one of: fifo, lifo", "power-of-d:d=2"],
        ),
        (
            &["--arrivals", "poison"],
            &["choose one of:", "lognormal:cv=2"],
        ),
        (&["--arrivals", "lognormal:cv=NaN"], &["cv"]),
        (
            &["--service", "50us"],
            &["choose one of: deterministic:50us", "empirical:FILE"],
        ),
        (&["--service", "deterministic:0us"], &["above zero"]),
        (&["--precision", "p99"], &["p99.9=1%"]),
        (&["--plot", "figure.gif"], &["FILE.svg or FILE.html"]),
        (&["--plot", "figure.png"], &["taillab.plot.ccdf("]),
        (&["--plot", "/nowhere/a.svg"], &["no directory /nowhere"]),
        (&["--plot", "-", "--json"], &["both want standard output"]),
        (&["--sweep", "load=1"], &["utilization=0.5..0.95:0.05"]),
        (
            &["--sweep", "workers=1,2", "--sweep", "workers=4"],
            &["swept twice"],
        ),
        (&["--allow-overload"], &["--trace FILE"]),
        (&["--sweep", "utilization=0.9..1.1:0.1"], &["without bound"]),
    ];
    for (args, wanted) in cases {
        let error = usage_error(args);
        for text in wanted {
            assert!(error.contains(text), "{args:?}: {error}");
        }
    }
}

#[test]
fn an_interrupted_run_prints_what_there_is() {
    let directory = TempDir::new().unwrap();
    let printed = path(&directory, "out.json");
    let mut child = Command::new(env!("CARGO_BIN_EXE_taillab"))
        .args(["sim", "--json", "-n", "1e12", "-t", "1"])
        .stdout(fs::File::create(&printed).unwrap())
        .spawn()
        .unwrap();
    // long enough that some batches are done; the run itself would take hours
    support::wait_for("some batches", || {
        (support::cpu_time(child.id()) >= Duration::from_secs(2)).then_some(())
    });
    support::signal(child.id(), "INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let result: Value = serde_json::from_slice(&fs::read(printed).unwrap()).unwrap();
    assert_eq!(result["partial"], true);
    assert_eq!(result["stopped"], "interrupted");
    assert!(result["sojourn"]["count"].as_u64().unwrap() > 0);
    assert_eq!(complaints(&result), [""; 0]);
}

#[test]
fn a_figure_that_cannot_be_written_takes_away_neither_the_result_nor_the_other_files() {
    let place = tempfile::tempdir().unwrap();
    let svg = place.path().join("a.svg");
    std::os::unix::fs::symlink(place.path().join("victim"), &svg).unwrap();
    let page = place.path().join("b.html");
    let output = taillab(&[
        "sim",
        "-n",
        "1k",
        "--json",
        "--plot",
        svg.to_str().unwrap(),
        "--plot",
        page.to_str().unwrap(),
    ]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("a.svg is a link"), "{said}");
    assert!(!place.path().join("victim").exists());
    assert!(page.is_file());
    serde_json::from_slice::<Value>(&output.stdout).unwrap();
}

/// A service without a home, and a user whose numbers have commas.
#[test]
fn no_home_and_another_locale_change_nothing() {
    let args = ["sim", "--json", "-u", "0.5", "-n", "20000", "--seed", "3"];
    let in_place = |variables: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_taillab"));
        let output = command
            .args(args)
            .env_clear()
            .envs(variables.iter().copied())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let mut result: Value = serde_json::from_slice(&output.stdout).unwrap();
        // how long it took
        result.as_object_mut().unwrap().remove("engine");
        result
    };
    let usual = in_place(&[("HOME", "/root"), ("LC_ALL", "C")]);
    assert!(usual["utilization"].as_f64().unwrap() > 0.4, "{usual}");
    assert_eq!(in_place(&[]), usual);
    assert_eq!(
        in_place(&[("LC_ALL", "de_DE.UTF-8"), ("LC_NUMERIC", "de_DE.UTF-8")]),
        usual
    );
}

/// Nobody can make a folder there, not even root.
#[test]
fn a_folder_that_cannot_be_written_is_said_in_one_line() {
    let output = taillab(&["sim", "-q", "-u", "0.5", "-n", "20000", "-o", "/proc/here"]);
    let said = stderr(&output);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("/proc/here"), "{said}");
    assert_eq!(output.status.code(), Some(1), "{said}");
}
