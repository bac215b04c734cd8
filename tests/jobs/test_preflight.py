"""Jobs that check their nodes and the network first. A row of `make faults` has a sick node."""

from __future__ import annotations

import pytest

from tests.jobs.left import assert_nothing_left
from tests.jobs.places import YarnPlace


@pytest.mark.parametrize("framework", ["generic", "tensorflow"])  # tensorflow: the ports stay reserved meanwhile
def test_ranks_meet_before_their_processes_start(yarn: YarnPlace, framework: str) -> None:
    listen = "import os, socket; s = socket.socket(); s.bind(('', int(os.environ['TONY_PORT']))); s.listen()"
    if framework == "tensorflow":
        listen = listen.replace("s.bind", "s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1); s.bind")
    workers = {"worker": {"instances": 3, "memory": "128MiB", "command": f'python3 -c "{listen}"'}}
    job = yarn.run({"framework": framework, "preflight": True, "tasks": workers})
    job.succeeded()
    assert "failed" not in [event["event"] for event in job.events()]
    assert_nothing_left(yarn, job)
