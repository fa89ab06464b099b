//! The result as it appears in a terminal.

use taillab_model::explanation::{Cause, Share};
use taillab_model::summary::{
    BusyPeriods, ClaimName, ClientKind, ClientsSummary, Closing, ConnectingSummary, LimitedBy,
    NoScaling, OwnWork, Reason, Scaling, ServiceTimeSource,
};
use taillab_model::{Distribution, Nanos};
use taillab_report::terminal::{NextStep, Style, render, screen};
use taillab_report::{Document, figures, html};

use crate::common;

/// The maximum number of lines of a screen.
const LINES: usize = 45;

#[test]
fn a_run_on_one_screen() {
    let sample = common::sample(Nanos::from_secs(20));
    let next = [NextStep::new(
        "sudo taillab run memcached -d 60s",
        "three times as long: p99.99 is known then",
    )];
    let text = screen(
        &sample.report(),
        Some("./taillab-memcached-1/report.html"),
        &next,
        Style::PLAIN,
    );
    assert!(text.lines().count() <= LINES, "{text}");
    insta::assert_snapshot!(text);
}

/// The sender took queueing away, so p99 is nearer to the ideal of the arrivals as intended. Where it was held up
/// until nothing is known of p99 on schedule, the two loads are not compared.
#[test]
fn p99_is_also_held_against_the_schedule() {
    let mut sample = common::sample(Nanos::from_secs(20));
    let said = |sample: &mut common::Sample, longer: u64| {
        let ideal = &mut sample.summary.server.ideal;
        let mut of_schedule = ideal.sojourn.clone();
        for at in &mut of_schedule.quantiles {
            at.value = at.value.map(|value| Nanos::new(value.get() * longer / 100));
        }
        ideal.of_schedule = Some(of_schedule);
        let screen = screen(&sample.report(), None, &[], Style::PLAIN);
        let page = String::from_utf8(html::render(&sample.report())).unwrap();
        let words = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
        [screen, page].map(|text| words(text).contains("poisson arrivals as intended"))
    };
    assert_eq!(said(&mut sample, 114), [true, true]);
    assert_eq!(said(&mut sample, 96), [true, true]);
    assert_eq!(said(&mut sample, 102), [false, false]);
    let mut held_up = common::held_up(&sample.summary);
    sample.summary.scheduled = Some(held_up.clone());
    assert_eq!(said(&mut sample, 114), [true, true]);
    held_up.claims = common::claims(&[(ClaimName::P99, "lateness")]);
    sample.summary.scheduled = Some(held_up);
    assert_eq!(said(&mut sample, 114), [false, false]);
}

/// Requests differ in their work, so ratios are to the ideal of each one's own: table and cards show that ideal.
#[test]
fn screen_and_page_show_the_ideal_that_ratios_are_to() {
    let mut sample = common::sample(Nanos::from_secs(20));
    let ideal = &mut sample.summary.server.ideal;
    let mut own = ideal.sojourn.clone();
    for at in &mut own.quantiles {
        at.value = at.value.map(|value| value * 2);
    }
    let value = |of: &Distribution| figures::micros(of.quantile(0.99).unwrap());
    let in_words = |of: &Distribution| format!("<span>{}</span>", of.quantile(0.99).unwrap());
    let (of_t, of_own) = (value(&ideal.sojourn), value(&own));
    ideal.own_work = Some(OwnWork::new(own, 2.1));
    let text = screen(&sample.report(), None, &[], Style::PLAIN);
    let row = |text: &str| {
        let mut rows = text
            .lines()
            .filter(|line| line.trim_start().starts_with("p99 "));
        rows.next().unwrap().to_owned()
    };
    assert!(row(&text).contains(&of_own), "{text}");
    assert!(!row(&text).contains(&of_t), "{text}");
    assert!(text.contains(&format!("p99 {of_t} µs")), "{text}");
    let page = String::from_utf8(html::render(&sample.report())).unwrap();
    let cards = page
        .split("class=\"card\"")
        .skip(1)
        .map(|rest| rest.split("</ul>").next().unwrap());
    let of_p99 = cards.filter(|card| card.contains("<h3>p99</h3>"));
    let of_p99: String = of_p99.collect();
    let (of_t, of_own) = (
        in_words(&sample.summary.server.ideal.sojourn),
        in_words(sample.summary.server.ideal.base()),
    );
    assert!(
        of_p99.contains(&of_own) && !of_p99.contains(&of_t),
        "{of_p99}"
    );
    assert!(
        !page.contains("that needs exactly t for each"),
        "the ideal has each request's own work"
    );
}

