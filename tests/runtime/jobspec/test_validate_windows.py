"""The key ``windows``."""

from __future__ import annotations

from typing import Any

import pytest

from tony_provider.runtime.jobspec.model import OpenHours, Windows
from tony_provider.runtime.jobspec.problems import SpecError
from tony_provider.runtime.parsing.parse import parse_job


def windows(value: Any) -> Windows | None:
    job = {"framework": "standalone", "tasks": {"worker": {"command": "true"}}, "windows": value}
    return parse_job(job).windows


def test_hours_with_and_without_a_zone() -> None:
    assert windows(None) is None
    night = [OpenHours("22:00-06:00")]
    assert windows("22:00-06:00") == windows(["22:00-06:00"]) == windows({"open": ["22:00-06:00"]}) == Windows(night)
    berlin = {"zone": "Europe/Berlin", "open": ["Mon-Fri 22:00-06:00", "Sat 06:00-24:00", "Sun"]}
    assert windows(berlin) == Windows([OpenHours(each) for each in berlin["open"]], "Europe/Berlin")


@pytest.mark.parametrize(
    ("value", "path", "says"),
    [
        ([], "windows.open", "never opens"),
        ({"open": []}, "windows.open", "never opens"),
        ({"zone": "UTC"}, "windows.open", "is required"),
        (["22:00-22:00"], "windows.open[0]", "it never opens"),
        (["at night"], "windows.open[0]", "not hours of the week"),
        ([22], "windows.open[0]", "not hours of the week"),
        ({"open": ["Sat-Sun"], "zone": "Europe/Bärlin"}, "windows.zone", "is not a time zone"),
        ({"open": ["Sat-Sun"], "zone": "../../etc/passwd"}, "windows.zone", "is not a time zone"),
        ({"open": ["Sat-Sun"], "zone": ""}, "windows.zone", "is not a time zone"),
        ({"open": ["Sat-Sun"], "timezone": "UTC"}, "windows.timezone", "did you mean zone?"),
        (["Mon-Fri 22:00-06:00", "Sat-Sun"], "windows.open[1]", "overlaps with 'Mon-Fri 22:00-06:00'"),
        (["Mon 00:00-02:00", "Sun 22:00-01:00"], "windows.open[1]", "overlaps with 'Mon 00:00-02:00'"),
        (["Sat", "Sat"], "windows.open[1]", "overlaps with 'Sat'"),
        (7, "windows", "must be a mapping"),
    ],
)
def test_what_is_wrong(value: Any, path: str, says: str) -> None:
    with pytest.raises(SpecError) as caught:
        windows(value)
    problems = {problem.path: problem.message for problem in caught.value.problems}
    assert says in problems[path]
