from __future__ import annotations

import pytest

from tests.operators.statuses import application
from tony_provider.cluster import interface as module
from tony_provider.cluster.interface import Application, wait_for_end
from tony_provider.runtime.protocol.status import FinalStatus

RUNNING = application("RUNNING")
KILLED = application("KILLED", final_status=FinalStatus.KILLED)


@pytest.mark.parametrize("last", [KILLED, None], ids=["ended", "forgotten"])
def test_it_is_asked_for_until_it_has_ended(last: Application | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_POLL", 0)
    seen = [RUNNING, RUNNING, last]
    assert wait_for_end(lambda: seen.pop(0), 60) is None
    assert not seen


def test_what_does_not_end_in_time_is_given_as_it_is() -> None:
    assert wait_for_end(lambda: RUNNING, 0) is RUNNING
