"""Whatever stands in an application's files, its history is read, judged and summed up."""

from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.advice.cases import history
from tests.operators.telemetry.test_course import RESTARTED
from tony_provider.advice.advise import advise
from tony_provider.cluster.history.read_history import read_history
from tony_provider.cluster.history.summarize import MOST_BYTES, RunFacts, summarize
from tony_provider.cluster.history.summary_parts import in_parts, read_summary
from tony_provider.runtime.codec import to_plain
from tony_provider.runtime.history.event_segments import EventRange, encode_events
from tony_provider.runtime.history.segments import SegmentHeader, encode_header, encode_sample, segment_name
from tony_provider.runtime.history.task_sample import TaskSample
from tony_provider.runtime.storage.local import LocalStorage

FACTS = RunFacts(application_id="a", application_dir="file:///a", dag_id="d", run_id="r", task_id="t")
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
    assert read_summary({**first, **details}) == (summary, [])


def _write(directory: Path, plain: Any) -> None:
    (directory / "history").mkdir()
    (directory / "result.json").write_text(json.dumps(plain["status"]))
    (directory / "history" / "specification.json").write_text(json.dumps(plain["specification"]))
    events, samples = _lines(plain["events"]), _lines(plain["samples"])
    (directory / "history" / EventRange(1, 1, len(events) or 1).file).write_bytes(encode_events("a", events))
    series = encode_header(SegmentHeader()) + gzip.compress(b"".join(samples))
    (directory / "history" / segment_name(1, 1)).write_bytes(series)


def _lines(plain: Any) -> list[bytes]:
    return [json.dumps(each).encode() + b"\n" for each in (plain if isinstance(plain, list) else [plain])]
