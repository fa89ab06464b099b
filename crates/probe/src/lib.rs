//! eBPF programs that stamp T1..T6, their loader and the recorded event stream.
