//! Removes from a result what its verdict withdraws, so that nobody relies on it.

use taillab_model::explanation::{Explanation, FanOut};
use taillab_model::load_result::ClosedLoop;
use taillab_model::rtt::{RttCurves, RttOpenLoop, RttRow};
use taillab_model::summary::{
    Claim, ClaimName, LoadSummary, Report, Scheduled, ServerResult, Stages, Verdict,
};
use taillab_model::{Distribution, Nanos};

/// Points (x, P(at least x)) of a distribution.
type Points = Vec<(Nanos, f64)>;

/// The lowest percentile that is withdrawn; of an invalid result, all are.
fn lowest(verdict: &Verdict, claims: &[Claim]) -> Option<f64> {
    if !verdict.valid {
        return Some(0.0);
    }
    let withdrawn = claims.iter().filter(|claim| !claim.valid);
    withdrawn
        .map(|claim| claim.claim)
        .find_map(ClaimName::quantile)
}

/// What is withdrawn from a result.
struct Withdrawn {
    /// This percentile and all higher ones.
    from: Option<f64>,
    ideal: bool,
    causes: bool,
    forecasts: bool,
    /// The result is invalid: whatever explains it is withdrawn too.
    all: bool,
}

impl Withdrawn {
    fn by(verdict: &Verdict) -> Self {
        Self {
            from: lowest(verdict, &verdict.claims),
            ideal: !verdict.holds(ClaimName::Ideal),
            causes: !verdict.holds(ClaimName::Causes),
            forecasts: !verdict.holds(ClaimName::Forecasts),
            all: !verdict.valid,
        }
    }

    /// What is withdrawn of the requests on schedule, and of what the client saw of them.
    fn of_schedule(verdict: &Verdict, claims: &[Claim]) -> Self {
        Self {
            from: lowest(verdict, claims),
            ideal: false,
            causes: false,
            forecasts: false,
            all: false,
        }
    }

    fn keeps(&self, q: f64) -> bool {
        self.from.is_none_or(|from| q < from)
    }

    fn distribution(&self, distribution: &mut Distribution) {
        let withdrawn = (distribution.quantiles.iter_mut()).filter(|at| !self.keeps(at.q));
        for at in withdrawn {
            (at.value, at.lo, at.hi) = (None, None, None);
        }
    }

    fn curve(&self, points: &mut Points) {
        points.retain(|(_, beyond)| self.keeps(1.0 - beyond));
    }

    fn server(&self, server: &mut ServerResult) {
        let Stages {
            t1_t2,
            t2_t3,
            t3_t4,
            t4_t5,
            t5_t6,
        } = &mut server.stages;
        for distribution in [
            &mut server.measured.sojourn,
            &mut server.ideal.sojourn,
            &mut server.excess,
            t1_t2,
            t2_t3,
            t3_t4,
            t4_t5,
            t5_t6,
        ]
        .into_iter()
        .chain(&mut server.ideal.of_schedule)
        .chain((server.ideal.own_work.iter_mut()).map(|own_work| &mut own_work.sojourn))
        {
            self.distribution(distribution);
        }
        server.stages_at.retain(|at| self.keeps(at.q));
        (server.ideal.by_service_time).retain(|at| self.keeps(at.q));
        for forecast in &mut server.predictions {
            forecast.points.retain(|point| self.keeps(point.q));
        }
        server
            .predictions
            .retain(|forecast| !self.forecasts && !forecast.points.is_empty());
        if self.causes {
            server.causes.clear();
            server.model_fit = None;
        }
        if let Some(explanation) = &mut server.explanation {
            self.explanation(explanation);
        }
    }

    fn explanation(&self, explanation: &mut Explanation) {
        if self.all {
            *explanation = Explanation {
                limits: std::mem::take(&mut explanation.limits),
                ..Explanation::default()
            };
        }
        if self.causes {
            (explanation.bursts, explanation.burst_roots) = (0, Vec::new());
            explanation.slow_requests = None;
        }
        (explanation.bands).retain(|band| !self.causes && self.keeps(band.from_q));
        (explanation.application).retain(|at| self.keeps(at.q));
        (explanation.around).retain(|band| !self.causes && self.keeps(band.to_q));
        for request in explanation.slowest.iter_mut().filter(|_| self.ideal) {
            request.ideal_ns = None;
        }
        for at in &mut explanation.fan_out {
            self.fan_out(at);
        }
        if self.forecasts {
            explanation.curves.clear();
        }
        for curve in &mut explanation.curves {
            self.curve(&mut curve.points);
        }
    }

    /// What a user of several servers waits is a far percentile of one of them.
    fn fan_out(&self, at: &mut FanOut) {
        let servers = f64::from(at.servers.max(1));
        let keeps = |q: f64| self.keeps(q.powf(servers.recip()));
        at.p50_ns = at.p50_ns.filter(|_| keeps(0.5));
        at.p99_ns = at.p99_ns.filter(|_| keeps(0.99));
    }

