//! The result in a terminal.

use taillab_model::load_result::LoadReport;
use taillab_model::load_result::Mode;
use taillab_model::summary::{ClientKind, ClientsSummary, Reason};
use taillab_model::threshold::{ErrorCount, Figures, Standing, Threshold};
use taillab_model::{Distribution, Nanos};
use taillab_report::junit::junit;
use taillab_report::load::LoadDocument;
use taillab_report::terminal::{Style, load_screen, render_load};

use super::samples;
use crate::common::without_colours;

fn style(width: usize) -> Style {
    Style {
        colour: false,
        width,
    }
}

/// With a limit that is held, one that is not, and one that the sample does not decide.
#[test]
fn a_load_on_one_screen() {
    let mut sample = samples::sample(Nanos::from_secs(20));
    hold_some_limits(&mut sample.report);
    let text = load_screen(&sample.document(), Some("./load-1"), Style::PLAIN);
    assert!(text.lines().count() <= 45, "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn junit_has_a_case_for_the_verdict_and_for_each_limit() {
    let mut sample = samples::sample(Nanos::from_secs(20));
    hold_some_limits(&mut sample.report);
    sample.report.target = "http://[::1]/?a=1&b=<2>".to_owned();
    let text = String::from_utf8(junit(&sample.report)).unwrap();
    assert!(
        text.contains("tests=\"4\" failures=\"1\" errors=\"1\""),
        "{text}"
    );
    assert!(text.contains("name=\"p50&lt;=1s\""), "{text}");
    assert!(text.contains("a=1&amp;b=&lt;2&gt;"), "{text}");
    assert_eq!(text.matches("<testcase ").count(), 4);
    sample.report.verdict.valid = false;
    sample.report.verdict.reasons = vec![Reason::new("no_answer", "none was answered")];
    let text = String::from_utf8(junit(&sample.report)).unwrap();
    assert!(
        text.contains("<error message=\"none was answered\"/>"),
        "{text}"
    );
}

fn hold_some_limits(report: &mut LoadReport) {
    let load = report.load.as_ref().unwrap();
    let figures = Figures {
        before: None,
        latency: &load.response_time,
        latency_name: "response time",
        errors: ErrorCount {
            failed: load.errors.failed_requests(),
            all: load.requests,
        },
        standing: Standing::Sound,
    };
    report.assertions = ["p50<=1s", "p99<=1us", "p99.999<=1ms"]
        .map(|limit| limit.parse::<Threshold>().unwrap().hold(&figures))
        .to_vec();
}

#[test]
fn a_valid_load_in_80_columns() {
    let sample = samples::sample(Nanos::from_secs(20));
    let text = render_load(&sample.document(), Some("./load-1"), Style::PLAIN);
    insta::assert_snapshot!(text);
}

/// Who the clients were stands where their connections are, and their waits beside the other parts of the response time.
#[test]
fn clients_and_their_waits_for_connections_are_shown() {
    let mut sample = samples::sample(Nanos::from_secs(1));
    let load = sample.report.load.as_mut().unwrap();
    let times: Vec<Nanos> = (0..20_000).map(|i| Nanos::from_micros(i / 200)).collect();
    load.clients = Some(ClientsSummary {
        kind: ClientKind::Independent,
        connections: 300,
        pipeline: Some(1),
        waited: 19_800,
        waited_share: 0.99,
        wait: Some(Distribution::from_sorted(&times)),
        connecting: None,
    });
    let text = render_load(&sample.document(), None, Style::PLAIN);
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let who = "independent clients, 300 connections, one request at a time on each";
    assert_eq!(flat.matches(who).count(), 2, "{text}");
    assert!(
        flat.contains("99.00 % of the requests (19,800) waited"),
        "{text}"
    );
    let heads = text
        .lines()
        .find(|line| line.contains("lateness") || line.contains("late "));
    assert!(heads.unwrap().contains("wait"), "{text}");
}

/// Ended after 100 ms without a floor, of another process, with errors of several kinds.
#[test]
fn an_invalid_partial_load_in_60_columns() {
    use taillab_model::summary::ArrivalsReference;
    let mut sample = samples::sample(Nanos::from_millis(100));
    sample.report.partial = true;
    let generator = &mut sample.report.server.generator;
    (generator.capacity, generator.floor, generator.wire) = (None, None, None);
    generator.floor_absent_because = Some("the load is on another host".to_owned());
    let load = sample.report.load.as_mut().unwrap();
    load.target_utilization = None;
    load.arrivals.process = "mmpp2:ratio=10".to_owned();
    load.arrivals.reference = ArrivalsReference::Schedule;
    load.arrivals.idc[0].expected = Some(7.5);
    load.errors.timeouts = 3;
    load.errors.lost_with_connection = 12;
    load.client.busy_share = 0.97;
    sample.report.verdict.valid = false;
    sample.report.verdict.reasons = vec![Reason::new(
        "no_answer",
        "none of 1,000 requests was answered: check that the target speaks this protocol",
    )];
    let document = LoadDocument {
        curves: &[],
        ..sample.document()
    };
    insta::assert_snapshot!(render_load(&document, None, style(60)));
}

#[test]
fn a_search_in_100_columns() {
    insta::assert_snapshot!(render_load(
        &LoadDocument::of(&samples::search()),
        None,
        style(100)
    ));
}

#[test]
fn a_sweep_in_80_columns() {
    insta::assert_snapshot!(render_load(
        &LoadDocument::of(&samples::sweep()),
        None,
        Style::PLAIN
    ));
}

#[test]
fn a_closed_loop_in_80_columns() {
    let result = samples::closed_loop(Mode::ClosedLoop);
    insta::assert_snapshot!(render_load(&LoadDocument::of(&result), None, Style::PLAIN));
}

#[test]
fn ping_pong_says_on_how_many_connections() {
    let mut result = samples::closed_loop(Mode::PingPong);
    let mut shows = |connections, line| {
        result.server.generator.connections = connections;
        let text = render_load(&LoadDocument::of(&result), None, Style::PLAIN);
        assert!(text.contains(line), "{line} in {text}");
    };
    shows(1, "ping-pong: one request in flight on 1 connection\n");
    shows(
        16,
        "ping-pong: one request in flight on each of 16 connections\n",
    );
}

#[test]
fn a_search_that_found_nothing_says_what_to_do() {
    let mut search = samples::search();
    let found = search.server.generator.found.as_mut().unwrap();
    (found.held, found.rate_per_s, found.utilization) = (false, None, None);
    (found.surely_holds_per_s, found.surely_fails_per_s) = (None, None);
    let text = render_load(&LoadDocument::of(&search), None, Style::PLAIN);
    assert!(text.contains("no measured rate meets p99.9<=1ms"), "{text}");
    assert!(text.contains("measure longer"), "{text}");
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    let sample = samples::sample(Nanos::from_secs(2));
    for width in [60, 70, 80, 96, 110] {
        let texts = [
            render_load(&sample.document(), Some("./x"), style(width)),
            render_load(&LoadDocument::of(&samples::search()), None, style(width)),
            render_load(&LoadDocument::of(&samples::sweep()), None, style(width)),
            render_load(
                &LoadDocument::of(&samples::closed_loop(Mode::PingPong)),
                None,
                style(width),
            ),
        ];
        for line in texts.iter().flat_map(|text| text.lines()) {
            let columns = line.chars().count();
            assert!(columns <= width, "{columns} columns of {width}: {line}");
        }
    }
}

#[test]
fn what_the_sample_cannot_tell_is_no_number_and_says_what_it_needs() {
    let sample = samples::sample(Nanos::from_millis(500));
    let response = &sample.report.load.as_ref().unwrap().response_time;
    assert_eq!(response.quantile(0.9999), None);
    let text = render_load(&sample.document(), None, Style::PLAIN);
    let line = text.lines().find(|line| line.contains("p99.99 ")).unwrap();
    assert!(line.contains("needs at least 39,000 requests"), "{line}");
    let more = 400_000 - response.count;
    assert!(more > 300_000);
    let lacking = "Too few samples for p99.99: about 400,000 more needed";
    assert!(text.contains(lacking), "{text}");
}

#[test]
fn one_line_says_how_much_is_the_clients_own() {
    let sample = samples::sample(Nanos::from_secs(2));
    let text = render_load(&sample.document(), None, style(110));
    let response = &sample.report.load.as_ref().unwrap().response_time;
    let response = response.quantile(0.5).unwrap();
    let floor = sample.report.generator().floor.as_ref().unwrap();
    let floor = floor.latency().unwrap().quantile(0.5).unwrap();
    let line = format!("Of the p50 of {response} the client’s own floor is {floor} (40 %)");
    assert!(text.contains(&line), "{line} in {text}");
}

#[test]
fn text_from_outside_cannot_steer_the_terminal() {
    let hostile = "\u{1b}]0;owned\u{7}\u{1b}[2J\r\n";
    let (sample, sweep) = samples::hostile(hostile);
    for text in [
        render_load(&sample.document(), Some(hostile), Style::PLAIN),
        render_load(&LoadDocument::of(&sweep), Some(hostile), Style::PLAIN),
    ] {
        assert!(text.contains("owned"));
        let control = text.chars().find(|c| c.is_control() && *c != '\n');
        assert_eq!(control, None);
    }
}

#[test]
fn plain_text_is_the_coloured_text_without_its_colours() {
    let sample = samples::sample(Nanos::from_millis(500));
    let of = |colour| render_load(&sample.document(), None, Style { colour, width: 100 });
    let coloured = of(true);
    assert!(coloured.contains("\u{1b}[1m"));
    assert_eq!(without_colours(&coloured), of(false));
}
