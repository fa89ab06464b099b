//! A condition that can spoil a measurement.

use serde::{Deserialize, Serialize};

/// What may disturb the measurement, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hazard {
    /// Its name for programs, snake_case; never changes once released.
    pub key: String,
    /// One sentence: the condition and its effect.
    pub text: String,
    /// What the user can do, where anything can be done.
    pub remedy: Option<String>,
}

impl Hazard {
    /// A hazard with its remedy.
    pub(crate) fn new(key: &str, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            text: text.into(),
            remedy: Some(remedy.into()),
        }
    }
}
