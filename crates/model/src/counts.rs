//! Types of counts, which are summed up count by count.

/// Declares a type whose fields are counts, and its sums. A new count is one entry.
macro_rules! counts {
    (
        $(#[$about:meta])*
        $name:ident {
            $(
                $(#[doc = $doc:literal])*
                $count:ident,
            )*
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        pub struct $name {
            $(
                $(#[doc = $doc])*
                pub $count: u64,
            )*
        }

        impl std::ops::AddAssign for $name {
            fn add_assign(&mut self, more: Self) {
                $(self.$count += more.$count;)*
            }
        }

        impl std::iter::Sum for $name {
            fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
                parts.fold(Self::default(), |mut sum, part| {
                    sum += part;
                    sum
                })
            }
        }
    };
    // counts that people read, each with its name after one and after several
    (
        $(#[$about:meta])*
        $name:ident named {
            $(
                $(#[doc = $doc:literal])*
                $count:ident: $one:literal, $many:literal;
            )*
        }
    ) => {
        $crate::counts::counts! {
            $(#[$about])*
            $name {
                $(
                    $(#[doc = $doc])*
                    $count,
                )*
            }
        }

        impl $name {
            /// Each kind with its count and its name after that count, in the order of the entries.
            pub const fn kinds(&self) -> [(u64, &'static str); [$($many),*].len()] {
                [$((self.$count, if self.$count == 1 { $one } else { $many })),*]
            }
        }
    };
}

pub(crate) use counts;
