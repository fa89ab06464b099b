//! The result of a trace, or of a recording that is explained again.

use super::text::{Ink, Side, Table, clean, wrap};
use super::{INDENT, Page, Style, verdict_word};
use crate::TraceReport;
use crate::figures::{self, counted, known_percent, rate};
use crate::server::ServerSide;

/// The result; `saved_in` is the recording, if there is one.
pub fn render(report: &TraceReport<'_>, saved_in: Option<&str>, style: Style) -> String {
    let mut page = Page::new(style);
    page.trace_header(report, saved_in);
    page.server_side(&ServerSide::from(report));
    page.text
}

impl Page {
    fn trace_header(&mut self, report: &TraceReport<'_>, saved_in: Option<&str>) {
        let summary = report.summary;
        let result = &summary.result;
        self.title(
            &format!("taillab {} {}", summary.command, summary.target),
            verdict_word(&summary.verdict, summary.partial),
        );
        self.fact(
            "traced",
            &format!(
                "{} in {} = {}/s, from {}",
                counted(result.matching.responses, "response", "responses"),
                summary.duration_ns,
                rate(summary.arrival_rate_per_s),
                figures::began(summary.started_unix_s)
            ),
        );
        self.fact(
            "service time",
            &format!(
                "t = {} = {}; {} {} utilised",
                result.service_time_ns,
                figures::service_time_origin(&ServerSide::from(report)),
                figures::workers(result),
                known_percent(Some(result.ideal.utilization)),
            ),
        );
        if let Some(place) = saved_in {
            self.fact("saved in", &clean(place));
        }
    }

    pub(super) fn hooks_of_stamps(&mut self, server: &ServerSide<'_>) {
        let hooks = &server.result.matching.hooks;
        if hooks.is_empty() {
            return;
        }
        self.heading("Kernel hooks", "");
        let mut table = Table::new(&[(Side::Left, INDENT), (Side::Left, 2)]);
        for hook in hooks {
            table.row(vec![
                (Ink::Title, clean(&hook.stamp)),
                (Ink::Plain, clean(&hook.hook)),
            ]);
        }
        let lines = table.lines(self.style);
        for (line, hook) in lines.iter().zip(hooks) {
            self.line(line);
            let lost = hook.lost_precision.as_deref();
            let text = lost.map(|lost| format!("lacks: {}", clean(lost)));
            for line in wrap(&text.unwrap_or_default(), self.style.width - INDENT - 4) {
                if !line.is_empty() {
                    let line = self.style.paint(Ink::Quiet, &line);
                    self.line(&format!("{:1$}{line}", "", INDENT + 4));
                }
            }
        }
    }
}
