//! The pages of a load and of a sweep.

use taillab_model::Nanos;
use taillab_model::summary::Reason;
use taillab_report::html::render_load;
use taillab_report::load::LoadDocument;

use super::samples;

/// Whether all elements except void ones are closed in order.
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
    sample.report.verdict.valid = false;
    sample.report.verdict.reasons = vec![Reason::new(
        "no_answer",
        "none of 7 requests was answered: check the protocol",
    )];
    let page = String::from_utf8(render_load(&sample.document())).unwrap();
    assert!(is_balanced(&page));
    for text in [
        "client’s floor",
        "INVALID",
        "check the protocol",
        "<svg",
        "p99.9",
    ] {
        assert!(page.contains(text), "{text}");
    }
}

/// What a load does to a server that does not keep up is said before the first figure.
#[test]
fn the_page_of_an_overload_says_so_at_its_top() {
    let mut sample = samples::sample(Nanos::from_secs(2));
    let text = "answers took longer throughout, 9 per second were answered: lower the load";
    sample.report.verdict.warnings = vec![Reason::new("growing", text)];
    let page = String::from_utf8(render_load(&sample.document())).unwrap();
    let (head, _) = page.split_once("</header>").unwrap();
    assert!(
        head.contains("answers took longer throughout, 9 per second were answered."),
        "{head}"
    );
}

#[test]
fn the_page_of_a_search_has_its_answer_and_every_step() {
    let page = String::from_utf8(render_load(&LoadDocument::of(&samples::search()))).unwrap();
    assert!(is_balanced(&page));
    assert!(
        page.contains("met up to 13,793/s, missed at 16,092/s"),
        "{page}"
    );
    assert!(page.contains("p99.9&lt;=1ms"));
    assert_eq!(page.matches("<tr><th scope=\"row\">").count(), 5);
    assert!(page.contains("overload"));
}

#[test]
fn text_from_outside_is_only_text() {
    let (sample, sweep) = samples::hostile("<script>alert(1)</script>");
    for page in [
        render_load(&sample.document()),
        render_load(&LoadDocument::of(&sweep)),
    ] {
        let page = String::from_utf8(page).unwrap();
        assert!(page.contains("&lt;script&gt;alert"));
        assert!(!page.contains("<script"));
    }
}
