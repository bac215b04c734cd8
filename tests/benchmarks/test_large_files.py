from __future__ import annotations

from benchmarks.large_files import GET, STREAM, figures_of, ratios
from benchmarks.mirror import PUT
from benchmarks.report import OURS

FOUND = {OURS: [(2.0, 1.0), (4.0, 2.0)], STREAM: [(4.0, 1.0), (4.0, 2.0)], PUT: [(1.0, 4.0), (4.0, 2.0)]}


def test_both_ways_are_beside_one_stream_and_the_command_for_that_way() -> None:
    found = {(each.what, each.of): (each.values, each.holds) for each in ratios(figures_of(4096, FOUND))}
    stored, restored = "stored: one file of 4 GiB", "restored: one file of 4 GiB"
    assert found == {
        (stored, STREAM): ([2.0, 1.0], True),
        (stored, PUT): ([0.5, 1.0], False),
        (restored, STREAM): ([1.0, 1.0], False),
        (restored, GET): ([4.0, 1.0], True),
    }
