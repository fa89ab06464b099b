"""Histograms: reading a log, adding, quantiles."""

import base64
import struct
import zlib

import pytest

from taillab import ResultError, histogram
from taillab.histogram import Bucket, Histogram


def encoded(counts, lowest=1, digits=3):
    """The text of a histogram, by the format's description (V2, deflated)."""
    body = b"".join(varint(count) for count in counts)
    inner = struct.pack(">iiiiqqd", 0x1C849303 | 0x10, len(body), 0, digits, lowest, 1 << 40, 1.0) + body
    deflated = zlib.compress(inner)
    return base64.b64encode(struct.pack(">ii", 0x1C849304 | 0x10, len(deflated)) + deflated).decode()


def varint(number):
    value = (number << 1) ^ (number >> 63)
    out = bytearray()
    for _ in range(8):
        if value < 0x80:
            return bytes([*out, value])
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value & 0xFF])


def test_counters_are_for_the_values_of_the_format():
    # 7 zeros, then the value 7 three times; 2048 is the first with a step of 2
    read = histogram.decode(encoded([-7, 3, -2040, 5, 1]))
    assert read.buckets == (Bucket(7, 7, 3), Bucket(2048, 2049, 5), Bucket(2050, 2051, 1))


def test_large_counts_and_a_coarser_unit_are_read():
    many = (1 << 62) + 12345
    assert histogram.decode(encoded([many])).count == many
    assert histogram.decode(encoded([-3, 1], lowest=1000)).buckets == (Bucket(3 * 512, 4 * 512 - 1, 1),)


def test_quantiles_are_those_of_the_values():
    read = Histogram(tuple(Bucket(value, value, 1) for value in range(1, 101)))
    assert [read.quantile(q) for q in (0, 0.5, 0.99, 1)] == [1, 50, 99, 100]
    assert read.mean_ns == 50.5 and (read.min_ns, read.max_ns) == (1, 100)
    assert read.ccdf()[0] == (1, 0.99) and read.ccdf()[-1] == (100, 0.0)
    with pytest.raises(ValueError, match="0.99 for p99"):
        read.quantile(99)


def test_nothing_has_no_quantile():
    empty = Histogram(())
    assert (empty.count, empty.quantile(0.5), empty.mean_ns, empty.max_ns, empty.ccdf()) == (0, None, None, None, [])


def test_a_sum_has_the_counts_of_both():
    a = Histogram((Bucket(1, 1, 2), Bucket(5, 5, 1)))
    b = Histogram((Bucket(5, 5, 4), Bucket(9, 9, 1)))
    assert (a + b).buckets == (Bucket(1, 1, 2), Bucket(5, 5, 5), Bucket(9, 9, 1))
    assert (a + b).to_arrow().to_pydict() == {"low_ns": [1, 5, 9], "high_ns": [1, 5, 9], "count": [2, 5, 1]}


def test_the_intervals_of_a_log_are_added_by_series(tmp_path):
    log = tmp_path / "x.hlog"
    lines = [f"Tag=a,0.000,1.000,0.1,{encoded([0, 1])}", f"Tag=b,0.000,1.000,0.1,{encoded([0, 0, 1])}"]
    lines.append(f"Tag=a,1.000,1.000,0.1,{encoded([0, 2])}")
    log.write_text("\n".join(["#[a comment]", '"StartTimestamp","x"', *lines, ""]))
    read = histogram.read(log)
    assert list(read) == ["a", "b"] and read["a"].buckets == (Bucket(1, 1, 3),)


@pytest.mark.parametrize(
    "wrong",
    ["x", "AAAA", "HISTFAAA", encoded([1])[:-8], encoded([1, 1 << 40])[:40], encoded([1], digits=99)],
    ids=["letter", "short", "head", "cut", "half", "digits"],
)
def test_a_damaged_log_is_named_with_its_line(tmp_path, wrong):
    log = tmp_path / "x.hlog"
    log.write_text(f"# comment\nTag=a,0.000,1.000,0.1,{wrong}\n")
    with pytest.raises(ResultError, match="line 2 is no histogram"):
        histogram.read(log)
