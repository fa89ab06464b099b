//! The result of a trace as it appears in a terminal and on the page.

use taillab_model::explanation::{Cause, Culprit, WorkerShare};
use taillab_model::summary::Reason;
use taillab_model::summary::Withdrawn;
use taillab_model::{Distribution, Nanos};
use taillab_report::terminal::{self, NextStep, Style};
use taillab_report::{html, perfetto};

use crate::common;

use common::explained::{TraceSample, trace};

const LENGTH: Nanos = Nanos::from_secs(20);

fn plain(width: usize) -> Style {
    Style {
        colour: false,
        width,
    }
}

/// The result, its details and its slowest requests.
fn everything(sample: &TraceSample, style: Style) -> String {
    let report = sample.report();
    let slowest = sample.summary.server.explanation.as_ref();
    let slowest = slowest.map(|of| of.slowest.as_slice()).unwrap_or_default();
    [
        terminal::render(&report, Some("memcached.tlc"), style),
        terminal::details(&report, style),
        terminal::slowest(slowest, style),
    ]
    .concat()
}

#[test]
fn a_trace_on_one_screen() {
    let sample = trace(LENGTH);
    let next = [NextStep::new(
        "taillab explain taillab-memcached-1 --slowest 3",
        "what delayed the slowest requests, one by one",
    )];
    let place = Some("taillab-memcached-1/report.html");
    let text = terminal::screen(&sample.report(), place, &next, Style::PLAIN);
    assert!(text.lines().count() <= 45, "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn what_is_not_counted_is_said_where_the_counts_are() {
    let mut sample = trace(LENGTH);
    let shown = |sample: &TraceSample| {
        let report = sample.report();
        let screen = terminal::screen(&report, None, &[], plain(200));
        (screen, String::from_utf8(html::render(&report)).unwrap())
    };
    let (screen, page) = shown(&sample);
    assert!(!screen.contains("left out") && !page.contains("Left out"));
    let left_out = &mut sample.summary.server.left_out;
    left_out.elsewhere = 12;
    left_out.other_processes = 1;
    left_out.add_unasked(&[40_000, 40_002]);
    left_out.parts = 1_240;
    let said = "12 requests that no socket of the server received; 1 request to other processes that share its \
                port; 2 connections on which the server sends unasked (client's ports 40000, 40002); 1,240 \
                packets that only began a request: without --protocol, what a client sends before it waits is one";
    let (screen, page) = shown(&sample);
    // wherever the lines break
    let words: Vec<&str> = screen.split_whitespace().collect();
    let line = format!("left out {said} ");
    assert!(words.join(" ").contains(&line), "{screen}");
    assert!(page.contains("Left out") && page.contains("no socket of the server"));
}

/// The screen said that slow requests come in bursts, and who did it was in a table below.
#[test]
fn the_main_cause_is_the_first_finding_on_the_screen() {
    let mut sample = trace(LENGTH);
    let screen = |sample: &TraceSample| terminal::screen(&sample.report(), None, &[], Style::PLAIN);
    let found = |text: &str| -> Vec<String> {
        let (_, found) = text.split_once("What was found\n").unwrap();
        let found = found.lines().take_while(|line| !line.is_empty());
        found.map(str::to_owned).collect()
    };
    let text = screen(&sample);
    let lines = found(&text);
    assert_eq!(
        lines[..2],
        [
            "  • kworker/0:1 and dpkg on the core: 212 times, 2.10 ms each, delayed 40,555",
            "    requests, 87 % of the excess above p99; p99.9 with rt-priority: 723 µs."
        ]
    );
    assert!(lines[2].contains("in bursts"), "{text}");
    // the forecast below has the command; without it, the finding has
    assert_eq!(text.matches("chrt -a -f -p 50 4711").count(), 1, "{text}");
    sample.summary.server.predictions.clear();
    let text = screen(&sample);
    assert_eq!(found(&text)[2], "    → chrt -a -f -p 50 4711");
    // an overload stays before it
    let mut overload = sample.explanation().findings[1].clone();
    overload.key = Some("overload".to_owned());
    overload.text = "Work arrived faster than it was done.".to_owned();
    sample.explanation().findings.insert(0, overload);
    sample.summary.verdict.warnings = vec![Reason::new("overload", "it was so: lower the load")];
    let text = screen(&sample);
    let lines = found(&text);
    assert_eq!(lines[0], "  • Work arrived faster than it was done.");
    assert!(lines[1].starts_with("  • kworker/0:1 and dpkg"), "{text}");
    // and is not said twice
    assert!(!text.contains("it was so"), "{text}");
    assert!(text.contains("with 1 reservation"), "{text}");
}

/// Beside four busy loops there were ten.
#[test]
fn a_noisy_screen_has_at_most_three_reservations() {
    let keys = [
        "rate_missed",
        "client_busy",
        "cut",
        "unsupported_percentile",
        "not_server_limited",
        "share_intervals",
        "incomplete",
        "probe_cost",
        "virtual_machine",
        "busy_processes",
    ];
    let mut sample = common::explained::run(LENGTH);
    let warning = |key: &str| Reason::new(key, format!("seen for {key}: do what helps"));
    sample.summary.verdict.warnings = keys.map(warning).to_vec();
    sample.summary.scheduled = Some(common::held_up(&sample.summary));
    let text = terminal::screen(&sample.report(), None, &[], Style::PLAIN);
    assert!(text.lines().count() <= 45, "{text}");
    let said = text.lines().filter(|line| line.starts_with("  ! ")).count();
    assert!((1..=3).contains(&said), "{text}");
    assert!(text.contains("with 6 reservations"), "{text}");
    assert!(unwrapped(&text).contains("The generator was held up for 12 % of the time"));
    assert!(text.contains("more reservations: -v"), "{text}");
    // the generator was held up once, and who had the CPU is the first finding
    for key in ["rate_missed", "client_busy", "cut", "busy_processes"] {
        assert!(!text.contains(&format!("seen for {key}:")), "{text}");
    }
    // with -v all of them are there
    let all = terminal::render(&sample.report(), None, Style::PLAIN);
    for key in keys {
        assert!(all.contains(&format!("seen for {key}:")), "{key}: {all}");
    }
}

#[test]
fn a_trace_in_80_columns() {
    let sample = trace(LENGTH);
    let text = terminal::render(&sample.report(), Some("memcached.tlc"), Style::PLAIN);
    insta::assert_snapshot!(text);
}

#[test]
fn a_trace_in_110_columns_with_colours() {
    let style = Style {
        colour: true,
        width: 200,
    };
    let text = terminal::render(&trace(LENGTH).report(), None, style);
    insta::assert_snapshot!(text.replace('\u{1b}', "^"));
}

#[test]
fn the_details_in_100_columns() {
    insta::assert_snapshot!(terminal::details(&trace(LENGTH).report(), plain(100)));
}

#[test]
fn the_details_do_not_repeat_the_culprits() {
    let mut sample = trace(LENGTH);
    let table = "What did it";
    assert!(terminal::details(&sample.report(), plain(100)).contains(table));
    for row in &mut sample.summary.server.causes {
        // too little for any table
        if row.excess_share_above_p99.value < 0.02 {
            row.excess_share_above_p99.value = 0.0001;
        }
    }
    assert!(terminal::render(&sample.report(), None, plain(100)).contains(table));
    let details = terminal::details(&sample.report(), plain(100));
    assert!(!details.contains(table), "{details}");
}

/// Where nothing is compared with an ideal, nothing is in excess of it.
#[test]
fn without_an_ideal_the_causes_are_those_of_delays() {
    let mut sample = trace(LENGTH);
    sample.summary.server.ideal.withdrawn = Some(Withdrawn::ClientsWait { at_once: 4 });
    let report = sample.report();
    let screen = terminal::render(&report, None, plain(100));
    assert!(screen.contains("share of the delays above p99"), "{screen}");
    let page = String::from_utf8(html::render(&report)).unwrap();
    for (name, text) in [("screen", screen), ("page", page)] {
        assert!(text.contains("Where the delays come from"), "{name}");
        assert!(!text.contains("the excess comes from"), "{name}");
        assert!(!text.contains("share of the excess above p99"), "{name}");
    }
}

/// A closed loop has no ideal to be compared with. Where its requests spent their time is known.
#[test]
fn without_an_ideal_the_screen_has_the_stages() {
    let mut sample = trace(LENGTH);
    let heading = "Where the time goes";
    let screen = |sample: &TraceSample| terminal::screen(&sample.report(), None, &[], plain(80));
    assert!(!screen(&sample).contains(heading));
    sample.summary.server.ideal.withdrawn = Some(Withdrawn::ClientsWait { at_once: 4 });
    sample.summary.server.predictions.clear();
    let text = screen(&sample);
    assert!(text.lines().count() <= 45, "{text}");
    let found = text.find("What was found").unwrap();
    assert!(text.find(heading).is_some_and(|at| at < found), "{text}");
}

/// What a server waits for between T4 and T5, where it waits.
#[test]
fn the_time_in_the_server_is_told_by_what_it_did() {
    let text = terminal::render(&trace(LENGTH).report(), None, plain(100));
    let at = text.find("T4–T5 by what the server did").unwrap();
    let lines: Vec<&str> = text[at..].lines().take(5).collect();
    assert!(
        lines[2].contains("p50") && lines[2].contains('–'),
        "{lines:?}"
    );
    let words: Vec<&str> = lines[3].split_whitespace().collect();
    assert_eq!(words, ["p99", "251.2", "11.2", "240.0"]);
}

#[test]
fn stages_without_length_have_no_share() {
    let mut sample = trace(LENGTH);
    let stages = &mut sample.summary.server.stages;
    for stage in [
        &mut stages.t1_t2,
        &mut stages.t2_t3,
        &mut stages.t3_t4,
        &mut stages.t4_t5,
        &mut stages.t5_t6,
    ] {
        stage.mean = Some(0.0);
    }
    let details = terminal::details(&sample.report(), plain(100));
    assert!(!details.contains("– %"), "{details}");
}

#[test]
fn the_slowest_requests_in_90_columns() {
    let mut sample = trace(LENGTH);
    let slowest = &sample.explanation().slowest[..2];
    insta::assert_snapshot!(terminal::slowest(slowest, plain(90)));
}

/// The most important fits two screens.
#[test]
fn the_result_is_short_and_begins_with_the_findings() {
    let sample = trace(LENGTH);
    let text = terminal::render(&sample.report(), None, plain(100));
    assert!(
        text.lines().count() <= 110,
        "{} lines",
        text.lines().count()
    );
    let place = |what: &str| {
        text.find(what)
            .unwrap_or_else(|| panic!("{what} is missing"))
    };
    let order = [
        "What was found",
        "chrt -a -f -p 50 4711",
        "Latency in µs",
        "Where the excess comes from",
        "What did it",
        "What would help",
        "The slow requests",
        "Can it be trusted?",
    ];
    let places: Vec<usize> = order.iter().map(|what| place(what)).collect();
    assert!(places.is_sorted(), "{places:?}");
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    let sample = trace(Nanos::from_secs(2));
    for width in [60, 72, 80, 96, 110] {
        for line in everything(&sample, plain(width)).lines() {
            let columns = line.chars().count();
            assert!(columns <= width, "{columns} columns of {width}: {line}");
        }
    }
}

#[test]
fn plain_text_is_the_coloured_text_without_its_colours() {
    let sample = trace(Nanos::from_secs(2));
    let of = |colour| everything(&sample, Style { colour, width: 100 });
    let coloured = of(true);
    let without = common::without_colours(&coloured);
    // apart from colours the texts differ only in blanks at the ends of lines
    let trimmed = |text: &str| -> Vec<String> {
        text.lines()
            .map(|line| line.trim_end().to_owned())
            .collect()
    };
    assert_eq!(trimmed(&without), trimmed(&of(false)));
    assert!(!of(false).contains('\u{1b}'));
}

#[test]
fn forecasts_that_fall_together_are_one_curve_with_both_names() {
    let mut sample = trace(Nanos::from_secs(2));
    let curves = &mut sample.explanation().curves;
    let mut twin = (curves
        .iter()
        .find(|curve| curve.name == "rt-priority")
        .cloned())
    .unwrap();
    twin.name = "dedicated-cpus".to_owned();
    curves.push(twin);
    let page = String::from_utf8(html::render(&sample.report())).unwrap();
    assert!(page.contains("predicted: rt-priority, dedicated-cpus"));
    assert!(page.contains("predicted: without background<"));
}

#[test]
fn the_ratio_is_divided_where_it_is_shown() {
    let sample = trace(Nanos::from_secs(2));
    let report = sample.report();
    let text = unwrapped(&terminal::render(&report, None, plain(300)));
    let screen = unwrapped(&terminal::screen(&report, None, &[], plain(100)));
    let page = String::from_utf8(html::render(&report)).unwrap();
    let [p50, p99] = &sample.summary.server.ratio[..] else {
        panic!("{text}");
    };
    assert!(p50.ratio < 1.1 && p99.ratio > 1.1, "{p50:?} {p99:?}");
    let [wakes, transmit] = [0, 1].map(|part| p99.parts[part].value);
    // the probe's part is too small to be named
    let said =
        format!("the ideal at p99: wake-ups and idle exits {wakes:.2}, transmit {transmit:.2}");
    for output in [&text, &screen, &page] {
        assert!(output.contains(&said), "{said}: {output}");
        assert!(!output.contains("the ideal at p50"), "{output}");
    }
}

#[test]
fn where_nothing_is_explained_both_say_why() {
    let mut sample = trace(Nanos::from_secs(2));
    let result = &mut sample.summary.server;
    (result.explanation, result.model_fit) = (None, None);
    (result.causes, result.predictions) = (Vec::new(), Vec::new());
    let report = sample.report();
    let text = terminal::render(&report, None, plain(300));
    assert!(
        text.contains("record without --disturbances none"),
        "{text}"
    );
    let page = String::from_utf8(html::render(&report)).unwrap();
    assert!(page.contains("record without --disturbances none"));
}

fn unwrapped(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn shares_without_intervals_have_a_heading_that_says_so() {
    let mut sample = trace(LENGTH);
    let heading = |sample: &TraceSample| terminal::screen(&sample.report(), None, &[], plain(200));
    let promised = "with its 95 % interval";
    assert!(heading(&sample).contains(promised));
    for row in &mut sample.summary.server.causes {
        (row.excess_share_above_p99.lo, row.excess_share_above_p99.hi) = (None, None);
    }
    let text = heading(&sample);
    assert!(
        text.contains("too few bursts for an interval") && !text.contains(promised),
        "{text}"
    );
}

/// What is charged to causes that may be chance is said in a sentence, not left out.
#[test]
fn excess_in_doubt_is_said_and_shares_of_nothing_have_no_row() {
    let mut sample = trace(LENGTH);
    for row in &mut sample.summary.server.causes {
        let above = &mut row.excess_share_above_p99;
        match row.cause {
            Cause::Background => above.lo = Some(-0.1),
            Cause::StackRx => (above.value, above.lo) = (0.000_4, Some(0.000_3)),
            Cause::Softirq | Cause::Unexplained => {}
            _ => above.value = 0.0,
        }
    }
    let sentence = "87.1 % of the excess above p99 is charged to other threads on the core, whose \
                    interval reaches 0: too few bursts to be sure; a longer measurement may tell.";
    let report = sample.report();
    let screen = terminal::screen(&report, None, &[], plain(200));
    for text in [&screen, &terminal::render(&report, None, plain(200))] {
        assert!(unwrapped(text).contains(sentence), "{text}");
    }
    assert!(!screen.contains(" 0.0 %"), "{screen}");
    let page = String::from_utf8(html::render(&report)).unwrap();
    assert!(unwrapped(&page).contains(sentence));

    for row in &mut sample.summary.server.causes {
        row.excess_share_above_p99.lo = Some(-0.1);
    }
    let screen = terminal::screen(&sample.report(), None, &[], plain(200));
    let three = "3 causes whose intervals reach 0, chiefly other threads on the core (87.1 %)";
    assert!(unwrapped(&screen).contains(three), "{screen}");
}

/// Names of threads, of interrupts and of files come from outside.
fn hostile_sample(hostile: &str) -> TraceSample {
    let mut sample = trace(Nanos::from_secs(2));
    let thread = || {
        Some(Culprit::Thread {
            name: hostile.to_owned(),
            pid: None,
            tid: None,
            process: Some(hostile.to_owned()),
        })
    };
    let summary = &mut sample.summary;
    summary.target = hostile.to_owned();
    summary.command = hostile.to_owned();
    let result = &mut summary.server;
    for share in &mut result.causes {
        share.culprit = share.culprit.is_some().then(thread).flatten();
    }
    for hook in &mut result.matching.hooks {
        hook.stamp = hostile.to_owned();
        hook.hook = hostile.to_owned();
        hook.lost_precision = Some(hostile.to_owned());
    }
    for prediction in &mut result.predictions {
        prediction.change = hostile.to_owned();
        prediction.description = hostile.to_owned();
        prediction.command = Some(hostile.to_owned());
        prediction.cost = Some(hostile.to_owned());
    }
    result.model_fit.as_mut().unwrap().model = hostile.to_owned();
    let explanation = sample.explanation();
    for finding in &mut explanation.findings {
        finding.text = hostile.to_owned();
        finding.advice = Some(hostile.to_owned());
    }
    for worker in &mut explanation.workers {
        worker.name = hostile.to_owned();
    }
    for request in &mut explanation.slowest {
        request.worker = thread();
        for stretch in &mut request.stretches {
            stretch.culprit = thread();
        }
        for activity in &mut request.activities {
            activity.who = thread();
        }
    }
    for curve in &mut explanation.curves {
        curve.name = hostile.to_owned();
    }
    explanation.limits = vec![hostile.to_owned()];
    sample
}

#[test]
fn names_from_outside_cannot_steer_the_terminal() {
    let text = everything(
        &hostile_sample("\u{1b}]0;owned\u{7}\u{1b}[2J\r\n"),
        Style::PLAIN,
    );
    assert!(text.contains("owned"));
    let control = text.chars().find(|c| c.is_control() && *c != '\n');
    assert_eq!(control, None);
}

#[test]
fn names_from_outside_stay_text_on_the_page() {
    let hostile = "</script></title></details><script>alert(1)</script><img src=x>\"'&";
    let sample = hostile_sample(hostile);
    let page = String::from_utf8(html::render(&sample.report())).unwrap();
    assert!(!page.contains("<img"));
    assert_eq!(
        page.matches("</script>").count(),
        2,
        "the data and the script"
    );
    assert!(page.matches("&lt;img src=x&gt;&quot;&#39;&amp;").count() > 50);
}

#[test]
fn the_page_is_small_and_refers_to_nothing_outside_itself() {
    let sample = trace(LENGTH);
    let page = String::from_utf8(html::render(&sample.report())).unwrap();
    crate::html::refers_to_nothing_outside(&page);
    assert!(page.len() < 1_000_000, "{} bytes", page.len());
}

/// 50 requests with 20,000 pieces each, and hours of heat map: the page stays below 3 MB.
#[test]
fn a_large_explanation_is_a_small_page() {
    let mut sample = trace(Nanos::from_secs(2));
    let explanation = sample.explanation();
    let one = explanation.slowest[0].clone();
    explanation.slowest = (0..50)
        .map(|_| {
            let mut request = one.clone();
            let piece = Nanos::new((one.sojourn_ns.get() / 20_000).max(1));
            let of = &one.activities[1];
            request.activities = (0..20_000)
                .map(|i| {
                    let mut activity = of.clone();
                    activity.from_ns = Nanos::new(piece.get() * i);
                    activity.lasted_ns = piece;
                    activity
                })
                .collect();
            request.stretches = one.stretches.iter().cycle().take(20_000).cloned().collect();
            request
        })
        .collect();
    explanation.heat_map.counts = explanation
        .heat_map
        .counts
        .iter()
        .cycle()
        .take(100_000)
        .cloned()
        .collect();
    let page = html::render(&sample.report());
    assert!(page.len() < 3_000_000, "{} bytes", page.len());
}

/// Nothing came, and nothing is known: no number is made up.
#[test]
fn an_empty_trace_has_every_output() {
    let mut sample = trace(Nanos::from_millis(500));
    let nothing = Distribution::from_sorted(&[]);
    let summary = &mut sample.summary;
    summary.partial = true;
    summary.verdict.valid = false;
    summary.verdict.reasons = vec![Reason::new("no_answer", "no request came in")];
    summary.observer = None;
    let result = &mut summary.server;
    result.measured.sojourn = nothing.clone();
    result.ideal.sojourn = nothing.clone();
    result.excess = nothing.clone();
    result.stages.t1_t2 = nothing;
    result.stages_at.clear();
    result.causes.clear();
    result.predictions.clear();
    result.model_fit = None;
    result.matching = taillab_model::summary::Matching::default();
    result.explanation = Some(taillab_model::explanation::Explanation::default());
    sample.curves.clear();
    let text = everything(&sample, Style::PLAIN);
    let page = String::from_utf8(html::render(&sample.report())).unwrap();
    for output in [&text, &page] {
        assert!(output.contains("no request came in"));
        assert!(!output.contains("NaN") && !output.contains("inf "));
    }
    assert!(text.contains("INVALID, PARTIAL"));
    assert!(text.contains("needs at least"));
    assert!(!perfetto::trace("nothing", &[]).is_empty());
}

/// A run shows what a trace shows.
#[test]
fn a_run_is_explained_in_the_same_words() {
    let run = common::explained::run(LENGTH);
    let of_run = terminal::render(&run.report(), None, plain(100));
    let of_trace = terminal::render(&trace(LENGTH).report(), None, plain(100));
    let part = |text: &str| -> String {
        let from = text.find("Where the excess comes from").unwrap();
        let to = text.find("Where the time goes").unwrap();
        let part = &text[from..to];
        // a run has its stages in between
        part.split("\nStages in")
            .next()
            .unwrap()
            .trim_end()
            .to_owned()
    };
    assert_eq!(part(&of_run), part(&of_trace));
}

#[test]
fn of_many_workers_the_page_has_the_slowest_and_counts_the_others() {
    let mut sample = trace(LENGTH);
    let explanation = sample.explanation();
    let one = explanation.workers[0].clone();
    let worker = |i: u32| WorkerShare {
        tid: 20_000 + i,
        mean_sojourn_ns: 1_000.0 * f64::from(i),
        ..one.clone()
    };
    explanation.workers = (0..256).map(worker).collect();
    let page = String::from_utf8(html::render(&sample.report())).unwrap();
    assert!(page.contains("memcached 20255") && page.contains("memcached 20224"));
    assert!(!page.contains("memcached 20223"));
    assert!(page.contains("And 224 workers with a shorter mean"));
}

#[test]
fn blind_times_of_many_cpus_together_are_no_share_of_the_time() {
    let mut sample = trace(LENGTH);
    sample.summary.server.matching.blind_ns = LENGTH * 20;
    let text = terminal::render(&sample.report(), None, plain(110));
    assert!(text.contains("in total (on all CPUs)"), "{text}");
}
