"""A whole job while strangers, from another process, take every connection to its master that they can."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from tests.runtime.am.flood import flooding
from tests.runtime.am.local_resource_manager.jobs import start
from tony_provider.runtime.jobspec.model import Duration, JobSpec, Memory, RestartPolicy, TaskSpec, Timeouts
from tony_provider.runtime.protocol.status import JobState


async def test_a_job_beside_a_flood_succeeds(tmp_path: Path) -> None:
    """An executor is killed meanwhile: the next one has to get in."""
    go = tmp_path / "go"
    dies_once = f"test $TONY_TASK_INDEX = 0 && mkdir {tmp_path}/died && kill -9 $PPID; true"
    job = JobSpec(
        framework="standalone",
        tasks={
            "worker": TaskSpec(
                command=f"while ! test -e {go}; do sleep 0.1; done; {dies_once}", instances=2, memory=Memory(256)
            )
        },
        name="flooded",
        timeouts=Timeouts(grace=Duration(5.0)),
        restart=RestartPolicy(budget=1),
    )
    running = await start(tmp_path, job)
    await running.until("RUNNING")
    found = re.search(r"connect to this application master at 127.0.0.1:(\d+)", running.log)
    assert found
    with flooding("127.0.0.1", int(found[1]), 1100, first=10, sources=5) as flood:
        await asyncio.to_thread(flood.until_closed, 100)
        go.touch()
        result = await running.end()
    assert result.state is JobState.SUCCEEDED, running.log
    assert [each.attempt for each in result.tasks] == [2, 1]
    assert "too many unauthenticated connections" in running.log