    fn scheduled(&self, view: &mut Scheduled) {
        for distribution in view.sojourn.iter_mut().chain(&mut view.ideal) {
            self.distribution(distribution);
        }
    }

    fn load(&self, load: &mut LoadSummary) {
        self.distribution(&mut load.response_time);
        self.distribution(&mut load.service_time);
    }
}

/// Removes from the report and its curves, those of the server and of its client, what the report's verdict and
/// the claims on the schedule withdraw; of an invalid result, all that it claims. Returns whether anything of the
/// server is withdrawn: then the findings must be made again.
///
/// Every output is made from what is left: no other place withdraws anything.
pub fn withdraw<'c>(
    report: &mut Report,
    of_server: impl IntoIterator<Item = &'c mut Points>,
    of_client: impl IntoIterator<Item = &'c mut Points>,
) -> bool {
    let withdrawn = Withdrawn::by(&report.verdict);
    withdrawn.server(&mut report.server);
    if let Some(explanation) = &mut report.server.explanation {
        // too few requests for an interval of p99 can still show whether those above it come in bursts
        let clustering = explanation.clustering.take();
        explanation.clustering = clustering.filter(|slow| !report.verdict.withdraws(slow.q));
    }
    for points in of_server {
        withdrawn.curve(points);
    }
    let claims = report.scheduled.iter().flat_map(|view| &view.claims);
    let claims: Vec<Claim> = claims.cloned().collect();
    let of_schedule = Withdrawn::of_schedule(&report.verdict, &claims);
    if let Some(view) = &mut report.scheduled {
        of_schedule.scheduled(view);
        // these are of all requests: the second is of the server's view, like the forecasts
        if let Some(at_worst) = &mut view.at_worst {
            withdrawn.distribution(at_worst);
        }
        view.replayed = view.replayed.take().filter(|_| !withdrawn.forecasts);
        if let Some(replayed) = &mut view.replayed {
            (replayed.points).retain(|point| withdrawn.keeps(point.q));
            (replayed.without_other_threads).retain(|point| withdrawn.keeps(point.q));
        }
    }
    if let Some(load) = &mut report.load {
        of_schedule.load(load);
    }
    if let Some(beyond) = &mut report.client_minus_server {
        of_schedule.distribution(beyond);
    }
    for points in of_client {
        of_schedule.curve(points);
    }
    withdrawn.from.is_some() || withdrawn.causes || withdrawn.forecasts
}

/// Removes from a load's summary and curves what the verdict on the load withdraws.
pub fn withdraw_from_load<'c>(
    verdict: &Verdict,
    load: &mut LoadSummary,
    curves: impl IntoIterator<Item = &'c mut Points>,
) {
    let withdrawn = Withdrawn::by(verdict);
    withdrawn.load(load);
    for points in curves {
        withdrawn.curve(points);
    }
}

/// Removes from the result of a closed loop what the verdict on it withdraws.
pub fn withdraw_from_closed_loop(verdict: &Verdict, closed: &mut ClosedLoop) {
    Withdrawn::by(verdict).distribution(&mut closed.service_time);
}

/// Removes from a row of `rtt` and its curves what the verdict on its load withdraws.
pub fn withdraw_from_rtt(row: &mut RttRow, curves: &mut RttCurves) {
    let Some(RttOpenLoop { load, verdict, .. }) = &mut row.open_loop else {
        return;
    };
    withdraw_from_load(verdict, load, [&mut curves.ccdf]);
    let withdrawn = Withdrawn::by(verdict);
    withdrawn.distribution(&mut row.rtt);
    for run in &mut row.runs {
        withdrawn.distribution(&mut run.rtt);
    }
    for at in row.trimmed.iter_mut().filter(|at| !withdrawn.keeps(at.q)) {
        (at.mean_ns, at.runs) = (None, 0);
    }
    for at in &mut row.fan_out {
        withdrawn.fan_out(at);
    }
    // too few round trips for an interval of p99 can still show whether those above it come in bursts
    if withdrawn.all || verdict.withdraws(0.99) {
        row.bursts = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_many_servers_take_goes_with_the_percentile_of_one() {
        let withdrawn = Withdrawn {
            from: Some(0.99),
            ideal: false,
            causes: true,
            forecasts: true,
            all: false,
        };
        let at = |servers| FanOut {
            servers,
            p50_ns: Some(Nanos::new(1)),
            p99_ns: Some(Nanos::new(2)),
        };
        let mut explanation = Explanation {
            fan_out: vec![at(1), at(50), at(100)],
            ..Explanation::default()
        };
        withdrawn.explanation(&mut explanation);
        // the median of 50 is p98.6 of one, the median of 100 is p99.3 of one
        let kept = explanation.fan_out.iter().map(|at| at.p50_ns.is_some());
        assert_eq!(kept.collect::<Vec<_>>(), [true, true, false]);
        assert!(explanation.fan_out.iter().all(|at| at.p99_ns.is_none()));
    }
}
