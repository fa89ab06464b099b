//! The blocks of a file, one after another, whatever is damaged between them.

use std::io::{self, Read};

use memchr::memmem;
use serde::de::DeserializeOwned;

use super::format::{
    BLOCK_HEADER_BYTES, BlockHeader, FIXED_HEADER_BYTES, FileHeader, Footer, Holds, MAGIC, MARK,
    TRAILER_BYTES, checksum, footer_at, trailer, u32_at, unpack,
};
use super::{LostEvents, RecordingContext, RecordingError, Version};

/// Bytes read at a time.
const READ_BYTES: u64 = 1 << 18;

/// What comes next in a file.
pub(super) enum Item {
    Events(BlockHeader, Vec<u8>),
    Footer(Box<Footer>),
    Losses(LostEvents),
    /// The file ends without a footer.
    CutOff,
}

/// The first thing that was wrong, and where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wrong {
    pub(super) what: &'static str,
    pub(super) at_byte: u64,
}

/// The blocks of a file.
pub(super) struct Blocks<R> {
    window: BlockWindow<R>,
    /// From the header, or from the first block where the header is damaged.
    pub(super) base: Option<u64>,
    pub(super) wrong: Option<Wrong>,
    pub(super) version: Version,
}

/// Opens a file: returns its blocks, and what its header says about the server.
pub(super) fn open<R: Read>(input: R) -> Result<(Blocks<R>, RecordingContext), RecordingError> {
    let mut window = BlockWindow::new(input);
    let version = window.version()?;
    let mut blocks = Blocks::new(window, version);
    let context = blocks.read_header()?;
    Ok((blocks, version.migrate(context)))
}

impl<R: Read> Blocks<R> {
    fn new(window: BlockWindow<R>, version: Version) -> Self {
        Self {
            window,
            base: None,
            wrong: None,
            version,
        }
    }

    fn read_header(&mut self) -> io::Result<RecordingContext> {
        self.window.holds(FIXED_HEADER_BYTES)?;
        let fixed = self.window.bytes().first_chunk();
        let Some(header) = fixed.and_then(FileHeader::from_bytes) else {
            self.note("its header");
            self.window.consume(MAGIC.len());
            self.seek_mark()?;
            return Ok(RecordingContext::default());
        };
        self.base = Some(header.base);
        self.window.consume(FIXED_HEADER_BYTES);
        let len = header.context_len as usize;
        if self.window.holds(len)? {
            let json = &self.window.bytes()[..len];
            if checksum(json) == header.context_checksum
                && let Ok(context) = serde_json::from_slice::<RecordingContext>(json)
                && context.check().is_ok()
            {
                self.window.consume(len);
                return Ok(context);
            }
        }
        self.note("what its header says about the server");
        self.seek_mark()?;
        Ok(RecordingContext::default())
    }

    /// The next intact block.
    pub(super) fn next(&mut self) -> io::Result<Item> {
        loop {
            if !self.window.holds(BLOCK_HEADER_BYTES)? {
                if !self.window.bytes().is_empty() {
                    self.note("its end is missing");
                }
                return Ok(Item::CutOff);
            }
            match self.block()? {
                Ok(item) => return Ok(item),
                Err(what) => {
                    self.note(what);
                    // a block may begin inside what this one seems to be
                    self.window.consume(1);
                    self.seek_mark()?;
                }
            }
        }
    }

