//! The viewer: who gets an answer, what it shows, and whether the page's own reader of journals agrees with the program's.
//!
//! The tests of the page itself need Chromium and its driver, and those of the reader need Node: where these are not installed, they are
//! skipped and say so.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by a panic")]

mod browser;
mod figures;
mod journals;
mod place;
mod server;
mod shown;
#[path = "../../../../examples/service/tests/service/webdriver.rs"]
mod webdriver;
