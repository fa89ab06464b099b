//! Rows as columns of a Parquet file.

use std::error::Error;
use std::fs::File;
use std::io;
use std::sync::Arc;

use arrow_array::types::Int8Type;
use arrow_array::{
    ArrayRef, BooleanArray, DictionaryArray, Float64Array, Int64Array, RecordBatch,
    RecordBatchReader, StringArray, UInt32Array, UInt64Array,
};
use arrow_schema::{DataType, Field, Metadata, Schema, SchemaRef};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::arrow::{ArrowWriter, ProjectionMask};
use parquet::basic::{Compression, Encoding};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use taillab_model::{Monotonic, Nanos, Operation};

use crate::error::ReportError;

/// Rows encoded at a time; bounds the memory together with [`GROUP_ROWS`].
const BATCH_ROWS: usize = 8_192;
/// Rows of a row group: what a reader must hold at once (about 10 MB unpacked).
const GROUP_ROWS: usize = 65_536;

/// The columns of a Parquet file, the whole declaration of it: its schema, the values of a row, the copies without
/// what a verdict withdraws, and its section in the documents come from here.
pub struct ParquetTable<R: 'static> {
    /// Which file it is, for people.
    pub title: &'static str,
    /// Which clock the instants are of, where there are any.
    pub clock: Option<&'static str>,
    /// In the order of the file.
    pub columns: &'static [Column<R>],
}

/// A column: its name, its description for readers, and the value of a row.
pub struct Column<R> {
    name: &'static str,
    description: &'static str,
    values: Values<R>,
    required: bool,
    rests_on: Option<RestsOn>,
}

/// A claim without which a column is not in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestsOn {
    /// The comparison with the ideal.
    Ideal,
    /// The causes, which are those of the excess over the ideal.
    Causes,
}

/// What documents say of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableText {
    /// Which file it is.
    pub title: &'static str,
    /// Which clock the instants are of, where there are any.
    pub clock: Option<&'static str>,
    /// In the order of the file.
    pub columns: Vec<ColumnText>,
}

/// What documents say of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnText {
    /// Its name in the file.
    pub name: &'static str,
    /// The type of its values.
    pub kind: &'static str,
    /// The unit of its values, where they have one.
    pub unit: Option<&'static str>,
    /// Every row has a value.
    pub is_required: bool,
    /// What its values are.
    pub description: &'static str,
}

