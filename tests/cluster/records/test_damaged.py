"""Whatever stands in an application's files, its history is read, judged and summed up."""

from __future__ import annotations

import copy
import gzip
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.advice.cases import history
from tests.operators.telemetry.test_course import RESTARTED
from tony_provider.advice.advise import advise
from tony_provider.cluster.records.history import read_history
from tony_provider.cluster.records.summary import MOST_BYTES, JobSummary, in_parts, read_summary, summarize
from tony_provider.runtime.application_history import (
    EventRange,
    SampleSegmentHeader,
    TaskSample,
    encode_events,
    encode_header,
    encode_sample,
    segment_name,
)
from tony_provider.runtime.common.codec import to_plain
from tony_provider.runtime.storage.local import LocalStorage

FACTS = JobSummary(application_id="a", application_dir="file:///a", dag_id="d", run_id="r", task_id="t")
SAMPLES = [
    TaskSample(time_ms=1000 * at, seconds=10.0, task=f"worker:{at % 4}", step=at, metrics={"val_loss": 1 / (1 + at)})
    for at in range(100)
]
WHOLE = history(events=RESTARTED, samples=SAMPLES, restarts=2)
PLAIN = {
    "status": to_plain(WHOLE.status),
    "specification": to_plain(WHOLE.specification),
    "events": list(WHOLE.events),
    "samples": [json.loads(encode_sample(each)) for each in SAMPLES],
}
NUMBERS = [0, -1, 1e308, -(10**30), 2**63, 10**400, "NaN", "Infinity"]
NASTY: list[Any] = [*NUMBERS, None, "", [], {}, "<b>&\x00\ud800" * 999, True, [None]]


def _places(plain: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    inner = plain.items() if isinstance(plain, dict) else enumerate(plain[:6]) if isinstance(plain, list) else ()
    return [*found, *(place for key, value in inner for place in _places(value, (*path, key)))]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(_places(PLAIN)), st.sampled_from(NASTY)), min_size=1, max_size=4))
def test_whatever_stands_in_the_files(damage: list[tuple[tuple[Any, ...], Any]]) -> None:
    plain: Any = copy.deepcopy(PLAIN)
    for path, value in sorted(damage, key=lambda each: -len(each[0])):  # the inner ones first
        place = plain
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = copy.deepcopy(value)
    with TemporaryDirectory() as name:
        _write(Path(name), plain)
        found = read_history(LocalStorage(), Path(name).as_uri())
    advice = advise(found)
    summary = summarize(FACTS, found, None, advice)
    first, details = in_parts(summary)
    assert len(json.dumps([first, details], allow_nan=False)) < MOST_BYTES + 1000
    read, problems = read_summary({**first, **details})
    assert (to_plain(read), problems) == (to_plain(summary), [])  # as text: NaN is not itself


def _directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


def _loop(file: Path) -> None:
    file.unlink()
    file.symlink_to(file.name)


def _nested(file: Path) -> None:
    file.write_text('{"given": {}, "job": {"a": ' + "[" * 850 + "]" * 850 + "}}")


SPECIFICATION, RESULT, SERIES = "history/specification.json", "result.json", f"history/{segment_name(1, 1)}"


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        *itertools.product((SPECIFICATION, RESULT, SERIES), (_directory, _loop)),
        (SPECIFICATION, _nested),
    ],
)
def test_one_file_that_cannot_be_read_hides_nothing_of_the_others(
    tmp_path: Path, name: str, damage: Callable[[Path], None]
) -> None:
    _write(tmp_path, PLAIN)
    damage(tmp_path / name)
    found = read_history(LocalStorage(), tmp_path.as_uri())
    read = {SPECIFICATION: found.specification, RESULT: found.status, SERIES: found.samples}
    assert [each for each in read if not read[each]] == [name]
    assert len(found.events) == len(PLAIN["events"])
    assert found.missing
    json.dumps(to_plain(found.events))


def test_a_series_that_ends_after_its_header_is_cut_short(tmp_path: Path) -> None:
    _write(tmp_path, PLAIN)
    (tmp_path / SERIES).write_bytes(encode_header(SampleSegmentHeader()))
    found = read_history(LocalStorage(), tmp_path.as_uri())
    assert found.missing == [f"series: {segment_name(1, 1)}: it is truncated after its first line"]


def test_events_that_are_nested_too_deeply_are_left_out(tmp_path: Path) -> None:
    nested = json.loads("[" * 900 + "]" * 900)
    _write(tmp_path, {**PLAIN, "events": [*PLAIN["events"], {"time_ms": 1, "event": "x", "a": nested}]})
    found = read_history(LocalStorage(), tmp_path.as_uri())
    assert list(found.events) == PLAIN["events"]
    assert any("1 line cannot be read" in each for each in found.missing)


def _write(directory: Path, plain: Any) -> None:
    (directory / "history").mkdir()
    (directory / "result.json").write_text(json.dumps(plain["status"]))
    (directory / "history" / "specification.json").write_text(json.dumps(plain["specification"]))
    events, samples = _lines(plain["events"]), _lines(plain["samples"])
    (directory / "history" / EventRange(1, 1, len(events) or 1).file).write_bytes(encode_events("a", events))
    series = encode_header(SampleSegmentHeader()) + gzip.compress(b"".join(samples))
    (directory / "history" / segment_name(1, 1)).write_bytes(series)


def _lines(plain: Any) -> list[bytes]:
    return [json.dumps(each).encode() + b"\n" for each in (plain if isinstance(plain, list) else [plain])]
