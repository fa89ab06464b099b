//! How figures are written for people.
