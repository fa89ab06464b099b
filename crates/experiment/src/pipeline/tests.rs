//! Tests of the way from a recording to its outputs.

mod withdrawn;
