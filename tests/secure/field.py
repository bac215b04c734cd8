"""Where a row runs: the cluster, alice's job under attack, and those who attack it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.settings import Settings
from tests.jobs.job import Job
from tests.jobs.places import USER, YarnPlace
from tests.jobs.zones import short_keys
from tests.secure.row import LENIENT, SHARED, SHORT_LIVED
from tests.secure.standing import Standing
from tests.secure.victim import SECONDS, Victim
from tests.secure.visit import Answer, Visitor
from tony_provider.runtime.protocol.status import JobState

PROGRAMS = Path(__file__).parent / "programs"
SECRET = "PASSWORD"  # in the environment of her programs
_ALL = Settings(
    secure=True,
    https=True,
    rpc_protection="privacy",
    container_executor=True,
    node_recovery=True,
    node_vcores=8,
)
# For the kind `lifetimes`: tokens end within seconds, also those that are renewed, and so does a lost node.
LIFE_MS = 60_000
INTERVAL_MS = 45_000


def _short_lived() -> Settings:
    properties = short_keys(LIFE_MS, INTERVAL_MS)
    properties["yarn-site"]["yarn.am.liveness-monitor.expiry-interval-ms"] = "60000"
    return replace(
        _ALL,
        namenodes=2,
        other_namenode=True,
        kms=True,
        nodemanagers=3,
        masters_https="STRICT",
        expiry_seconds=40,  # a NodeManager that begins again is back before
        properties=properties,
    )


CLUSTERS = {
    SHARED: _ALL,
    LENIENT: replace(_ALL, masters_https="LENIENT"),
    SHORT_LIVED: _short_lived(),
}


@dataclass
class Field:
    """``standing``: the jobs of alice's that several rows attack, where they need none of their own."""

    hadoop: HadoopCluster
    folder: Path  # for what must be seen by her programs, and for reports
    standing: Standing | None = None
    problems: list[str] = field(default_factory=list)
    cost: str = ""
    victims: list[Victim] = field(default_factory=list)
    _last_acts: list[Callable[[], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        self.place = YarnPlace(cluster=self.hadoop)
        self._become(USER)

    # -- people --------------------------------------------------------------------------------------------------------

    @contextmanager
    def acting_as(self, user: str) -> Iterator[YarnPlace]:
        """Meanwhile this process has that user's ticket; with a place of theirs."""
        place = YarnPlace(cluster=self.hadoop)
        self._become(user)
        try:
            yield place
        finally:
            place.close()
            self._become(USER)

    def visitor(self, user: str | None) -> Visitor:
        return Visitor(self.hadoop.layout, user)

    def _become(self, user: str) -> None:
        for name, value in self.hadoop.layout.kerberos_environment(user).items():
            if name.startswith("KRB5"):
                os.environ[name] = value

    # -- alice's job ---------------------------------------------------------------------------------------------------

    def victim(self, *, own: bool = False, **changes: Any) -> Victim:
        """A training of alice's that runs until it is let go. ``own``: of this row; ``changes`` go over its job."""
        if self.standing is None or own or changes:
            victim = self.submit_victim(**changes)
            victim.until_running()
            return victim
        if self.standing.running is None:
            self.standing.running = self._submit(YarnPlace(cluster=self.hadoop))
            self.standing.running.until_running()
        return self.standing.running

    def ended_victim(self) -> Victim:
        """One that has SUCCEEDED; what a row does to its files is no matter for others."""
        standing = self.standing if self.standing is not None else Standing()
        if standing.ended is None:
            standing.ended = self._submit(YarnPlace(cluster=self.hadoop))
            self.problems += standing.ended.finish()
            if self.standing is None:
                self.at_end(standing.close)
        return standing.ended

    def submit_victim(self, **changes: Any) -> Victim:
        """Without waiting for it. ``memory`` of each of two workers, who begin with the command ``prelude``."""
        self.victims.append(self._submit(self.place, **changes))
        return self.victims[-1]

    def _submit(
        self,
        place: YarnPlace,
        memory: str = "128MiB",
        prelude: str = "true",
        **changes: Any,
    ) -> Victim:
        go = self.folder / f"go-{uuid4().hex[:8]}"
        waits = f"until [ -e {go} ]; do sleep 0.2; done"
        command = f"{prelude}; {waits}; test $TONY_RANK != 0 || echo weights > $TONY_MODEL_DIR/model"
        worker = {"instances": 2, "memory": memory, "command": command}
        secret = uuid4().hex
        job = place.submit({"tasks": {"worker": worker}, "secrets": [SECRET]} | changes, secrets={SECRET: secret})
        return Victim(place, job, go, secret)

    def neighbour(
        self,
        place: YarnPlace,
        attempts: dict[str, str],
        more_environment: Mapping[str, str] | None = None,
        **changes: Any,
    ) -> dict[str, str]:
        """Have a program in a container of the place's user make these attempts; what came of each, by its name.

        An attempt is a word of programs/neighbour.py and what it is about, such as `read /etc/shadow`.
        """
        lines = "\n".join(f"{name}\t{what}" for name, what in attempts.items())
        spec = {
            "files": [str(PROGRAMS / "neighbour.py")],
            "env": {"ATTEMPTS": lines, **(more_environment or {})},
            "tasks": {"worker": {"memory": "128MiB", "command": f"{sys.executable} neighbour.py"}},
        }
        job: Job = place.submit(spec | changes)
        job.end(SECONDS)
        job.succeeded()
        said: dict[str, str] = job.said("worker:0")
        return said

    # -- outcomes ------------------------------------------------------------------------------------------------------

    def expect(self, holds: bool, otherwise: str) -> None:
        """Something that must hold; the row goes on in any case."""
        if not holds:
            self.problems.append(otherwise)

    def refused(self, what: str, answer: Answer) -> None:
        self.expect(answer.refused, f"{what}: {answer.code} {answer.first}")

    def at_end(self, act: Callable[[], None]) -> None:
        """Do this when the row is over, however it ends."""
        self._last_acts.append(act)

    def conclude(self) -> None:
        """What must hold after every row: what was attacked goes on, and comes to a good end."""
        for victim in self.victims:
            self.problems += victim.finish()
        running = self.standing.running if self.standing is not None else None
        if running is not None:
            status = running.job.status()
            lost = [task.name for task in status.tasks if task.attempt > 1]
            whole = status.state is JobState.RUNNING and (status.am_attempt, status.generation, lost) == (1, 1, [])
            self.expect(whole, f"alice's job is {status.state.value}, generation {status.generation}, lost {lost}")

    def report(self) -> str:
        return "\n\n".join(victim.job.describe() for victim in self.victims)

    def mend(self) -> None:
        """Have all daemons back, and nothing of this row on the cluster. Raises ClusterError."""
        for act in self._last_acts:
            act()
        self.mend_daemons()
        self.place.close()

    def mend_daemons(self) -> None:
        """Start again what was killed. Raises ClusterError."""
        mended = False
        for name, process in self.hadoop.state.processes.items():
            if not process.alive():
                self.hadoop.restart(name)
                mended = True
        if mended:
            self.hadoop.wait_ready()
