//! `requests.parquet` read back.

use std::io;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int64Type, UInt32Type};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::reader::{FileReader, SerializedFileReader};
use taillab_model::explanation::Cause;
use taillab_model::{ClientTimes, Monotonic, Nanos, Operation, Peer, Stamps, address_hash};
use taillab_report::ReportError;
use taillab_report::requests::{RequestRow, write_parquet};

use crate::common;

fn at(ns: u64) -> Monotonic {
    Monotonic::from_nanos_since_boot(ns)
}

/// A whole request, one with gaps, and one that was never seen on the server.
fn three_rows() -> Vec<RequestRow> {
    vec![
        RequestRow {
            server: Some(Stamps {
                t1: at(100),
                t2: Some(at(110)),
                t3: Some(at(130)),
                t4: Some(at(160)),
                t5: Some(at(200)),
                t6: at(250),
            }),
            peer: Some(Peer::At("10.1.2.3:40000".parse().unwrap())),
            id: Some(65_535),
            ideal: Some(Nanos::new(170)),
            worker: Some(4711),
            main_cause: None,
            client: Some(ClientTimes {
                intended: at(80),
                sent: at(90),
                received: Some(at(270)),
            }),
            operation: Some(Operation::Get),
            warm_up: true,
        },
        RequestRow {
            server: Some(Stamps {
                t1: at(300),
                t2: Some(at(310)),
                t3: None,
                t4: Some(at(330)),
                t5: None,
                t6: at(450),
            }),
            peer: None,
            id: None,
            ideal: Some(Nanos::new(120)),
            worker: None,
            main_cause: Some(Cause::BlockedLock),
            client: None,
            operation: None,
            warm_up: false,
        },
        RequestRow {
            server: None,
            peer: None,
            id: None,
            ideal: None,
            worker: None,
            main_cause: None,
            client: Some(ClientTimes {
                intended: at(500),
                sent: at(510),
                received: None,
            }),
            operation: Some(Operation::Set),
            warm_up: false,
        },
    ]
}

fn read(file: Vec<u8>) -> Vec<RecordBatch> {
    ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(file))
        .unwrap()
        .build()
        .unwrap()
        .map(Result::unwrap)
        .collect()
}

fn column(batch: &RecordBatch, name: &str) -> Vec<Option<i64>> {
    let column = batch
        .column_by_name(name)
        .unwrap_or_else(|| panic!("no {name}"));
    column.as_primitive::<Int64Type>().iter().collect()
}

#[test]
fn what_was_written_is_read_back() {
    let mut file = Vec::new();
    assert_eq!(write_parquet(three_rows(), &mut file).unwrap(), 3);
    let batches = read(file);
    let [batch] = batches.as_slice() else {
        panic!("one batch, not {}", batches.len());
    };
    let expected: [(&str, [Option<i64>; 3]); 17] = [
        ("t1", [Some(100), Some(300), None]),
        ("t2", [Some(110), Some(310), None]),
        ("t3", [Some(130), None, None]),
        ("t4", [Some(160), Some(330), None]),
        ("t5", [Some(200), None, None]),
        ("t6", [Some(250), Some(450), None]),
        ("sojourn_ns", [Some(150), Some(150), None]),
        ("ideal_ns", [Some(170), Some(120), None]),
        ("excess_ns", [Some(-20), Some(30), None]),
        ("t1_t2_ns", [Some(10), None, None]),
        ("t2_t3_ns", [Some(20), None, None]),
        ("t3_t4_ns", [Some(30), None, None]),
        ("t4_t5_ns", [Some(40), None, None]),
        ("t5_t6_ns", [Some(50), None, None]),
        ("intended", [Some(80), None, Some(500)]),
        ("sent", [Some(90), None, Some(510)]),
        ("received", [Some(270), None, None]),
    ];
    for (name, values) in expected {
        assert_eq!(column(batch, name), values, "{name}");
    }
    let words = |name: &str| -> Vec<Option<String>> {
        let column = batch.column_by_name(name).unwrap();
        let column = column.as_dictionary::<Int8Type>();
        let words = column.downcast_dict::<arrow_array::StringArray>().unwrap();
        words
            .into_iter()
            .map(|word| word.map(str::to_owned))
            .collect()
    };
    assert_eq!(
        words("operation"),
        [Some("get".to_owned()), None, Some("set".to_owned())]
    );
    assert_eq!(
        words("main_cause"),
        [None, Some("blocked_lock".to_owned()), None]
    );
    let numbers = |name: &str| -> Vec<Option<u32>> {
        let column = batch.column_by_name(name).unwrap();
        column.as_primitive::<UInt32Type>().iter().collect()
    };
    let hash = address_hash("10.1.2.3".parse().unwrap()).into();
    for (name, first) in [
        ("worker", 4711),
        ("client_port", 40_000),
        ("client_hash", hash),
        ("request_id", 65_535),
    ] {
        assert_eq!(numbers(name), [Some(first), None, None], "{name}");
    }
    let warm_up = batch.column_by_name("warm_up").unwrap().as_boolean();
    assert_eq!(
        warm_up.iter().collect::<Vec<_>>(),
        [true, false, false].map(Some)
    );
    let addresses = batch.column_by_name("client_address").unwrap();
    let addresses = addresses.as_string::<i32>().iter().collect::<Vec<_>>();
    assert_eq!(addresses, [Some("10.1.2.3"), None, None]);
    assert_eq!(batch.num_columns(), 25);
}

