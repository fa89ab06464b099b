//! The end of a process's output, read continuously so that the process never waits for us.

use std::collections::VecDeque;
use std::io::{self, PipeReader, Read};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use taillab_model::text::is_obeyed;

/// Bytes kept of what was written.
const KEPT: usize = 16 * 1024;

/// How many characters are shown, at most.
const SHOWN: usize = 300;

/// How many lines are shown, at most: many programs say the reason, and then that they end.
const LINES: usize = 3;

/// The end of a pipe's content. A separate thread reads the pipe and sleeps in the kernel while nothing
/// is written.
#[derive(Debug)]
pub(crate) struct OutputTail {
    bytes: Arc<Mutex<VecDeque<u8>>>,
    ended: Receiver<()>,
}

impl OutputTail {
    pub(crate) fn of(mut pipe: PipeReader) -> io::Result<Self> {
        let bytes = Arc::new(Mutex::new(VecDeque::new()));
        let (end, ended) = mpsc::channel();
        let kept = Arc::clone(&bytes);
        thread::Builder::new()
            .name("server-output".into())
            .spawn(move || {
                let mut chunk = [0; 4096];
                loop {
                    match pipe.read(&mut chunk) {
                        Ok(0) => break,
                        Ok(n) => append(
                            &mut kept.lock().unwrap_or_else(PoisonError::into_inner),
                            &chunk[..n],
                        ),
                        Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                        Err(_) => break,
                    }
                }
                // nobody may be listening any more
                let _ = end.send(());
            })?;
        Ok(Self { bytes, ended })
    }

    /// Waits until all writers have closed the pipe, for at most `patience`: a process
    /// that the server left behind may keep it open forever.
    pub(crate) fn wait_end(&self, patience: Duration) {
        let _ = self.ended.recv_timeout(patience);
    }

    /// All that is kept, with invalid UTF-8 replaced.
    fn text(&self) -> String {
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(bytes.make_contiguous()).into_owned()
    }

    /// The first line with text in it of what is kept.
    pub(crate) fn first_line(&self) -> Option<String> {
        let text = self.text();
        let line = text.lines().find(|line| !line.trim().is_empty())?;
        last_lines(line)
    }

    /// The last lines with text in them.
    pub(crate) fn last_lines(&self) -> Option<String> {
        last_lines(&self.text())
    }
}

fn append(kept: &mut VecDeque<u8>, new: &[u8]) {
    kept.extend(new);
    let excess = kept.len().saturating_sub(KEPT);
    kept.drain(..excess);
}

/// The last [`LINES`] different lines with text in them, in their order with ` | ` between them, without what a
/// terminal would obey. Each is cut at [`SHOWN`], and where all of them are longer than that, the first ones are left
/// out.
pub(crate) fn last_lines(text: &str) -> Option<String> {
    const BETWEEN: &str = " | ";
    let mut shown: Vec<String> = Vec::new();
    let mut length = 0;
    for line in text.lines().rev().map(str::trim) {
        let plain = line.chars().filter(|c| !is_obeyed(*c));
        let plain: String = plain.take(SHOWN).collect();
        if plain.is_empty() || shown.contains(&plain) {
            continue;
        }
        length += plain.chars().count() + BETWEEN.len();
        if shown.len() == LINES || !shown.is_empty() && length > SHOWN {
            break;
        }
        shown.push(plain);
    }
    shown.reverse();
    (!shown.is_empty()).then(|| shown.join(BETWEEN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_flood_is_read_to_its_end_and_only_the_tail_kept() {
        let (reader, mut writer) = io::pipe().unwrap();
        let tail = OutputTail::of(reader).unwrap();
        let line = [b'x'; 1000];
        for _ in 0..1000 {
            writer.write_all(&line).unwrap();
        }
        writer
            .write_all(b"\nthe \x1b[31mre\xe2\x80\xaeason\n\n")
            .unwrap();
        drop(writer);
        tail.wait_end(Duration::from_secs(60));
        assert_eq!(tail.last_lines().unwrap(), "the [31mreason");
        assert!(tail.first_line().unwrap().starts_with("xxx"));
        assert_eq!(tail.text().len(), KEPT);
    }

    #[test]
    fn silence_has_no_last_line() {
        assert_eq!(last_lines(" \n\n"), None);
        assert_eq!(last_lines(&"y".repeat(5000)).unwrap().len(), SHOWN);
    }

    #[test]
    fn the_reason_may_stand_before_the_last_line() {
        for (text, shown) in [
            ("ready\n", "ready"),
            (
                "a\nInvalid heap size: -Xmx1\n\nThe VM cannot start.\nThe VM cannot start.\nBye.\n",
                "Invalid heap size: -Xmx1 | The VM cannot start. | Bye.",
            ),
            (
                format!("first\n{}\nlast", "x".repeat(SHOWN)).as_str(),
                "last",
            ),
        ] {
            assert_eq!(last_lines(text).as_deref(), Some(shown));
        }
    }
}
