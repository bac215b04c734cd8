"""What the key ``windows`` of a job must be."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from zoneinfo import ZoneInfo

from tony_provider.runtime.spec.model import JobSpec
from tony_provider.runtime.spec.opening_hours import read_hours
from tony_provider.runtime.spec.problems import Problem, item


def windows_problems(job: JobSpec) -> Iterator[Problem]:
    """What is wrong with the hours in which the job may have containers."""
    if job.windows is None:
        return
    if not job.windows.open:
        yield Problem("windows.open", [], "it never opens: name hours, such as 22:00-06:00, or leave windows out")
    if not _is_zone(job.windows.zone):
        message = "is no time zone that this machine knows; write it as the IANA does, such as Europe/Berlin or UTC"
        yield Problem("windows.zone", job.windows.zone, message)
    # What could not be read is empty here, and was told of.
    hours = [(index, text, read_hours(text)) for index, text in enumerate(job.windows.open) if text]
    for (_, one, first), (index, two, second) in combinations(hours, 2):
        if first.overlap(second):
            yield Problem(item("windows.open", index), two, f"overlaps with {one!r}; name each hour of the week once")


def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ValueError, OSError, LookupError):  # what names no file, what leads to another place, what is unknown
        return False
    return True
