//! The page in a real browser: what it shows, with and without scripts, and that it
//! neither complains nor fetches anything.

use serde_json::{Value, json};
use taillab_model::Nanos;
use taillab_report::chart::{Axis, Chart, Curve, MOST_CURVES};
use taillab_report::html;
use taillab_report::html::figure;
use taillab_report::html::page::{Head, plain_document};
use taillab_report::table::{Column, Table, cell};

use crate::browser::Browser;
use crate::browser::page::{Page, fits, fits_and_captions_stay};
use crate::common;
use crate::common::Sample;

fn report_page(sample: &Sample) -> Page {
    Page::of(&html::render(&sample.report()))
}

/// The text that a person sees.
const TEXT: &str = "document.body.innerText.replaceAll('\\u00a0', ' ')";

fn assert_figures(browser: &mut Browser, sample: &Sample) {
    let text = browser.value(TEXT);
    let text = text.as_str().unwrap();
    let summary = &sample.summary;
    for distribution in [
        &summary.server.ideal.sojourn,
        &summary.server.measured.sojourn,
        &summary.load.as_ref().unwrap().response_time,
    ] {
        for q in [0.5, 0.9, 0.99, 0.999] {
            let micros = distribution.quantile(q).unwrap().as_micros_f64();
            let figure = format!("{:.1}", micros % 1000.0);
            assert!(
                text.contains(&figure),
                "{figure} of p{} is missing",
                q * 100.0
            );
        }
    }
    for what in [
        "memcached",
        "VALID",
        "43.5 µs",
        "75.0 %",
        "T2–T3",
        "blind windows",
    ] {
        assert!(text.contains(what), "{what} is missing");
    }
}

/// The size on the screen of everything that the selector finds: [[width, height], …].
fn sizes(browser: &mut Browser, selector: &str) -> Vec<(f64, f64)> {
    let found = browser.value(&format!(
        "[...document.querySelectorAll({selector:?})].map((e) => {{ const b = e.getBoundingClientRect(); return [b.width, b.height]; }})"
    ));
    serde_json::from_value(found).unwrap()
}

fn assert_drawings(browser: &mut Browser) {
    let curves = sizes(browser, ".curves path.curve");
    assert_eq!(curves.len(), 3);
    assert!(
        curves.iter().all(|(w, h)| *w > 200.0 && *h > 200.0),
        "{curves:?}"
    );
    let bars = sizes(browser, ".bar");
    assert_eq!(bars.len(), 6);
    assert!(
        bars.iter().all(|(w, h)| *w > 200.0 && *h > 20.0),
        "{bars:?}"
    );
    let segments = sizes(browser, ".bar rect");
    assert_eq!(segments.len(), 30);
    assert!(
        segments.iter().all(|(w, h)| *w > 0.0 && *h > 20.0),
        "{segments:?}"
    );
}

