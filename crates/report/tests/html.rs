//! The page as text; `chromium.rs` looks at it in a browser.

use serde_json::json;
use taillab_model::Nanos;
use taillab_model::summary::Reason;
use taillab_report::{Document, html};

use crate::common;

fn page(report: &Document<'_>) -> String {
    String::from_utf8(html::render(report)).unwrap()
}

pub(crate) fn refers_to_nothing_outside(page: &str) {
    // the only URLs are the namespaces of the icon and in the script, which no browser fetches
    for (at, _) in page.match_indices("://") {
        let start = at.saturating_sub(4);
        assert!(
            page[start..].starts_with("http://www.w3.org/2000/svg"),
            "{}",
            &page[start..at + 30]
        );
    }
    for attribute in [
        "src=", "@import", "url(", "<iframe", "<object", "<base", "style=\"",
    ] {
        assert!(!page.contains(attribute), "{attribute}");
    }
}

#[test]
fn the_page_refers_to_nothing_outside_itself() {
    let sample = common::sample(Nanos::from_secs(2));
    let page = page(&sample.report());
    refers_to_nothing_outside(&page);
    assert_eq!(
        page.matches("href=").count(),
        page.matches("href=\"data:image/svg+xml").count()
    );
    assert!(page.len() < 3_000_000);
}

#[test]
fn the_policy_allows_the_page_its_own_style_and_script_only() {
    let sample = common::sample(Nanos::from_millis(100));
    let page = page(&sample.report());
    let policy = page
        .split("Content-Security-Policy\" content=\"")
        .nth(1)
        .unwrap();
    let policy = policy.split('"').next().unwrap();
    assert!(
        policy.starts_with("default-src 'none'; style-src 'sha256-"),
        "{policy}"
    );
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(policy.matches("'sha256-").count(), 2);
}

/// No text of the report may end up as markup, wherever it comes from.
#[test]
fn hostile_text_stays_text() {
    let hostile =
        "</script></title></pre><script>alert(1)</script><img src=x onerror=alert(1)>\"'&";
    let mut sample = common::sample(Nanos::from_millis(100));
    let summary = &mut sample.summary;
    summary.target = hostile.to_owned();
    summary.command = hostile.to_owned();
    summary.load.as_mut().unwrap().arrivals.process = hostile.to_owned();
    summary.verdict.valid = false;
    summary.verdict.reasons = vec![Reason::new("hostile", hostile)];
    summary.verdict.warnings = vec![Reason::new("hostile", hostile)];
    for hook in &mut summary.server.matching.hooks {
        hook.stamp = hostile.to_owned();
        hook.hook = hostile.to_owned();
        hook.lost_precision = Some(hostile.to_owned());
    }
    sample.experiment_toml = hostile.to_owned();
    sample.environment = json!({ hostile: { hostile: [hostile, { hostile: hostile }] } });
    let page = page(&sample.report());
    assert!(!page.contains("<img"));
    assert_eq!(
        page.matches("</script>").count(),
        2,
        "the data and the script"
    );
    assert!(!page.contains("alert(1)</script>"));
    // 1 title, 4 head, 1 reason, 1 warning, … : it is all there, as text
    assert!(
        page.matches("&lt;img src=x onerror=alert(1)&gt;&quot;&#39;&amp;")
            .count()
            > 10
    );
}

/// Beside a busy loop on the generator's CPU there were three boxes, all of which said that it was held up.
#[test]
fn a_generator_that_was_held_up_is_one_notice() {
    let mut sample = common::sample(Nanos::from_secs(20));
    sample.summary.scheduled = Some(common::held_up(&sample.summary));
    let load = sample.summary.load.as_mut().unwrap();
    (load.sent_rate_per_s, load.client.busy_share) = (12_000.0, 0.991);
    let warning = |key: &str| Reason::new(key, format!("seen for {key}: give it a CPU"));
    sample.summary.verdict.warnings = ["rate_missed", "client_busy", "cut"].map(warning).to_vec();
    let text = page(&sample.report());
    let (head, rest) = text.split_once("</header>").unwrap();
    let said = "The generator was held up for 12 % of the time (it was busy for 99 %, and sent 12,000 of 17,241 \
                requests/s): a client on schedule";
    let plain = head.replace(['\u{a0}', '\u{202f}'], " ");
    assert!(plain.contains(said), "{head}");
    assert_eq!(head.matches("class=\"notice").count(), 1, "{head}");
    // each of them, with what to do, is among the checks
    for key in ["rate_missed", "client_busy", "cut"] {
        assert!(
            rest.contains(&format!("seen for {key}: give it a CPU")),
            "{key}"
        );
    }
}

#[test]
fn a_run_without_requests_still_has_a_page() {
    let mut sample = common::sample(Nanos::from_millis(100));
    let nothing = taillab_model::Distribution::from_sorted(&[]);
    let summary = &mut sample.summary;
    summary.load.as_mut().unwrap().requests = 0;
    summary.load.as_mut().unwrap().response_time = nothing.clone();
    summary.server.measured.sojourn = nothing.clone();
    summary.server.ideal.sojourn = nothing.clone();
    summary.server.excess = nothing.clone();
    summary.server.stages.t1_t2 = nothing;
    summary.server.stages_at.clear();
    summary.server.matching = taillab_model::summary::Matching::default();
    let report = Document {
        curves: &[],
        ..sample.report()
    };
    let page = page(&report);
    assert!(page.contains("needs ") && page.contains("no request"));
    assert!(!page.contains("NaN") && !page.contains("inf"));
}