    /// The block that begins here, or what is wrong with it.
    fn block(&mut self) -> io::Result<Result<Item, &'static str>> {
        let header = self.window.bytes().first_chunk();
        let Some(header) = header.and_then(BlockHeader::from_bytes) else {
            return Ok(Err("the header of a block"));
        };
        let end = BLOCK_HEADER_BYTES + header.packed_len as usize;
        if !self.window.holds(end)? {
            return Ok(Err("its end is missing"));
        }
        let payload = &self.window.bytes()[BLOCK_HEADER_BYTES..end];
        if checksum(payload) != header.checksum {
            return Ok(Err("the contents of a block"));
        }
        if *self.base.get_or_insert(header.base) != header.base {
            return Ok(Err("a block of another recording"));
        }
        let at = self.window.offset;
        let item = match header.holds {
            Holds::Events => Item::Events(header, payload.to_vec()),
            Holds::Footer => match text::<Footer>(&header, payload) {
                Some(footer) if footer.context.check().is_ok() => Item::Footer(Box::new(Footer {
                    context: self.version.migrate(footer.context),
                    ..footer
                })),
                _ => return Ok(Err("its footer")),
            },
            Holds::Losses => match text(&header, payload) {
                Some(lost) => Item::Losses(lost),
                None => return Ok(Err("its count of losses")),
            },
        };
        self.window.consume(end);
        if matches!(item, Item::Footer(_)) {
            self.window.holds(TRAILER_BYTES)?;
            if !self.window.bytes().starts_with(&trailer(at)) {
                self.note("its last bytes");
            }
        }
        Ok(Ok(item))
    }

    /// Skips to the next mark of a block, or to the end.
    fn seek_mark(&mut self) -> io::Result<()> {
        loop {
            if let Some(at) = memmem::find(self.window.bytes(), &MARK) {
                self.window.consume(at);
                return Ok(());
            }
            let keep = MARK.len() - 1;
            let len = self.window.bytes().len();
            self.window.consume(len.saturating_sub(keep));
            if !self.window.holds(MARK.len())? {
                return Ok(());
            }
        }
    }

    /// Remembers the first problem.
    pub(super) fn note(&mut self, what: &'static str) {
        self.wrong.get_or_insert(Wrong {
            what,
            at_byte: self.window.offset,
        });
    }
}

fn text<T: DeserializeOwned>(header: &BlockHeader, payload: &[u8]) -> Option<T> {
    let mut unpacked = Vec::new();
    serde_json::from_slice(unpack(header, payload, &mut unpacked).ok()?).ok()
}

/// Reads the footer of a file from its end, if it is intact. Leaves the position of `input`
/// unspecified.
pub(super) fn footer_from_end(
    input: &mut (impl Read + io::Seek),
    start: u64,
) -> io::Result<Option<Footer>> {
    input.seek(io::SeekFrom::Start(start))?;
    let Ok(version) = BlockWindow::new(&mut *input).version() else {
        return Ok(None);
    };
    let end = input.seek(io::SeekFrom::End(0))?;
    if end.saturating_sub(start) < TRAILER_BYTES as u64 {
        return Ok(None);
    }
    input.seek(io::SeekFrom::Start(end - TRAILER_BYTES as u64))?;
    let mut last = [0; TRAILER_BYTES];
    input.read_exact(&mut last)?;
    let Some(at) = footer_at(&last).and_then(|at| start.checked_add(at)) else {
        return Ok(None);
    };
    if at >= end {
        return Ok(None);
    }
    input.seek(io::SeekFrom::Start(at))?;
    let mut blocks = Blocks::new(BlockWindow::new(input), version);
    if !blocks.window.holds(BLOCK_HEADER_BYTES)? {
        return Ok(None);
    }
    match blocks.block()? {
        Ok(Item::Footer(footer)) => Ok(Some(*footer)),
        _ => Ok(None),
    }
}

/// The part of a file that is in memory; it moves forward.
struct BlockWindow<R> {
    input: R,
    bytes: Vec<u8>,
    /// How many of `bytes` have been consumed.
    start: usize,
    /// The offset of the rest from the file's beginning, in bytes.
    offset: u64,
}

impl<R: Read> BlockWindow<R> {
    fn new(input: R) -> Self {
        Self {
            input,
            bytes: Vec::new(),
            start: 0,
            offset: 0,
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// The version of the file that begins here.
    fn version(&mut self) -> Result<Version, RecordingError> {
        let version = MAGIC.len()..MAGIC.len() + 4;
        let long_enough = self.holds(version.end)?;
        if !self.bytes().starts_with(&MAGIC) {
            return Err(RecordingError::NotARecording);
        }
        if !long_enough {
            return Err(RecordingError::Truncated);
        }
        let found = u32_at(self.bytes(), version.start);
        Version::of(found).ok_or(RecordingError::OtherVersion { found })
    }

    /// Reads until it holds `bytes` bytes; false if the file ends before.
    fn holds(&mut self, bytes: usize) -> io::Result<bool> {
        if self.bytes().len() >= bytes {
            return Ok(true);
        }
        self.bytes.drain(..self.start);
        self.start = 0;
        while self.bytes.len() < bytes {
            let mut part = self.input.by_ref().take(READ_BYTES);
            if part.read_to_end(&mut self.bytes)? == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn consume(&mut self, bytes: usize) {
        self.start += bytes;
        self.offset += bytes as u64;
    }
}