#[test]
fn the_page_shows_the_figures_and_can_be_used() {
    let Some(mut browser) = Browser::launch("the_page_shows_the_figures_and_can_be_used") else {
        return;
    };
    let sample = common::sample(Nanos::from_secs(20));
    let page = report_page(&sample);
    browser.call(
        "Emulation.setDeviceMetricsOverride",
        json!({ "width": 1200, "height": 1400, "deviceScaleFactor": 1, "mobile": false }),
    );
    browser.open(&page.file);
    assert_figures(&mut browser, &sample);
    assert_drawings(&mut browser);

    // the slider starts at p99 and says what the table says
    let read = "document.querySelector('.reading output').innerText";
    let reading = browser.value(read);
    let p99 = sample
        .summary
        .server
        .measured
        .sojourn
        .quantile(0.99)
        .unwrap();
    let reading = reading.as_str().unwrap();
    assert!(
        reading.contains("99.00 %") && reading.contains(&p99.to_string()),
        "{reading}"
    );

    // the pointer reads off where it is
    let frame = "document.querySelector('.frame').getBoundingClientRect()";
    let place = browser.value(&format!(
        "(() => {{ const b = {frame}; return [b.left, b.top, b.width, b.height]; }})()"
    ));
    let [left, top, width, height]: [f64; 4] = serde_json::from_value(place).unwrap();
    browser.mouse("mouseMoved", left + width * 0.5, top + height * 0.6);
    let moved = browser.value(read);
    assert!(
        moved.as_str().unwrap().contains("99.9") && moved != json!(reading),
        "{moved}"
    );
    assert_eq!(sizes(&mut browser, ".cursor circle").len(), 3);

    // dragging enlarges; the button, which shows only then, goes back
    let path = "document.querySelector('.curves .measured').getAttribute('d')";
    let labels =
        "[...document.querySelectorAll('.ticks text')].map((t) => t.textContent).join('|')";
    let (whole, whole_labels) = (browser.value(path), browser.value(labels));
    assert_eq!(
        browser.value("document.querySelector('.reset').hidden"),
        json!(true)
    );
    browser.mouse("mousePressed", left + width * 0.5, top + height * 0.3);
    browser.mouse("mouseMoved", left + width * 0.7, top + height * 0.4);
    browser.screenshot("dragging");
    browser.mouse("mouseMoved", left + width * 0.9, top + height * 0.6);
    browser.mouse("mouseReleased", left + width * 0.9, top + height * 0.6);
    assert_ne!(browser.value(path), whole);
    assert_ne!(browser.value(labels), whole_labels);
    browser.screenshot("enlarged");
    browser.value("document.querySelector('.reset').click()");
    assert_eq!(browser.value(labels), whole_labels);
    assert_eq!(
        browser.value("document.querySelector('.reset').hidden"),
        json!(true)
    );

    // a name hides its curve
    let hide = "document.querySelector('[data-series=ideal] button').click()";
    let visibility = "getComputedStyle(document.querySelector('.curves .ideal')).visibility";
    assert_eq!(browser.value(visibility), json!("visible"));
    browser.value(hide);
    assert_eq!(browser.value(visibility), json!("hidden"));
    browser.value(hide);
    assert_eq!(browser.value(visibility), json!("visible"));
    browser.screenshot("page");
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn the_page_reads_without_scripts() {
    let Some(mut browser) = Browser::launch("the_page_reads_without_scripts") else {
        return;
    };
    let sample = common::sample(Nanos::from_secs(20));
    let page = report_page(&sample);
    browser.call(
        "Emulation.setScriptExecutionDisabled",
        json!({ "value": true }),
    );
    browser.open(&page.file);
    assert_figures(&mut browser, &sample);
    assert_drawings(&mut browser);
    assert_eq!(sizes(&mut browser, ".reading").len(), 0, "the script ran");
    let hints = sizes(&mut browser, ".script-only");
    assert_eq!(hints, [(0.0, 0.0)], "a hint at what only the script can do");
    let labels =
        browser.value("[...document.querySelectorAll('.ticks text')].map((t) => t.textContent)");
    for label in ["90 %", "99 %", "99.9 %", "100 µs", "1 ms"] {
        assert!(
            labels.as_array().unwrap().contains(&json!(label)),
            "{label}: {labels}"
        );
    }
    // every table has a caption and names its columns or rows
    let unnamed = browser.value(
        "[...document.querySelectorAll('table')].filter((t) => !t.caption || !t.querySelector('th[scope]')).length",
    );
    assert_eq!(unnamed, json!(0));
}

#[test]
fn the_page_fits_every_width_in_light_and_dark() {
    let Some(mut browser) = Browser::launch("the_page_fits_every_width_in_light_and_dark") else {
        return;
    };
    let sample = common::sample(Nanos::from_secs(20));
    let page = report_page(&sample);
    let mut papers = Vec::new();
    for scheme in ["light", "dark"] {
        browser.call(
            "Emulation.setEmulatedMedia",
            json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] }),
        );
        for width in [360, 768, 1280] {
            fits(&mut browser, &page, width, scheme);
            assert_eq!(browser.complaints(), [""; 0]);
        }
        papers.push(browser.value("getComputedStyle(document.body).backgroundColor"));
    }
    assert_ne!(papers[0], papers[1], "dark is as light");
}

/// Everything that explains has its place, its size and its figures, also without scripts.
#[test]
fn a_trace_is_explained_on_its_page() {
    let Some(mut browser) = Browser::launch("a_trace_is_explained_on_its_page") else {
        return;
    };
    let sample = common::explained::trace(Nanos::from_secs(20));
    let page = Page::of(&html::render(&sample.report()));
    for scripts in [true, false] {
        browser.call(
            "Emulation.setScriptExecutionDisabled",
            json!({ "value": !scripts }),
        );
        browser.call(
            "Emulation.setDeviceMetricsOverride",
            json!({ "width": 1200, "height": 1400, "deviceScaleFactor": 1, "mobile": false }),
        );
        browser.open(&page.file);
        assert_explained(&mut browser);
        if scripts {
            assert_eq!(browser.complaints(), [""; 0]);
        }
    }
    // findings come before every figure
    let order = browser.value("[...document.querySelectorAll('h2')].map((h) => h.id)");
    assert_eq!(order[0], json!("findings"), "{order}");
}

