//! The notation of processes and disciplines in text: `name`, `name:first` or
//! `name:first,key=value,key=value`.

use taillab_model::Nanos;

/// Why a text does not name a process, a distribution or a discipline.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NotationError {
    /// The name before the colon is unknown.
    #[error("`{name}` is not {kind}; choose one of: {known}")]
    Unknown {
        /// What was expected, with its article.
        kind: &'static str,
        /// The unknown name.
        name: String,
        /// All names with their parameters.
        known: &'static str,
    },
    /// A parameter is missing.
    #[error("`{text}` lacks `{key}`; write e.g. `{example}`")]
    Missing {
        /// The whole text.
        text: String,
        /// The parameter.
        key: &'static str,
        /// A valid text.
        example: &'static str,
    },
    /// A parameter that this name does not have.
    #[error("`{text}` has no parameter `{key}`; write e.g. `{example}`")]
    Superfluous {
        /// The whole text.
        text: String,
        /// The parameter.
        key: String,
        /// A valid text.
        example: &'static str,
    },
    /// A parameter's value cannot be read or is out of range.
    #[error("in `{text}`, `{key}` must be {wanted}, not `{value}`")]
    Value {
        /// The whole text.
        text: String,
        /// The parameter.
        key: String,
        /// The valid values.
        wanted: String,
        /// The value given.
        value: String,
    },
}

/// The valid values of a numeric parameter.
#[derive(Clone, Copy)]
pub(crate) struct Range {
    /// In words, for messages.
    pub(crate) wanted: &'static str,
    good: fn(f64) -> bool,
}

impl Range {
    pub(crate) const fn new(wanted: &'static str, good: fn(f64) -> bool) -> Self {
        Self { wanted, good }
    }

    pub(crate) fn contains(&self, value: f64) -> bool {
        value.is_finite() && (self.good)(value)
    }
}

/// A coefficient of variation.
pub(crate) const CV: Range = Range::new("a number above 0 and at most 1000000", |x| {
    x > 0.0 && x <= 1e6
});
/// A share that is neither nothing nor all.
pub(crate) const SHARE: Range = Range::new("a number between 0 and 1", |x| x > 0.0 && x < 1.0);

/// The word for a value of an enumeration.
pub(crate) fn word_of<T: PartialEq>(words: &[(&'static str, T)], value: &T) -> &'static str {
    let known = words.iter().find(|(_, of)| of == value);
    known.map_or("", |(word, _)| *word)
}

/// A parsed text, from which the parameters are taken one by one.
pub(crate) struct Notation<'a> {
    text: &'a str,
    /// The name before the colon, in lower case.
    pub(crate) name: String,
    parameters: Vec<(&'a str, &'a str)>,
    example: &'static str,
}

/// The key of a parameter that is given without a key.
const POSITIONAL: &str = "";

impl<'a> Notation<'a> {
    /// Parses `text`; the values of `verbatim` keys are the rest of the text, commas included.
    pub(crate) fn new(text: &'a str, verbatim: &[&str]) -> Self {
        let text = text.trim();
        let (name, mut rest) = text.split_once(':').unwrap_or((text, ""));
        let mut parameters = Vec::new();
        while !rest.is_empty() {
            let whole = verbatim.iter().find_map(|key| {
                rest.trim()
                    .strip_prefix(key)?
                    .strip_prefix('=')
                    .map(|v| (*key, v))
            });
            if let Some((key, value)) = whole {
                // a borrowed key of the text itself, so that lifetimes agree
                let key = &rest.trim()[..key.len()];
                parameters.push((key, value));
                break;
            }
            let (part, after) = rest.split_once(',').unwrap_or((rest, ""));
            let (key, value) = part.split_once('=').unwrap_or((POSITIONAL, part));
            parameters.push((key.trim(), value.trim()));
            rest = after;
        }
        Self {
            text,
            name: name.trim().to_ascii_lowercase(),
            parameters,
            example: "",
        }
    }

    /// Sets the example that errors show.
    pub(crate) fn like(&mut self, example: &'static str) -> &mut Self {
        self.example = example;
        self
    }

    fn take(&mut self, key: &str) -> Option<&'a str> {
        let at = self.parameters.iter().position(|(k, _)| *k == key)?;
        Some(self.parameters.remove(at).1)
    }

    /// The parameter `key`, or, if it is not given, the next one without a key.
    pub(crate) fn text_of(&mut self, key: &'static str) -> Result<&'a str, NotationError> {
        self.take(key)
            .or_else(|| self.take(POSITIONAL))
            .ok_or_else(|| NotationError::Missing {
                text: self.text.to_owned(),
                key,
                example: self.example,
            })
    }

    /// Whether the parameter `key` is given by name.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.parameters.iter().any(|(k, _)| *k == key)
    }

    /// Whether [`Notation::text_of`] finds the parameter `key`.
    pub(crate) fn gives(&self, key: &str) -> bool {
        self.has(key) || self.has(POSITIONAL)
    }

    pub(crate) fn bad_value(
        &self,
        key: &str,
        wanted: impl Into<String>,
        value: &str,
    ) -> NotationError {
        NotationError::Value {
            text: self.text.to_owned(),
            key: key.to_owned(),
            wanted: wanted.into(),
            value: value.to_owned(),
        }
    }

    /// A number in a range.
    pub(crate) fn number(&mut self, key: &'static str, range: Range) -> Result<f64, NotationError> {
        let value = self.text_of(key)?;
        value
            .parse()
            .ok()
            .filter(|x| range.contains(*x))
            .ok_or_else(|| self.bad_value(key, range.wanted, value))
    }

    /// The value of one of these words.
    pub(crate) fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        words: &[(&'static str, T)],
    ) -> Result<T, NotationError> {
        let value = self.text_of(key)?;
        let known = words.iter().find(|(word, _)| *word == value);
        known.map(|(_, meaning)| *meaning).ok_or_else(|| {
            let all: Vec<String> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
            self.bad_value(key, all.join(" or "), value)
        })
    }

    /// A whole number of at least `least`.
    pub(crate) fn whole(&mut self, key: &'static str, least: u32) -> Result<u32, NotationError> {
        let value = self.text_of(key)?;
        value.parse().ok().filter(|n| *n >= least).ok_or_else(|| {
            self.bad_value(key, format!("a whole number of at least {least}"), value)
        })
    }

    /// A positive length of time.
    pub(crate) fn length(&mut self, key: &'static str) -> Result<Nanos, NotationError> {
        let value = self.text_of(key)?;
        value
            .parse()
            .ok()
            .filter(|t| *t > Nanos::ZERO)
            .ok_or_else(|| self.bad_value(key, "a length of time above zero, e.g. 50us", value))
    }

    /// A length of time that may be zero, and is zero if it is not given.
    pub(crate) fn length_or_zero(&mut self, key: &'static str) -> Result<Nanos, NotationError> {
        if !self.gives(key) {
            return Ok(Nanos::ZERO);
        }
        let value = self.text_of(key)?;
        if value == "0" {
            return Ok(Nanos::ZERO);
        }
        value
            .parse()
            .map_err(|_| self.bad_value(key, "a length of time, e.g. 2us", value))
    }

    /// An error if a parameter is left.
    pub(crate) fn finish(self) -> Result<(), NotationError> {
        match self.parameters.first() {
            None => Ok(()),
            Some((key, value)) => Err(NotationError::Superfluous {
                text: self.text.to_owned(),
                key: if key.is_empty() { *value } else { key }.to_owned(),
                example: self.example,
            }),
        }
    }
}
