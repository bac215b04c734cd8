"""The phases of one job, from the logs of YARN's daemons: where the time from the submission to the end goes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import attrs

from tests.hadoop.cluster import HadoopCluster

# Each phase ends with the event that names it. Of several containers, the last container counts.
PHASES = (
    "submit returns",
    "master's container allocated",
    "master's process started",
    "master registered",
    "last container allocated",
    "last executor's process started",
    "last user process",
    "last user process ended",
    "master unregistered",
    "client knows",
)
_LINE = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3}) \S+ (.*)")
_ALLOCATED = "Container Transitioned from NEW to ALLOCATED"
_STARTED = "transitioned from SCHEDULED to RUNNING"
_MASTER = "_000001 "


@attrs.frozen
class Client:
    """What the client and the tasks know of a job, in seconds since 1970."""

    began: float
    submitted: float
    last_task: float  # when the last user process began
    last_end: float
    known: float


def phases(cluster: HadoopCluster, application_id: str, client: Client) -> list[float]:
    """Return the seconds of each phase in PHASES, or 0 if the phase ended before an earlier phase."""
    number = application_id.removeprefix("application_")
    lines = [line for path in sorted(cluster.layout.logs.glob("*manager-*.log")) for line in _lines(path, number)]

    def last(*parts: str, master: bool | None = None) -> float:
        times = [
            time for time, text in lines if all(part in text for part in parts) and master in (None, _MASTER in text)
        ]
        return max(times, default=client.began)

    ends = [
        client.submitted,
        last(_ALLOCATED, master=True),
        last(_STARTED, master=True),
        last("AM registration"),
        last(_ALLOCATED, master=False),
        last(_STARTED, master=False),
        client.last_task,
        client.last_end,
        last("RMAppAttemptImpl", "from RUNNING to FINAL_SAVING"),
        client.known,
    ]
    found, before = [], client.began
    for end in ends:
        found.append(max(end - before, 0.0))
        before = max(end, before)
    return found


def _lines(path: Path, number: str) -> Iterator[tuple[float, str]]:
    with path.open(errors="replace") as file:
        for line in file:
            if number in line and (match := _LINE.match(line)):
                yield datetime.fromisoformat(match[1]).timestamp() + int(match[2]) / 1000, match[3]
