//! A result as JUnit XML, which CI servers read: a test case for the verdict and one for each limit
//! that was to be held.

use taillab_model::summary::Report;
use taillab_model::threshold::AssertionOutcome;

use crate::markup::{Esc, Markup, put};
use crate::server::verdict_word;

/// The result as one test suite: a limit that is not held is a failure; an undecided limit and an
/// invalid result are errors.
pub fn junit<Server>(report: &Report<Server>) -> Vec<u8> {
    let assertions = &report.assertions;
    let count = |held| assertions.iter().filter(|of| of.outcome == held).count();
    let invalid = usize::from(!report.verdict.valid);
    let (tests, failures) = (1 + assertions.len(), count(AssertionOutcome::Fail));
    let errors = count(AssertionOutcome::Undecided) + invalid;
    let seconds = report.duration_ns.as_secs_f64();
    let name = format!("taillab {} {}", report.command, report.target);
    let (name, class) = (Esc(&name), format!("taillab.{}", Esc(&report.command)));
    let mut page = Markup::default();
    put!(
        page,
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <testsuites tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\">\n\
         <testsuite name=\"{name}\" tests=\"{tests}\" failures=\"{failures}\" \
         errors=\"{errors}\" time=\"{seconds:.3}\">\n"
    );
    let mut case = |name: &str, wrong: Option<(&str, &str)>, said: &str| {
        let name = Esc(name);
        put!(page, "<testcase classname=\"{class}\" name=\"{name}\">");
        if let Some((kind, message)) = wrong {
            put!(page, "<{kind} message=\"{}\"/>", Esc(message));
        }
        put!(page, "<system-out>{}</system-out></testcase>\n", Esc(said));
    };
    let reasons: Vec<&str> = (report.verdict.reasons.iter())
        .map(|reason| reason.text.as_str())
        .collect();
    let reasons = reasons.join("; ");
    let (_, word) = verdict_word(&report.verdict, report.partial);
    let wrong = (invalid > 0).then_some(("error", reasons.as_str()));
    case("the result can be believed", wrong, &word);
    for of in assertions {
        let wrong = match of.outcome {
            AssertionOutcome::Pass => None,
            AssertionOutcome::Fail => Some(("failure", of.text.as_str())),
            AssertionOutcome::Undecided => Some(("error", of.text.as_str())),
        };
        case(&of.assertion, wrong, &of.text);
    }
    put!(page, "</testsuite>\n</testsuites>\n");
    page.0.into_bytes()
}