/// How a row's value is found.
enum Values<R> {
    /// An instant by CLOCK_MONOTONIC, in nanoseconds since boot.
    Instant(fn(&R) -> Option<Monotonic>),
    /// A length in nanoseconds, which may be negative.
    Length(fn(&R) -> Option<i64>),
    /// One of a few words.
    Word(fn(&R) -> Option<&'static str>),
    Text(fn(&R) -> Option<String>),
    Number(fn(&R) -> Option<u32>),
    /// A number that may need more than 32 bits.
    Count(fn(&R) -> Option<u64>),
    Real(fn(&R) -> Option<f64>),
    /// A real number of nanoseconds, as means are.
    RealLength(fn(&R) -> Option<f64>),
    Flag(fn(&R) -> Option<bool>),
}

/// A constructor of [`Column`] for each kind of value.
macro_rules! constructors {
    ($($(#[$doc:meta])* $name:ident: $kind:ident($value:ty),)*) => {$(
        $(#[$doc])*
        pub const fn $name(
            name: &'static str,
            description: &'static str,
            of: fn(&R) -> Option<$value>,
        ) -> Self {
            Self {
                name,
                description,
                values: Values::$kind(of),
                required: false,
                rests_on: None,
            }
        }
    )*};
}

impl<R> Column<R> {
    constructors! {
        /// An instant.
        instant: Instant(Monotonic),
        /// A length.
        length: Length(i64),
        /// A word.
        word: Word(&'static str),
        /// A text.
        text: Text(String),
        /// A number.
        number: Number(u32),
        /// A large number.
        count: Count(u64),
        /// A real number.
        real: Real(f64),
        /// A length that need not be a whole number of nanoseconds.
        real_length: RealLength(f64),
        /// A flag, which every row has.
        flag: Flag(bool),
    }

    /// The same column where every row has a value.
    pub const fn required(mut self) -> Self {
        self.required = true;
        self
    }

    /// The same column, which is left out where this claim is withdrawn.
    pub const fn rests_on(mut self, claim: RestsOn) -> Self {
        self.rests_on = Some(claim);
        self
    }

    const fn is_time(&self) -> bool {
        matches!(self.values, Values::Instant(_) | Values::Length(_))
    }

    const fn unit(&self) -> Option<&'static str> {
        match self.values {
            Values::Instant(_) | Values::Length(_) | Values::RealLength(_) => Some(TIME_UNIT),
            _ => None,
        }
    }

    const fn is_required(&self) -> bool {
        self.required || matches!(self.values, Values::Flag(_))
    }

    /// Whether the column is there without this claim. Without the ideal there are no causes either.
    const fn holds_without(&self, withdrawn: RestsOn) -> bool {
        match (self.rests_on, withdrawn) {
            (None, _) | (Some(RestsOn::Ideal), RestsOn::Causes) => true,
            (Some(RestsOn::Ideal | RestsOn::Causes), _) => false,
        }
    }

    /// What documents say of it.
    const fn described(&self) -> ColumnText {
        ColumnText {
            name: self.name,
            kind: match self.values {
                Values::Instant(_) => "instant",
                Values::Length(_) => "length",
                Values::Word(_) => "word",
                Values::Text(_) => "text",
                Values::Number(_) => "number",
                Values::Count(_) => "count",
                Values::Real(_) => "real",
                Values::RealLength(_) => "real length",
                Values::Flag(_) => "flag",
            },
            unit: self.unit(),
            is_required: self.is_required(),
            description: self.description,
        }
    }

    /// The field with its description, and the unit and the clock of a time.
    fn field(&self, clock: Option<&str>) -> Field {
        let mut metadata = vec![("description", self.description)];
        metadata.extend(self.unit().map(|unit| ("unit", unit)));
        let (name, nullable) = (self.name, !self.is_required());
        let field = match self.values {
            Values::Instant(_) => {
                metadata.extend(clock.map(|clock| ("clock", clock)));
                Field::new(name, DataType::Int64, nullable)
            }
            Values::Length(_) => Field::new(name, DataType::Int64, nullable),
            Values::Word(_) => {
                Field::new_dictionary(name, DataType::Int8, DataType::Utf8, nullable)
            }
            Values::Text(_) => Field::new(name, DataType::Utf8, nullable),
            Values::Number(_) => Field::new(name, DataType::UInt32, nullable),
            Values::Count(_) => Field::new(name, DataType::UInt64, nullable),
            Values::Real(_) | Values::RealLength(_) => {
                Field::new(name, DataType::Float64, nullable)
            }
            Values::Flag(_) => Field::new(name, DataType::Boolean, nullable),
        };
        let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        field.with_metadata(metadata.into_iter().map(owned).collect::<Metadata>())
    }

    fn array(&self, rows: &[R]) -> ArrayRef {
        match self.values {
            Values::Instant(of) => Arc::new(Int64Array::from_iter(
                rows.iter().map(|row| of(row).map(instant_ns)),
            )),
            Values::Length(of) => Arc::new(Int64Array::from_iter(rows.iter().map(of))),
            Values::Word(of) => {
                Arc::new(DictionaryArray::<Int8Type>::from_iter(rows.iter().map(of)))
            }
            Values::Text(of) => Arc::new(StringArray::from_iter(rows.iter().map(of))),
            Values::Number(of) => Arc::new(UInt32Array::from_iter(rows.iter().map(of))),
            Values::Count(of) => Arc::new(UInt64Array::from_iter(rows.iter().map(of))),
            Values::Real(of) | Values::RealLength(of) => {
                Arc::new(Float64Array::from_iter(rows.iter().map(of)))
            }
            Values::Flag(of) => Arc::new(BooleanArray::from_iter(rows.iter().map(of))),
        }
    }
}

impl<R> ParquetTable<R> {
    /// Writes the rows as one Parquet file (snappy) and returns their number.
    ///
    /// Rows are taken one by one and written in row groups, so memory does not grow with their
    /// number. All times are signed 64-bit nanoseconds; the metadata of each column says its unit
    /// and its clock.
    ///
    /// # Errors
    /// [`ReportError::Write`] when the stream refuses the bytes, else [`ReportError::Format`].
    pub fn write<W: io::Write + Send>(
        &self,
        rows: impl IntoIterator<Item = R>,
        out: W,
    ) -> Result<u64, ReportError> {
        let columns = self.columns.iter();
        let fields: Vec<Field> = columns.map(|column| column.field(self.clock)).collect();
        let schema = Arc::new(Schema::new(fields));
        let mut writer = self.writer(out, &schema)?;
        let mut batch = Vec::with_capacity(BATCH_ROWS);
        let mut written = 0;
        let mut write = |batch: &mut Vec<R>| {
            let columns = self.columns.iter();
            let arrays = columns.map(|column| column.array(batch)).collect();
            let encoded = RecordBatch::try_new(Arc::clone(&schema), arrays);
            written += batch.len() as u64;
            batch.clear();
            writer
                .write(&encoded.map_err(|e| failed(OUTPUT, e.into()))?)
                .map_err(|e| failed(OUTPUT, e))
        };
        for row in rows {
            batch.push(row);
            if batch.len() == BATCH_ROWS {
                write(&mut batch)?;
            }
        }
        write(&mut batch)?;
        writer.close().map_err(|e| failed(OUTPUT, e))?;
        Ok(written)
    }

    /// Copies a file of [`Self::write`] from its start, without the columns that rest on this claim.
    pub(crate) fn copy_without<W: io::Write + Send>(
        &self,
        withdrawn: RestsOn,
        file: File,
        out: W,
    ) -> Result<(), ReportError> {
        let format = |e| failed(OUTPUT, e);
        let whole = ParquetRecordBatchReaderBuilder::try_new(file).map_err(format)?;
        let places = 0..self.columns.len();
        let kept = places.filter(|&place| self.columns[place].holds_without(withdrawn));
        let kept = ProjectionMask::roots(whole.parquet_schema(), kept);
        let reader = (whole.with_projection(kept).with_batch_size(BATCH_ROWS)).build();
        let reader = reader.map_err(format)?;
        let mut writer = self.writer(out, &reader.schema())?;
        for batch in reader {
            writer
                .write(&batch.map_err(|e| format(e.into()))?)
                .map_err(format)?;
        }
        writer.close().map(drop).map_err(format)
    }

    /// What documents say of it.
    pub fn text(&self) -> TableText {
        TableText {
            title: self.title,
            clock: self.clock,
            columns: self.columns.iter().map(Column::described).collect(),
        }
    }

    fn writer<W: io::Write + Send>(
        &self,
        out: W,
        schema: &SchemaRef,
    ) -> Result<ArrowWriter<W>, ReportError> {
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_max_row_group_row_count(Some(GROUP_ROWS))
            // statistics of each page would stay in memory to the end, and grow with the rows
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true);
        for column in self.columns.iter().filter(|column| column.is_time()) {
            // neighbouring times differ little and hardly repeat: differences take a third
            // of the room that the default, a dictionary, takes
            let path = || ColumnPath::from(column.name);
            properties = properties
                .set_column_dictionary_enabled(path(), false)
                .set_column_encoding(path(), Encoding::DELTA_BINARY_PACKED);
        }
        ArrowWriter::try_new(out, Arc::clone(schema), Some(properties.build()))
            .map_err(|e| failed(OUTPUT, e))
    }
}

const OUTPUT: &str = "requests.parquet";

/// The unit of every time in a column.
const TIME_UNIT: &str = "ns";

/// Nanoseconds since boot; a signed 64-bit number holds 292 years of them.
fn instant_ns(at: Monotonic) -> i64 {
    i64::try_from(at.nanos_since_boot()).unwrap_or(i64::MAX)
}

/// A length as a column holds it; a signed 64-bit number holds 292 years.
pub fn length_ns(length: Nanos) -> i64 {
    i64::try_from(length.get()).unwrap_or(i64::MAX)
}

pub(crate) const fn name_of(operation: Operation) -> &'static str {
    match operation {
        Operation::Get => "get",
        Operation::Set => "set",
        Operation::Call => "call",
    }
}

/// Unwraps the stream's own error from that of the encoder.
pub fn failed(output: &'static str, error: ParquetError) -> ReportError {
    let format = |cause: &dyn Error| ReportError::Format {
        output,
        cause: cause.to_string(),
    };
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(source) => ReportError::Write {
                output,
                source: *source,
            },
            Err(other) => format(other.as_ref()),
        },
        other => format(&other),
    }
}
