//! Values that TOML writes as text: `20s`, `sched,irq`.

pub(super) mod length {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use taillab_model::Nanos;

    pub(in crate::experiment) fn serialize<S: Serializer>(
        length: &Nanos,
        s: S,
    ) -> Result<S::Ok, S::Error> {
        s.serialize_str(&length.to_exact_string())
    }

    pub(in crate::experiment) fn deserialize<'de, D: Deserializer<'de>>(
        d: D,
    ) -> Result<Nanos, D::Error> {
        String::deserialize(d)?.parse().map_err(D::Error::custom)
    }
}

pub(super) mod optional_length {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use taillab_model::Nanos;

    pub(in crate::experiment) fn serialize<S: Serializer>(
        length: &Option<Nanos>,
        s: S,
    ) -> Result<S::Ok, S::Error> {
        match length {
            Some(length) => s.serialize_str(&length.to_exact_string()),
            None => s.serialize_none(),
        }
    }

    pub(in crate::experiment) fn deserialize<'de, D: Deserializer<'de>>(
        d: D,
    ) -> Result<Option<Nanos>, D::Error> {
        Option::<String>::deserialize(d)?
            .map(|text| text.parse().map_err(D::Error::custom))
            .transpose()
    }
}

pub(super) mod words {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(in crate::experiment) fn serialize<T: Display, S: Serializer>(
        value: &T,
        s: S,
    ) -> Result<S::Ok, S::Error> {
        s.collect_str(value)
    }

    pub(in crate::experiment) fn deserialize<'de, T, D>(d: D) -> Result<T, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        String::deserialize(d)?.parse().map_err(D::Error::custom)
    }
}