#[test]
fn a_valid_run_in_80_columns() {
    let sample = common::sample(Nanos::from_secs(20));
    let text = render(
        &sample.report(),
        Some("./taillab-memcached-1"),
        Style::PLAIN,
    );
    insta::assert_snapshot!(text);
}

#[test]
fn a_valid_run_in_110_columns_with_colours() {
    let sample = common::sample(Nanos::from_secs(20));
    let style = Style {
        colour: true,
        width: 200,
    };
    let text = render(&sample.report(), None, style);
    insta::assert_snapshot!(text.replace('\u{1b}', "^"));
}

/// Where each request has a connection of its own, opening it is a stage of the client's, with intervals as the others.
#[test]
fn connecting_has_percentiles_with_intervals_on_the_screen_and_on_the_page() {
    let mut sample = common::sample(Nanos::from_secs(20));
    let words = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let wide = Style {
        colour: false,
        width: 110,
    };
    let outputs = |sample: &common::Sample| {
        let screen = |style| words(screen(&sample.report(), None, &[], style));
        let page = String::from_utf8(html::render(&sample.report())).unwrap();
        [screen(Style::PLAIN), screen(wide), words(page)]
    };
    let interval = |of: &Distribution| {
        let p99 = of.at(0.99).unwrap();
        figures::interval(p99.lo, p99.hi)
    };
    for text in outputs(&sample) {
        assert!(!text.contains("connecting"), "{text}");
    }
    let measured = interval(&sample.summary.server.measured.sojourn);
    let load = sample.summary.load.as_mut().unwrap();
    let time = load.lateness.clone();
    let connecting = interval(&time);
    load.clients = Some(ClientsSummary {
        kind: ClientKind::Independent,
        connections: 1_024,
        pipeline: None,
        waited: 0,
        waited_share: 0.0,
        wait: None,
        connecting: Some(ConnectingSummary {
            connected: time.count,
            refused: 0,
            timed_out: 0,
            failed: 0,
            closing: Closing::Client,
            time,
        }),
    });
    let [narrow, wide, page] = outputs(&sample);
    // where there is little room, the measured latency keeps its intervals
    assert!(narrow.contains("connect"), "{narrow}");
    assert!(narrow.contains(&measured), "{measured}: {narrow}");
    for text in [wide, page] {
        assert!(text.contains("connecting"), "{text}");
        assert!(text.contains(&connecting), "{connecting}: {text}");
    }
}

/// Two lines say what a client on schedule would have waited; who held the generator up is among the checks.
#[test]
fn a_generator_that_was_held_up_is_two_lines() {
    let mut sample = common::sample(Nanos::from_secs(20));
    sample.summary.scheduled = Some(common::held_up(&sample.summary));
    let said = |text: &str| -> Vec<String> {
        let lines = text.lines().map(str::to_owned);
        let from = lines.skip_while(|line| !line.contains("The generator was held up"));
        let mut from = from.enumerate();
        let its = from
            .by_ref()
            .take_while(|(n, line)| *n == 0 || line.starts_with("    "));
        its.map(|(_, line)| line).collect()
    };
    let short = screen(&sample.report(), None, &[], Style::PLAIN);
    let long = render(&sample.report(), None, Style::PLAIN);
    for text in [&short, &long] {
        assert_eq!(
            said(text),
            [
                "  ! The generator was held up for 12 % of the time: a client on schedule would",
                "    have waited p99 837 µs (810–866), p99.9 1.90 ms (1.81–1.97)",
            ],
            "{text}"
        );
    }
    let unfolded = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for detail in [
        "held up (by stress (pid 77) on CPU 0) for 12.40 % of the time (43,120 requests): 410 × the generator was \
         not on its CPU",
        "a client on schedule (Poisson arrivals at 17,241/s) would have waited, as measured, p50 107 µs",
    ] {
        assert!(unfolded(&long).contains(detail), "{long}");
        assert!(!unfolded(&short).contains(detail), "{short}");
    }

    // the longest that it can be: no percentile was measured on schedule, or a stall may have hidden anything
    let mut worst = sample.summary.server.measured.sojourn.clone();
    for at in &mut worst.quantiles {
        (at.value, at.lo) = (at.value.map(|value| value * 900), at.lo.map(|lo| lo * 900));
        at.hi = at.hi.map(|hi| hi * 900);
    }
    sample.summary.scheduled.as_mut().unwrap().at_worst = Some(worst);
    let text = screen(&sample.report(), None, &[], Style::PLAIN);
    let lines = said(&text);
    assert!(lines.len() == 2, "{text}");
    assert!(
        lines[1].ends_with("at p99.9, as the server may have stalled too"),
        "{text}"
    );

    // too little to matter is not on the screen
    let view = sample.summary.scheduled.as_mut().unwrap();
    view.cut.as_mut().unwrap().share = 0.004;
    let short = screen(&sample.report(), None, &[], Style::PLAIN);
    assert!(!short.contains("held up"), "{short}");
}