fn assert_explained(browser: &mut Browser) {
    let text = browser.value(TEXT);
    let text = text.as_str().unwrap();
    for what in [
        "kworker/0:1 and dpkg on the core",
        "chrt -a -f -p 50 4711",
        "the busy time of the workers",
        "other threads on the core",
        "dpkg (pid 30122)",
        "misses the measured percentiles by at most 3.1 %",
        "94 % of them come right before or after another slow one",
        "such servers waits at most",
        "taillab itself took 7.1 % of one CPU",
    ] {
        assert!(text.contains(what), "{what} is missing");
    }
    // measured, ideal, multi-queue ideal, replayed, two forecasts
    let curves = sizes(browser, ".curves path.curve");
    assert_eq!(curves.len(), 6);
    assert!(curves.iter().all(|(w, h)| *w > 200.0 && *h > 200.0));
    let colours = browser.value(
        "new Set([...document.querySelectorAll('.curves path.curve')].map((p) => { \
         const s = getComputedStyle(p); return s.stroke + s.strokeDasharray; })).size",
    );
    assert_eq!(colours, json!(6), "two curves look the same");
    let bars = sizes(browser, ".composition .bar");
    assert_eq!(bars.len(), 4);
    assert!(
        bars.iter().all(|(w, h)| *w > 200.0 && *h > 20.0),
        "{bars:?}"
    );
    let parts = browser.value(
        "[...document.querySelectorAll('.composition .bar')].map((bar) => { \
         const whole = bar.getBoundingClientRect().width; \
         return [...bar.querySelectorAll('rect')].reduce((sum, r) => sum + r.getBoundingClientRect().width, 0) / whole; })",
    );
    let parts: Vec<f64> = serde_json::from_value(parts).unwrap();
    assert!(
        parts.iter().all(|share| (0.98..1.05).contains(share)),
        "{parts:?}"
    );
    let unpainted = browser.value(
        "[...document.querySelectorAll('.composition rect, .timeline rect, .heat path')] \
         .filter((e) => getComputedStyle(e).fill === 'rgb(0, 0, 0)').length",
    );
    assert_eq!(unpainted, json!(0), "a figure has no colour");
    let rows = sizes(browser, "details[open] .timeline .bar");
    assert_eq!(rows.len(), 3, "why, and two CPUs");
    assert!(rows.iter().all(|(w, _)| *w > 200.0), "{rows:?}");
    let heat = sizes(browser, ".heat .frame path");
    assert!(
        heat.len() > 3 && heat.iter().all(|(w, h)| *w > 1.0 && *h > 1.0),
        "{heat:?}"
    );
    let lags = sizes(browser, ".lags .frame rect");
    assert_eq!(lags.len(), 14);
    assert!(lags[0].1 > 100.0 && lags[13].1 < 10.0, "{lags:?}");
    assert_eq!(sizes(browser, "table.fan-out tbody tr").len(), 10);
    assert_eq!(sizes(browser, "table.predictions tbody tr").len(), 7);
    let unnamed = browser.value(
        "[...document.querySelectorAll('table')].filter((t) => !t.caption || !t.querySelector('th[scope]')).length",
    );
    assert_eq!(unnamed, json!(0));
}

#[test]
fn an_explanation_fits_every_width_in_light_and_dark() {
    let Some(mut browser) = Browser::launch("an_explanation_fits_every_width_in_light_and_dark")
    else {
        return;
    };
    let sample = common::explained::trace(Nanos::from_secs(20));
    let page = Page::of(&html::render(&sample.report()));
    for scheme in ["light", "dark"] {
        browser.call(
            "Emulation.setEmulatedMedia",
            json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] }),
        );
        for width in [360, 768, 1280] {
            fits(&mut browser, &page, width, &format!("trace-{scheme}"));
            assert_eq!(browser.complaints(), [""; 0]);
        }
    }
}

/// A table that is wider than the page scrolls, and its caption stays readable.
#[test]
fn a_table_that_is_too_wide_scrolls_and_its_caption_stays() {
    let columns = (0..24).map(|n| Column::right(format!("column {n}")));
    let mut table = Table::new("A caption that is longer than the narrowest page", columns);
    for row in 1..4 {
        table.row((0..24).map(|n| cell(format!("{} requests", row * 1_000_000 + n))));
    }
    let head = Head {
        command: "taillab",
        heading: "A table",
        partial: false,
        facts: Vec::new(),
        notices: Vec::new(),
    };
    let page = plain_document("A table", &head, |page| table.put(page));
    let test = "a_table_that_is_too_wide_scrolls_and_its_caption_stays";
    fits_and_captions_stay(test, "table", &page);
}

