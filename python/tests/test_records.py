"""The typed classes against the schemas and against what the program writes."""

import subprocess
import sys
from pathlib import Path

import pytest

from taillab import records
from taillab._record import Record


PYTHON = Path(__file__).resolve().parents[1]


def test_the_classes_are_those_of_the_schemas():
    script = PYTHON / "generate_records.py"
    assert subprocess.run([sys.executable, script, "--check"]).returncode == 0, f"run {script}"


@pytest.mark.parametrize("made", ["explained", "simulated", "round_trips", "loaded"])
def test_every_key_that_the_program_writes_has_a_type(made, request):
    summary = request.getfixturevalue(made).summary
    seen = list(walk(summary))
    assert len(seen) > 20
    unknown = {(type(record).__name__, key) for record in seen for key in record.to_dict() if not known(record, key)}
    assert not unknown


def test_a_part_that_is_missing_is_none_and_a_wrong_name_is_an_error(explained):
    assert explained.summary.load is None and "load" not in explained.summary
    with pytest.raises(AttributeError, match="no 'sojorn'; it has .*sojourn"):
        _ = explained.summary.measured.sojorn
    assert "sojourn" in dir(explained.summary.measured)


def test_quantiles_are_found_by_their_probability(explained):
    sojourn = explained.summary.measured.sojourn
    p99 = sojourn.quantile(0.99)
    assert isinstance(p99, records.Quantile) and p99.lo <= p99.value
    assert sojourn.quantile(0.123) is None
    assert p99.value == next(each["value"] for each in sojourn["quantiles"] if each["q"] == 0.99)


def test_words_of_the_language_have_an_underscore():
    cell = records.FactorialCell({"with": ["rt-priority"], "at": []})
    assert cell.with_ == ["rt-priority"] and cell == records.FactorialCell(cell.to_dict())


def known(record, key):
    fields = type(record).__annotations__
    return key in fields or f"{key}_" in fields


def walk(value):
    """All records below."""
    if isinstance(value, Record):
        yield value
        for key in value.to_dict():
            yield from walk(getattr(value, key))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from walk(each)