/// Interrupted after 100 ms: too few requests for the tail, lost events, nothing to draw.
#[test]
fn an_invalid_partial_run_in_60_columns() {
    let mut sample = common::sample(Nanos::from_millis(100));
    let summary = &mut sample.summary;
    summary.partial = true;
    summary.server.matching.lost_events = 1_204;
    summary.load.as_mut().unwrap().arrivals.passed = false;
    summary.load.as_mut().unwrap().errors.timeouts = 3;
    summary.server.overhead.pairs = 0;
    summary.server.overhead.throughput_loss = None;
    summary.verdict.valid = false;
    summary.verdict.reasons = vec![
        Reason::new(
            "lost_events",
            "1,204 events were lost because the ring buffer was full; give it more room with \
         --ring-buffer",
        ),
        Reason::new(
            "arrivals",
            "the gaps between the sends are not Poisson (KS D 0.31 above 0.0023)",
        ),
    ];
    let report = Document {
        curves: &[],
        ..sample.report()
    };
    let style = Style {
        colour: false,
        width: 60,
    };
    insta::assert_snapshot!(render(&report, None, style));
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    let sample = common::sample(Nanos::from_secs(2));
    for width in [60, 70, 80, 96, 110] {
        let style = Style {
            colour: false,
            width,
        };
        for line in render(&sample.report(), None, style).lines() {
            let columns = line.chars().count();
            assert!(columns <= width, "{columns} columns of {width}: {line}");
        }
    }
}

#[test]
fn a_quantile_without_support_is_never_a_number() {
    let sample = common::sample(Nanos::from_millis(500));
    assert_eq!(
        sample.summary.server.measured.sojourn.quantile(0.9999),
        None
    );
    let text = render(&sample.report(), None, Style::PLAIN);
    let line = text.lines().find(|line| line.contains("p99.99 ")).unwrap();
    assert!(line.contains("needs at least 39,000 requests"), "{line}");
}