#[test]
fn each_column_says_its_unit_and_each_instant_its_clock() {
    let mut file = Vec::new();
    write_parquet(three_rows(), &mut file).unwrap();
    let batches = read(file);
    for field in batches[0].schema().fields() {
        let metadata = field.metadata();
        assert!(metadata.get("description").is_some(), "{}", field.name());
        let is_time = *field.data_type() == arrow_schema::DataType::Int64;
        let unit = metadata.get("unit").map(|unit| unit.to_string());
        assert_eq!(unit.as_deref(), is_time.then_some("ns"), "{}", field.name());
        let is_instant = is_time && !field.name().ends_with("_ns");
        assert_eq!(
            metadata.get("clock").is_some(),
            is_instant,
            "{}",
            field.name()
        );
    }
}

#[test]
fn a_long_run_is_written_in_groups_and_comes_back_whole() {
    let sample = common::sample(Nanos::from_secs(5));
    let mut file = Vec::new();
    let written = write_parquet(sample.rows.iter().copied(), &mut file).unwrap();
    assert_eq!(written, sample.rows.len() as u64);
    let groups = SerializedFileReader::new(bytes::Bytes::from(file.clone()))
        .unwrap()
        .metadata()
        .num_row_groups();
    assert!(groups >= 2, "{groups} row group for {written} rows");
    let mut rows = sample.rows.iter();
    for batch in read(file) {
        let (t1, t6) = (column(&batch, "t1"), column(&batch, "t6"));
        let excess = column(&batch, "excess_ns");
        let stages = ["t1_t2_ns", "t2_t3_ns", "t3_t4_ns", "t4_t5_ns", "t5_t6_ns"]
            .map(|name| column(&batch, name));
        for i in 0..batch.num_rows() {
            let row = rows.next().expect("no more rows than were written");
            let stamps = row.server.unwrap();
            let signed = |at: Monotonic| Some(at.nanos_since_boot() as i64);
            assert_eq!((t1[i], t6[i]), (signed(stamps.t1), signed(stamps.t6)));
            let sojourn = t6[i].unwrap() - t1[i].unwrap();
            let ideal = row.ideal.unwrap().get() as i64;
            assert_eq!(excess[i], Some(sojourn - ideal));
            let sum: Option<i64> = stages.iter().map(|stage| stage[i]).sum();
            assert_eq!(sum, stamps.is_complete().then_some(sojourn));
        }
    }
    assert!(rows.next().is_none());
}

#[test]
fn an_empty_run_has_a_file_with_columns_and_no_rows() {
    let mut file = Vec::new();
    assert_eq!(write_parquet([], &mut file).unwrap(), 0);
    let rows: usize = read(file).iter().map(RecordBatch::num_rows).sum();
    assert_eq!(rows, 0);
}

/// A disk that is full after some bytes.
struct FullDisk(usize);

impl io::Write for FullDisk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.0 {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        self.0 -= bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_said_with_its_remedy() {
    let error = write_parquet(three_rows(), FullDisk(100)).unwrap_err();
    assert!(
        matches!(&error, ReportError::Write { source, .. } if source.kind() == io::ErrorKind::StorageFull),
        "{error:?}"
    );
    let text = error.to_string();
    assert!(
        text.contains("requests.parquet") && text.contains("free some space"),
        "{text}"
    );
}
