//! What is known of a load beside its requests.

use taillab_analysis::load::LoadFacts;
use taillab_model::Nanos;
use taillab_model::summary::{ArrivalsReference, ArrivalsVerdict, ClientCost, LoadErrors};

/// Poisson arrivals that passed all tests.
pub(crate) fn poisson() -> ArrivalsVerdict {
    ArrivalsVerdict {
        process: "poisson".to_owned(),
        reference: ArrivalsReference::Process,
        cv: 1.0,
        ks_d: 0.002,
        ks_critical: 0.003,
        ad_a2: 0.6,
        ad_critical: 2.492,
        idc: Vec::new(),
        passed: true,
        dead_time: None,
    }
}

/// A load at this rate, from a generator that is idle most of the time.
pub(crate) fn load_facts(target_rate_per_s: f64) -> LoadFacts {
    LoadFacts {
        target_rate_per_s,
        target_utilization: None,
        arrivals: poisson(),
        client: ClientCost {
            cpu_ns_per_request: Nanos::from_micros(4),
            busy_share: 0.1,
        },
        errors: LoadErrors::default(),
        clients: None,
    }
}
