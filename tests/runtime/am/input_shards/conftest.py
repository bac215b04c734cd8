"""Inputs as an application master has opened them, and a stand-in for its session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import attrs
import pytest

from tests.runtime.am.local_resource_manager.jobs import stage
from tony_provider.runtime.am.checkpoint_chain import Ownership
from tony_provider.runtime.am.input_shards import OpenedInput, close_inputs, open_inputs
from tony_provider.runtime.am.session.session import Session
from tony_provider.runtime.common.network import Address
from tony_provider.runtime.inputs.shards import ShardReader
from tony_provider.runtime.jobspec.model import InputDeal, InputSpec, JobSpec, Role, TaskSpec
from tony_provider.runtime.protocol.status import JobState
from tony_provider.runtime.storage import LocalStorage

ADDRESS = Address("127.0.0.1", 7)


@attrs.define
class StandInTask:
    type: str
    index: int
    role: Role = Role.WORKER

    @property
    def name(self) -> str:
        return f"{self.type}:{self.index}"


@attrs.define
class StandInSession:
    """Says what tests have put into it, in place of a session."""

    tasks: list[StandInTask] = attrs.field(factory=list)
    running: set[ShardReader] = attrs.field(factory=set)
    without: frozenset[str] = frozenset()
    phase: JobState = JobState.RUNNING

    def process_runs(self, name: str, attempt: int, start: int) -> bool:
        return ShardReader(name, attempt, start) in self.running

    @property
    def as_session(self) -> Session:
        return cast(Session, self)


@attrs.frozen
class Site:
    """A job with one input of so many files, staged in a directory."""

    ownership: Ownership
    opened: list[OpenedInput] = attrs.field(factory=list)

    def open(self, am_attempt: int = 1) -> OpenedInput:
        """As the application master of this attempt does."""
        (opened,) = open_inputs(attrs.evolve(self.ownership, am_attempt=am_attempt), ADDRESS)
        self.opened.append(opened)
        return opened


MakeSite = Callable[..., Site]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[MakeSite]:
    made: list[Site] = []

    def make(count: int, deal: InputDeal, **more: Any) -> Site:
        data = tmp_path / "data"
        data.mkdir()
        for number in range(count):
            (data / f"{number:04}").write_bytes(b"x" * number)
        job = JobSpec(
            "standalone",
            {"worker": TaskSpec("true", instances=3)},
            inputs={"data": InputSpec([str(data)], deal)},
            **more,
        )
        ownership = Ownership(LocalStorage(), stage(tmp_path, job).description, 1, b"key")
        made.append(Site(ownership))
        return made[-1]

    yield make
    for each in made:
        close_inputs(each.opened)
