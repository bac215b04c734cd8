from __future__ import annotations

from benchmarks.mirror import PUT, RAW, Case, Copied, figures_of, ratios
from benchmarks.report import OURS

CASE = Case("two ranks", files=4, size=1 << 20, ranks=2)
FOUND = {
    OURS: [Copied(2.0, cpu=0.5, requests=24), Copied(4.0, cpu=0.5, requests=24)],
    RAW: [Copied(1.0, cpu=0.25, requests=16), Copied(4.0, cpu=0.25, requests=16)],
    PUT: [Copied(8.0, cpu=0.0, requests=0), Copied(8.0, cpu=0.0, requests=0)],
}


def test_speeds_are_of_all_ranks_together() -> None:
    speeds = {each.who: each.values for each in figures_of(CASE, FOUND, [3.0, 3.0]) if each.unit == "MiB/s"}
    assert speeds == {OURS: [4.0, 2.0], RAW: [8.0, 2.0], PUT: [1.0, 1.0]}


def test_requests_are_told_for_each_file() -> None:
    told = [each for each in figures_of(CASE, FOUND, [3.0, 3.0]) if each.what.startswith("requests")]
    assert {each.who: each.values for each in told} == {OURS: [3.0, 3.0], RAW: [2.0, 2.0]}


def test_only_the_raw_copy_is_aimed_at() -> None:
    found = {each.of: each for each in ratios(list(figures_of(CASE, FOUND, [3.0, 3.0])))}
    assert {of: each.values for of, each in found.items()} == {RAW: [0.5, 1.0], PUT: [4.0, 2.0]}
    assert (found[RAW].holds, found[PUT].holds) == (False, None)
