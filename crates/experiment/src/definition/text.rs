//! Values that TOML writes as text: `20s`, `sched,irq`.

/// A value that is written as it is displayed.
pub(super) mod words {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(in crate::definition) fn serialize<T: Display, S: Serializer>(
        value: &T,
        s: S,
    ) -> Result<S::Ok, S::Error> {
        s.collect_str(value)
    }

    pub(in crate::definition) fn deserialize<'de, T, D>(d: D) -> Result<T, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        String::deserialize(d)?.parse().map_err(D::Error::custom)
    }
}

/// The same for a value that may be missing.
pub(super) mod by_name {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(in crate::definition) fn serialize<T: Display, S: Serializer>(
        value: &Option<T>,
        s: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => s.collect_str(value),
            None => s.serialize_none(),
        }
    }

    pub(in crate::definition) fn deserialize<'de, T, D>(d: D) -> Result<Option<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        Option::<String>::deserialize(d)?
            .map(|text| text.parse().map_err(D::Error::custom))
            .transpose()
    }
}

/// A length of time, without rounding.
pub(super) mod length {
    use serde::Serializer;
    use taillab_model::Nanos;

    pub(in crate::definition) use super::words::deserialize;

    pub(in crate::definition) fn serialize<S: Serializer>(
        length: &Nanos,
        s: S,
    ) -> Result<S::Ok, S::Error> {
        s.serialize_str(&length.to_exact_string())
    }
}

/// The same for a length that may be missing.
pub(super) mod optional_length {
    use serde::Serializer;
    use taillab_model::Nanos;

    pub(in crate::definition) use super::by_name::deserialize;

    pub(in crate::definition) fn serialize<S: Serializer>(
        length: &Option<Nanos>,
        s: S,
    ) -> Result<S::Ok, S::Error> {
        super::by_name::serialize(&length.map(Nanos::to_exact_string), s)
    }
}
