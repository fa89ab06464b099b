//! Time stamps from a file, part by part, so that it may be larger than memory.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use taillab_console::exit::Failure;
use taillab_model::Nanos;

use super::options::{TraceOptions, usage};
use super::sink::Sink;
use super::{parquet, text};

/// A file of time stamps that could be opened and whose column is known.
#[derive(Debug)]
pub struct TraceFile {
    path: PathBuf,
    size: u64,
    format: Format,
    /// Its values must rise.
    rising: bool,
}

#[derive(Debug)]
enum Format {
    Text(text::Layout),
    Parquet(parquet::Layout),
}

impl TraceFile {
    /// Looks at the file's beginning: its format, its column, its unit.
    pub fn open(options: TraceOptions) -> Result<Self, Failure> {
        let path = options.path.clone();
        let cannot = |error: io::Error| {
            let what = format!(
                "cannot be read: {error}; give a file that you may read without privileges"
            );
            usage(&path, what)
        };
        let metadata = std::fs::metadata(&path).map_err(cannot)?;
        if !metadata.is_file() {
            return Err(usage(
                &path,
                "is not a regular file, and a trace is read twice; save it to a file first",
            ));
        }
        let mut magic = Vec::new();
        let file = File::open(&path).map_err(cannot)?;
        file.take(4).read_to_end(&mut magic).map_err(cannot)?;
        let format = if magic == *b"PAR1" {
            Format::Parquet(parquet::Layout::find(&options)?)
        } else {
            Format::Text(text::Layout::find(&options)?)
        };
        Ok(Self {
            path,
            size: metadata.len(),
            format,
            rising: true,
        })
    }

    /// The same file, whose values need not rise.
    pub fn in_any_order(self) -> Self {
        Self {
            rising: false,
            ..self
        }
    }

    /// The file's name without its folders.
    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        name.to_string_lossy().into_owned()
    }

    /// Bytes, for the progress bar.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Hands all values over in parts, each with the bytes of the file that it took.
    pub fn read(
        &self,
        mut each: impl FnMut(&[Nanos], u64) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut sink = Sink::new(&self.path, self.rising, &mut each);
        match &self.format {
            Format::Text(layout) => layout.read(&self.path, &mut sink)?,
            Format::Parquet(layout) => layout.read(&self.path, self.size, &mut sink)?,
        }
        sink.flush()?;
        if sink.is_empty() {
            return Err(usage(
                &self.path,
                "has no time stamps; write one on each line, or choose another file",
            ));
        }
        Ok(())
    }
}
