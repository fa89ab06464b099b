//! What this crate writes: read back, compared with snapshots, and shown by a browser.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod browser;
mod chromium;
mod common;
mod fixes;
mod hlog;
mod html;
mod json_schema;
mod live;
#[path = "load/main.rs"]
mod load;
#[macro_use]
mod one_screen;
mod parquet;
mod perfetto;
mod screens;
mod terminal;
mod trace;
