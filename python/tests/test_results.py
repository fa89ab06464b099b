"""Saved results: tables, histograms, pages."""

import json
import re

import pandas
import polars
import pyarrow
import pyarrow.compute as pc
import pytest

import taillab


def test_a_directory_is_read_with_its_kind(explained, simulated, round_trips, loaded):
    for made, command in ((explained, "explain"), (simulated, "sim"), (round_trips, "rtt"), (loaded, "load")):
        again = taillab.load(made.directory)
        assert again.summary == made.summary and again.summary.command == command


def test_requests_are_those_of_the_summary(explained):
    requests = explained.requests
    assert requests.schema.field("sojourn_ns").type == pyarrow.int64()
    measured = requests.filter(pc.invert(requests["warm_up"]))["sojourn_ns"].drop_null()
    sojourn = explained.summary.measured.sojourn
    assert (len(measured), pc.max(measured).as_py()) == (sojourn.count, sojourn.max)
    assert requests.schema.field("sojourn_ns").metadata[b"unit"] == b"ns"


def test_pandas_and_polars_take_the_columns_without_a_copy(explained):
    column = explained.requests["sojourn_ns"]
    ours = addresses(column)
    frame = explained.requests.to_pandas(types_mapper=pandas.ArrowDtype)
    assert addresses(frame["sojourn_ns"].array.__arrow_array__()) == ours
    polar = polars.from_arrow(explained.requests, rechunk=False)
    assert addresses(pyarrow.chunked_array([polar["sojourn_ns"].to_arrow()])) == ours
    assert polar["sojourn_ns"].max() == frame["sojourn_ns"].max() == pc.max(column).as_py()


def test_a_histogram_has_the_requests_to_three_digits(explained, loaded):
    histogram = explained.histogram
    sojourn = explained.summary.measured.sojourn
    assert histogram.count == sojourn.count
    for q in (0.5, 0.9, 0.99):
        assert histogram.quantile(q) == pytest.approx(sojourn.quantile(q).value, rel=2e-3)
    assert histogram.mean_ns == pytest.approx(sojourn.mean, rel=1e-3)
    assert set(explained.histograms) == {"ideal", "measured"}
    assert loaded.histogram == loaded.histograms["response_time"]
    assert loaded.histogram.count == loaded.summary.load.response_time.count


def test_round_trips_of_all_rows_are_one_table(round_trips):
    table = round_trips.requests
    names = set(table["row"].to_pylist())
    assert names == {"unix-blocking-64-1", "unix-blocking-1024-1"} == set(round_trips.histograms)
    assert len(table) == sum(row.rtt.count for row in round_trips.summary.rows)
    with pytest.raises(taillab.ResultError, match="see `histograms`"):
        _ = round_trips.histogram


def test_simulated_systems_are_a_table(simulated):
    systems = simulated.systems
    assert systems["discipline"].to_pylist() == ["fifo", "lifo"]
    fifo = simulated.summary.runs[0]
    assert systems["p99_ns"][0].as_py() == fifo.sojourn.quantile(0.99).value
    for what in ("requests", "histogram", "environment"):
        with pytest.raises(taillab.ResultError, match=str(simulated.directory)):
            getattr(simulated, what)


def test_a_notebook_shows_the_page_in_a_frame_of_its_own(explained):
    shown = explained._repr_html_()
    frame = re.fullmatch(r'<iframe srcdoc="([^"]*)" sandbox="allow-scripts" [^>]*></iframe>', shown)
    assert frame and "<" not in frame[1]
    assert "Where the excess comes from" in explained.page and "Where the excess comes from" in frame[1]
    assert "p99" in repr(explained) and str(explained.directory) in repr(explained)


def test_the_environment_is_that_of_the_measurement(explained, tmp_path):
    (tmp_path / "summary.json").write_text(json.dumps(explained.summary.to_dict()))
    (tmp_path / "environment.json").write_text('{"kernel": {"release": "6.1"}}')
    assert taillab.load(tmp_path).environment["kernel"]["release"] == "6.1"
    with pytest.raises(taillab.ResultError, match="only `run` and `trace`"):
        _ = explained.environment


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "holds no result"),
        ("{", "is no result"),
        ("[]", "is no result"),
        ('{"command": "dance"}', "command"),
        ('{"command": "run", "schema_version": 99}', "has version 99"),
    ],
    ids=["nothing", "half", "list", "unknown", "version"],
)
def test_what_is_no_result_is_said_in_one_line(tmp_path, text, says):
    if text is not None:
        (tmp_path / "summary.json").write_text(text)
    with pytest.raises(taillab.ResultError, match=says) as error:
        taillab.load(tmp_path)
    assert "\n" not in str(error.value)


def addresses(column):
    """Where the values of each chunk lie."""
    chunks = column.chunks if isinstance(column, pyarrow.ChunkedArray) else [column]
    return [chunk.buffers()[1].address + 8 * chunk.offset for chunk in chunks]
