//! Open-loop load generator with an absolute schedule and its own verdict.