/// The contrast of every curve with the paper is at least that of graphics in WCAG 2.2, 1.4.11.
#[test]
fn every_curve_can_be_seen_on_white_and_on_dark_paper() {
    const CONTRASTS: &str = "(() => { \
         const light = (colour) => { \
           const [r, g, b] = colour.match(/[0-9]+/g).map((v) => \
             v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4); \
           return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05; }; \
         const paper = light(getComputedStyle(document.body).backgroundColor); \
         const seen = (e) => { const style = getComputedStyle(e); \
           const ink = light(e.matches('circle') ? style.fill : style.stroke); \
           return Math.max(ink, paper) / Math.min(ink, paper); }; \
         return [...document.querySelectorAll('.curve, .plot circle')].map(seen); })()";
    let name = "every_curve_can_be_seen_on_white_and_on_dark_paper";
    let Some(mut browser) = Browser::launch(name) else {
        return;
    };
    let sample = common::explained::trace(Nanos::from_secs(20));
    let curve = |n: usize| {
        let points = vec![(20.0, 1.0), (400.0, 0.01), (9_000.0, 1e-5)];
        Curve::new(format!("curve {n}"), points)
    };
    let many = Chart {
        title: "As many curves as a figure has".to_owned(),
        subtitle: String::new(),
        x: Axis::Latency,
        y: Axis::Slower,
        curves: (0..MOST_CURVES).map(curve).collect(),
        rule: None,
    };
    let head = Head {
        command: "taillab",
        heading: "Curves",
        partial: false,
        facts: Vec::new(),
        notices: Vec::new(),
    };
    let many = plain_document("Curves", &head, |page| figure::put(page, &many));
    for (name, bytes, least) in [
        ("a trace", html::render(&sample.report()), 6),
        ("many curves", many, MOST_CURVES),
    ] {
        let page = Page::of(&bytes);
        for scheme in ["light", "dark"] {
            browser.call(
                "Emulation.setEmulatedMedia",
                json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] }),
            );
            browser.open(&page.file);
            let contrasts = browser.value(CONTRASTS);
            let contrasts: Vec<f64> = serde_json::from_value(contrasts).unwrap();
            assert!(contrasts.len() >= least, "{name}: {contrasts:?}");
            assert!(
                contrasts.iter().all(|contrast| *contrast >= 3.0),
                "{name}, {scheme}: {contrasts:?}"
            );
        }
    }
}

#[test]
fn hostile_names_do_not_run() {
    let Some(mut browser) = Browser::launch("hostile_names_do_not_run") else {
        return;
    };
    let hostile = "</script><script>window.owned = 1</script><img src=http://127.0.0.1:9/ onerror='window.owned = 1'>";
    let mut sample = common::sample(Nanos::from_secs(1));
    sample.summary.target = hostile.to_owned();
    sample.experiment_toml = hostile.to_owned();
    sample.environment = json!({ hostile: hostile });
    let page = report_page(&sample);
    browser.open(&page.file);
    assert_eq!(browser.value("typeof window.owned"), json!("undefined"));
    assert_eq!(browser.value("document.images.length"), json!(0));
    let title = browser.value("document.querySelector('h1').firstChild.textContent.trim()");
    assert_eq!(title, json!(hostile));
    assert_eq!(browser.complaints(), [""; 0]);
}

/// The checks above would see an error if there were one.
#[test]
fn a_page_that_misbehaves_is_caught() {
    let Some(mut browser) = Browser::launch("a_page_that_misbehaves_is_caught") else {
        return;
    };
    let page = Page::of(
        b"<!DOCTYPE html><title>x</title><img src='http://127.0.0.1:9/x.png'>\
          <script>console.error('a word'); setTimeout(() => { throw new Error('thrown'); });</script>",
    );
    browser.open(&page.file);
    let complaints = browser.complaints().join("\n");
    for sign in [
        "request: http://127.0.0.1:9/x.png",
        "a word",
        "Error: thrown",
    ] {
        assert!(complaints.contains(sign), "{sign} is not in {complaints}");
    }

    // and the policy of the real page stops what the markup would let through
    let sample = common::sample(Nanos::from_millis(100));
    let whole = String::from_utf8(html::render(&sample.report())).unwrap();
    let spoilt = whole.replace(
        "</body>",
        "<script>window.owned = 1</script><img src='http://127.0.0.1:9/x.png'></body>",
    );
    assert_ne!(spoilt, whole);
    browser.open(&Page::of(spoilt.as_bytes()).file);
    assert_eq!(
        browser.value("typeof window.owned"),
        Value::from("undefined")
    );
    let complaints = browser.complaints().join("\n");
    assert!(
        complaints.contains("Content Security Policy"),
        "{complaints}"
    );
}
