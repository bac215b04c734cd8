"""A job whose nodes have wrong clocks. The interpreter of the nodes shifts ``time.time`` by container."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.jobs.left import assert_nothing_left
from tests.jobs.places import YarnPlace
from tests.permissions import open_to_all
from tests.waiting import until
from tony_provider.runtime.parsing.parse import parse_job
from tony_provider.runtime.protocol.status import JobState, JobStatus
from tony_provider.watching.job_watch import JobWatch, WatchEnd, deadlines_of
from tony_provider.watching.observation import observe

SHIFTED = """\
#!/bin/sh
# Runs start.py, the only script of the runtime, with a clock of {shifts}: seconds by the end of the container's id.
case "$3" in
*/start.py) exec {python} -I -S -c '
import os, runpy, sys, time
shifts = {shifts}
shift = next((shifts[end] for end in shifts if os.environ["CONTAINER_ID"].endswith(end)), 0)
real, real_ns = time.time, time.time_ns
time.time = lambda: real() + shift
time.time_ns = lambda: real_ns() + shift * 10**9
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")' "$3" "$4" ;;
esac
exec {python} "$@"
"""
AHEAD, BEHIND = 2 * 3600, -50 * 3600


@pytest.fixture
def shifted(yarn: YarnPlace, tmp_path: Path) -> YarnPlace:
    """The second application master's node is two hours ahead, and the node of an executor is 50 hours behind."""
    python = tmp_path / "python3"
    shifts = {"_02_000001": AHEAD, "_01_000003": BEHIND}
    python.write_text(SHIFTED.format(python=shlex.quote(sys.executable), shifts=str(shifts).replace("'", '"')))
    python.chmod(0o755)
    open_to_all(tmp_path)
    yarn.extra |= {"python": str(python)}
    return yarn


def test_durations_are_measured_and_wrong_clocks_reported(shifted: YarnPlace, tmp_path: Path) -> None:
    """Seen: the next master, on a node two hours ahead, ended the job by timeouts.lifetime."""
    end = tmp_path / "end"
    job = shifted.submit(
        {
            "timeouts": {"lifetime": "1h"},
            "tasks": {
                "worker": {
                    "instances": 2,
                    "memory": "128MiB",
                    "command": f"while [ ! -e {end} ]; do sleep 0.2; done",
                }
            },
        }
    )
    running = job.until(JobState.RUNNING)
    until(lambda: "(2 d 2 h behind it)" in " ".join(job.status().troubles), job.describe)
    os.kill(job.master().pid, signal.SIGKILL)

    def next_master() -> JobStatus | None:
        status = job.status()
        return status if status.am_attempt == 2 and status.state is JobState.RUNNING else None

    status = until(next_master, job.describe)
    assert any(
        "the application master's node is 2 h ahead of the clock of the store" in each for each in status.troubles
    )
    assert abs(status.started_ms - running.started_ms) < 1000
    assert abs(status.updated_ms - running.updated_ms) < AHEAD * 1000 / 2, "times of the two masters compare"
    end.touch()
    job.succeeded()
    assert_nothing_left(shifted, job)


def test_an_airflow_machine_with_a_wrong_clock_counts_by_the_clusters(
    yarn: YarnPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker sets the limits, and a triggerer two hours ahead watches: that is this process, after a while."""
    spec = {"tasks": {"worker": {"memory": "128MiB", "command": "sleep 1000"}}, "timeouts": {"queue": "1h"}}
    job = yarn.submit(spec)
    started, real, log = datetime.now(UTC), time.time, list[str]()
    parsed = parse_job({"framework": "standalone", **spec})
    hour, second = timedelta(hours=1), timedelta(seconds=1)
    limits = deadlines_of(job.handle, parsed, started=started, execution_timeout=hour)
    monkeypatch.setattr(time, "time", lambda: real() + AHEAD)
    triggerer = yarn.hook()
    watched = triggerer.job(job.id, job.identity)
    watch = JobWatch(job.id, limits, log.append)
    assert watch.judge(None) is None
    assert watch.judge(observe(watched)) is None
    assert "The clock of this machine is 2 h ahead of the cluster's clock" in " ".join(log)
    assert abs(triggerer.now() - real()) < 60
    limits = deadlines_of(
        watched, parsed, started=datetime.fromtimestamp(real() + AHEAD, UTC), execution_timeout=second
    )
    watch = JobWatch(job.id, limits, log.append)
    result = until(lambda: watch.judge(observe(watched)), job.describe)
    assert result.reason is WatchEnd.DEADLINE, "a limit of this machine holds"