#[test]
fn a_peak_that_is_not_the_servers_says_so() {
    let mut sample = common::sample(Nanos::from_millis(100));
    let mut text = |limited_by: LimitedBy, virtual_workers: bool| {
        sample.summary.calibration.as_mut().unwrap().limited_by = limited_by;
        sample.summary.server.ideal.virtual_workers = virtual_workers;
        let text = render(&sample.report(), None, Style::PLAIN);
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let because = |why: &str| format!("the peak is not the server’s: {why}");
    let client = text(LimitedBy::Client, false);
    assert!(
        client.contains(&because("the client could not send faster")),
        "{client}"
    );
    let waits = text(LimitedBy::Waits, false);
    let why = because("requests waited for something other than a CPU");
    assert!(waits.contains(&why), "{waits}");
    for own in [text(LimitedBy::Server, false), text(LimitedBy::Waits, true)] {
        assert!(!own.contains(&because("")), "{own}");
    }
}

/// What busy periods and the peak say of a request's cost agrees within a tenth, or the difference has a name.
#[test]
fn t_and_the_peak_agree_or_their_difference_has_a_name() {
    let mut sample = common::sample(Nanos::from_millis(100));
    let server = &mut sample.summary.server;
    server.service_time_ns = Nanos::from_micros(20);
    server.service_time_source = ServiceTimeSource::BusyPeriods;
    server.busy_periods = Some(BusyPeriods {
        service_time_ns: Nanos::from_micros(20),
        lo_ns: Nanos::from_micros(19),
        hi_ns: Nanos::from_micros(21),
        receive_ns: Nanos::from_micros(9),
        after_response_ns: Nanos::from_micros(3),
        seen: 4_000,
        left_out: 0,
    });
    let mut told = |peak_per_s: f64, limited_by: LimitedBy| {
        let calibration = sample.summary.calibration.as_mut().unwrap();
        (calibration.peak_per_s, calibration.limited_by) = (peak_per_s, limited_by);
        let page = String::from_utf8(html::render(&sample.report())).unwrap();
        let from = page.find("; the peak of ").expect("the peak is beside t");
        let said = &page[from..];
        said[..said.find('<').unwrap()].replace('\u{a0}', " ")
    };
    let near = told(52_000.0, LimitedBy::Server);
    assert_eq!(near, "; the peak of 52,000/s says 19.2 µs");
    let faster = told(80_000.0, LimitedBy::Server);
    assert!(
        faster.ends_with(
            "12.5 µs: without the probe, and with more requests at once, one costs less"
        )
    );
    for (limited_by, why) in [
        (LimitedBy::Server, "at the peak a request costs more"),
        (LimitedBy::Others, "other programs used its CPUs there"),
        (LimitedBy::Client, "the client was the limit there"),
        (
            LimitedBy::Waits,
            "requests waited for something other than a CPU there",
        ),
    ] {
        let slower = told(40_000.0, limited_by);
        assert!(slower.contains(&format!("µs: {why}")), "{slower}");
    }
}

/// t is CPU time: of a server that waits for a disk or a lock, the ideal leaves that out.
#[test]
fn a_t_without_what_the_server_waits_for_says_so() {
    let mut sample = common::explained::trace(Nanos::from_secs(20));
    let said = "what requests wait for inside the server";
    let told = |sample: &common::explained::TraceSample| {
        let page = String::from_utf8(html::render(&sample.report())).unwrap();
        page.contains(said)
    };
    let is_wait = |cause: Cause| cause.key().starts_with("blocked") || cause == Cause::Upstream;
    sample
        .summary
        .server
        .causes
        .retain(|share| !is_wait(share.cause));
    assert!(!told(&sample));
    let mut waits = sample.summary.server.causes[0].clone();
    (waits.cause, waits.culprit) = (Cause::BlockedIo, None);
    waits.share.value = 0.3;
    sample.summary.server.causes.push(waits);
    assert!(told(&sample));
    // a t that was given may contain it
    sample.summary.server.service_time_source = ServiceTimeSource::Given;
    assert!(!told(&sample));
}

/// Lock and cache contention would vanish in a t that comes from all cores.
#[test]
fn what_several_workers_reach_of_as_many_times_one_is_a_line_of_its_own() {
    let mut sample = common::sample(Nanos::from_millis(100));
    let text = |sample: &common::Sample| {
        let page = String::from_utf8(html::render(&sample.report())).unwrap();
        let screen = screen(&sample.report(), None, &[], Style::PLAIN);
        assert_eq!(page.contains("Scaling"), screen.contains("  scaling  "));
        screen.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(!text(&sample).contains("one alone"));
    sample.summary.server.ideal.workers = 4;
    let scaling = Scaling {
        workers: 4,
        one_per_s: Some(43_900.0),
        reached: Some(Share {
            value: 0.861,
            lo: Some(0.82),
            hi: Some(0.903),
        }),
        not_known_because: None,
    };
    let with = |sample: &mut common::Sample, scaling| {
        sample.summary.calibration.as_mut().unwrap().scaling = Some(scaling);
        text(sample)
    };
    let known = with(&mut sample, scaling);
    let said = "scaling 4 workers reach 151,192/s together, 86.1 % (82.0–90.3) of 4 × one alone (43,900/s)";
    assert!(known.contains(said), "{known}");
    let unknown = Scaling {
        reached: None,
        not_known_because: Some(NoScaling::PeakIsNotOfServer),
        ..scaling
    };
    let unknown = with(&mut sample, unknown);
    let said = "what 4 workers reach of 4 × one alone is not known: the server was not the limit at the peak";
    assert!(unknown.contains(said), "{unknown}");
}

#[test]
fn text_from_outside_cannot_steer_the_terminal() {
    let mut sample = common::sample(Nanos::from_millis(100));
    let hostile = "\u{1b}]0;owned\u{7}\u{1b}[2J\r\n";
    let summary = &mut sample.summary;
    summary.target = hostile.to_owned();
    summary.command = hostile.to_owned();
    summary.load.as_mut().unwrap().arrivals.process = hostile.to_owned();
    summary.verdict.reasons = vec![Reason::new("hostile", hostile)];
    summary.verdict.warnings = vec![Reason::new("hostile", hostile)];
    for hook in &mut summary.server.matching.hooks {
        hook.lost_precision = Some(hostile.to_owned());
    }
    let text = render(&sample.report(), Some(hostile), Style::PLAIN);
    assert!(text.contains("owned"));
    let control = text.chars().find(|c| c.is_control() && *c != '\n');
    assert_eq!(control, None);
}

#[test]
fn plain_text_is_the_coloured_text_without_its_colours() {
    let sample = common::sample(Nanos::from_millis(500));
    let of = |colour| render(&sample.report(), None, Style { colour, width: 100 });
    let coloured = of(true);
    assert!(coloured.contains("\u{1b}[1m"));
    assert_eq!(common::without_colours(&coloured), of(false));
}
