"""Where user processes are told to listen, by an executor that looks at its node's addresses."""

from __future__ import annotations

import json

from tests.runtime.executor.conftest import Launch
from tests.runtime.executor.containers import job
from tests.runtime.executor.master import address
from tony_provider.runtime.frameworks.base import MAIN_PORT

VARIABLES = ("TONY_LISTEN_ADDRESS", "GLOO_SOCKET_IFNAME")
SHOW = "python -c \"import json, os; json.dump(dict(os.environ), open('seen.json', 'w'))\""


async def told(launch: Launch, other: str, **more: object) -> list[str | None]:
    """What a process of PyTorch's finds whose node is 127.0.0.1 to the others; ``other``: where another one is."""
    running = await launch(job(SHOW, framework="pytorch", **more))
    registration = await running.master.first("registration")
    own = address("worker", 0, registration.ports[MAIN_PORT])
    running.master.rendezvous(own, address("worker", 1, 20001, host=other), generation=1)
    ended = await running.master.first("exited")
    assert ended.exit_code == 0, ended.output_tail
    seen = json.loads((running.container.directory / "seen.json").read_text())
    await running.end()
    return [seen.get(name) for name in VARIABLES]


async def test_at_the_address_and_interface_by_which_others_know_the_node(launch: Launch) -> None:
    assert await told(launch, "127.0.0.1") == ["127.0.0.1", "lo"]


async def test_everywhere_where_others_know_it_by_another_address(launch: Launch) -> None:
    assert await told(launch, "10.0.0.2") == [None, None]


async def test_the_job_s_own_interface_counts(launch: Launch) -> None:
    assert await told(launch, "127.0.0.1", env={"GLOO_SOCKET_IFNAME": "ib0"}) == ["127.0.0.1", "ib0"]
