//! The pages of a load and of a sweep.

use taillab_model::Nanos;
use taillab_model::summary::Reason;
use taillab_report::html::{render_load, render_load_sweep};

use super::samples;

/// Elements that are opened are closed, in order; void elements are not.
fn is_balanced(page: &str) -> bool {
    const VOID: [&str; 6] = ["meta", "link", "br", "rect", "line", "circle"];
    let mut open = Vec::new();
    for tag in page.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').unwrap();
        let name = tag.trim_start_matches('/');
        let name = name.split([' ', '\n', '/']).next().unwrap();
        if tag.starts_with('!') || tag.ends_with('/') || VOID.contains(&name) {
            continue;
        }
        if !tag.starts_with('/') {
            open.push(name.to_owned());
        } else if open.pop().as_deref() != Some(name) {
            return false;
        }
    }
    open.is_empty()
}

#[test]
fn the_page_of_a_load_has_its_figures_and_its_verdict() {
    let mut sample = samples::sample(Nanos::from_secs(2));
    sample.result.verdict.valid = false;
    sample.result.verdict.reasons = vec![Reason::new(
        "client_busy",
        "the client was busy: give it more CPUs",
    )];
    let page = String::from_utf8(render_load(&sample.report())).unwrap();
    assert!(is_balanced(&page));
    for text in [
        "client’s floor",
        "INVALID",
        "give it more CPUs",
        "<svg",
        "p99.9",
    ] {
        assert!(page.contains(text), "{text}");
    }
}

#[test]
fn the_page_of_a_search_has_its_answer_and_every_step() {
    let page = String::from_utf8(render_load_sweep(&samples::search())).unwrap();
    assert!(is_balanced(&page));
    assert!(
        page.contains("holds up to 13,793/s, breaks at 16,092/s"),
        "{page}"
    );
    assert!(page.contains("p99.9&lt;=1ms"));
    assert_eq!(page.matches("<tr><th scope=\"row\">").count(), 5);
    assert!(page.contains("overload"));
}

#[test]
fn text_from_outside_is_only_text() {
    let hostile = "<script>alert(1)</script>";
    let mut sample = samples::sample(Nanos::from_millis(100));
    let result = &mut sample.result;
    result.setup.target = hostile.to_owned();
    result.setup.protocol = hostile.to_owned();
    result.setup.transport = hostile.to_owned();
    result.load.arrivals.process = hostile.to_owned();
    result.floor.as_mut().unwrap().responder = hostile.to_owned();
    result.verdict.reasons = vec![Reason::new("hostile", hostile)];
    result.verdict.warnings = vec![Reason::new("hostile", hostile)];
    let mut sweep = samples::sweep();
    sweep.setup.target = hostile.to_owned();
    sweep.floor_absent_because = Some(hostile.to_owned());
    for page in [render_load(&sample.report()), render_load_sweep(&sweep)] {
        let page = String::from_utf8(page).unwrap();
        assert!(page.contains("&lt;script&gt;alert"));
        assert!(!page.contains("<script"));
    }
}
