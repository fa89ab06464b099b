//! Terminal, HTML, JSON, Parquet and HdrHistogram outputs.
