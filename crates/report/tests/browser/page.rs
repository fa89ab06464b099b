//! A page in a file, at several widths.

use std::path::PathBuf;

use serde_json::json;

use super::Browser;

/// A page in a file of its own.
pub(crate) struct Page {
    pub(crate) file: PathBuf,
    _directory: tempfile::TempDir,
}

impl Page {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("report.html");
        std::fs::write(&file, bytes).unwrap();
        Self {
            file,
            _directory: directory,
        }
    }
}

/// Opens the page at this width, which it must not exceed, and takes its picture.
pub(crate) fn fits(browser: &mut Browser, page: &Page, width: u32, name: &str) {
    browser.call(
        "Emulation.setDeviceMetricsOverride",
        json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500 }),
    );
    browser.open(&page.file);
    let over = browser.value("document.documentElement.scrollWidth - innerWidth");
    assert!(
        over.as_f64().unwrap() <= 0.0,
        "{over} px too wide at {width}, {name}"
    );
    browser.screenshot(&format!("{name}-{width}"));
}

/// The page fits every width. A table that is wider scrolls, and its caption stays readable.
pub(crate) fn fits_and_captions_stay(test: &str, name: &str, bytes: &[u8]) {
    let Some(mut browser) = Browser::launch(test) else {
        return;
    };
    let mut scrolled = 0.0;
    let page = Page::of(bytes);
    for width in [360, 800, 1400] {
        fits(&mut browser, &page, width, name);
        let seen = browser.value(
            "[...document.querySelectorAll('.scroll')].map((room) => { room.scrollLeft = 1e6; \
             const [outer, caption] = [room, room.querySelector('caption')].map((e) => e.getBoundingClientRect()); \
             return [room.scrollLeft, outer.left - caption.left, caption.right - outer.right]; })",
        );
        let seen: Vec<[f64; 3]> = serde_json::from_value(seen).unwrap();
        for [by, left, right] in seen {
            scrolled += by;
            assert!(
                left <= 1.0 && right <= 1.0,
                "a caption is {left} or {right} px outside at {width}, {name}"
            );
        }
        assert_eq!(browser.complaints(), [""; 0]);
    }
    assert!(scrolled > 0.0, "no table was wider than its page");
}
