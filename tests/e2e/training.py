"""One training that Airflow has started: its applications, as the ResourceManager and the machine tell them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tests.e2e.runs import TaskInstance
from tests.faults.entries import Diary, Entry
from tests.jobs.job import Job
from tests.jobs.places import USER, YarnPlace
from tests.jobs.processes import processes_of
from tests.waiting import settled, until
from tony_provider.cluster.training.identity import Identity
from tony_provider.hooks.tony import TonyHook

WORKER = "worker:0"
# From the user's click until the ResourceManager calls it ended: seconds, unless the machine does ten things at once.
GONE_SECONDS = 60.0


@dataclass
class Training:
    """``expected``: how many applications it is to have in the end. ``hook`` is for looking only."""

    task: TaskInstance
    place: YarnPlace
    hook: TonyHook
    identity: Identity
    diary: Diary
    expected: int = 1

    # -- its applications --------------------------------------------------------------------------------------------

    def applications(self) -> list[dict[str, Any]]:
        """All that the ResourceManager knows, oldest first."""
        return applications(self.place, self.identity.tag)

    @property
    def newest(self) -> dict[str, Any]:
        found = self.applications()
        assert found, f"no application of {self.task}"
        return found[-1]

    def job(self, application_id: str) -> Job:
        return Job(self.hook, self.identity, application_id, self.place.log_folders)

    def until_gone(self, application_id: str, seconds: float = GONE_SECONDS) -> dict[str, Any]:
        """Wait until it has ended; what the ResourceManager says of it."""

        def look() -> dict[str, Any] | None:
            found = next(each for each in self.applications() if each["id"] == application_id)
            return found if has_ended(found) else None

        return until(look, lambda: f"{application_id} to be gone: {self.newest}", seconds)

    def left(self) -> list[str]:
        """What is wrong with its applications, and what they have left, once it should be over."""
        found = self.applications()
        problems = []
        if len(found) != self.expected:
            problems.append(
                f"{self.task.task_id} has {len(found)} applications, and not {self.expected}: {_brief(found)}"
            )
        for each in found:
            name = each["id"]
            if not has_ended(each):
                problems.append(f"{name} still runs")
                continue
            if processes := settled(lambda name=name: processes_of(name)):  # type: ignore[misc]
                problems.append(f"processes of {name} left: {[process.words[:80] for process in processes]}")
            if folders := settled(lambda name=name: self.place.work_folders(name)):  # type: ignore[misc]
                problems.append(f"folders of {name} left: {folders}")
            if settled(lambda name=name: ["staging"] if self.job(name).has_staging() else []):  # type: ignore[misc]
                problems.append(f"staging of {name} left")
        return problems + self._side_by_side(found)

    def _side_by_side(self, found: list[dict[str, Any]]) -> list[str]:
        """Two applications of one training must not have had user processes at the same time."""
        problems = []
        for before, after in pairwise(found):
            last = max((entry.at for entry in self.diary.entries() if entry.application == before["id"]), default=0.0)
            first = min((e.at for e in self.diary.entries() if e.application == after["id"]), default=float("inf"))
            if last > first:
                problems.append(f"{after['id']} trained while {before['id']} still did")
        return problems

    # -- what its program does ---------------------------------------------------------------------------------------

    def until_step(self, step: int, application_id: str = "") -> Entry:
        """Wait until this step, or a later one, is done, by this application."""

        def look() -> Entry | None:
            done = self.diary.entries("step", WORKER)
            return next((e for e in done if (e.step or 0) >= step and application_id in ("", e.application)), None)

        return until(look, lambda: f"step {step}: {self.task.facts()}\n{self.task.log()[-3000:]}")

    def until_committed(self, step: int) -> None:
        """Wait until the checkpoint of this step, or a newer one, is on the store."""

        def look() -> bool:
            found = self.applications()
            status = self.hook.job_status(self.identity, found[-1]["id"]) if found else None
            return status is not None and (status.checkpoint_step or 0) >= step

        until(look, lambda: f"step {step} to be committed: {self.task.facts()}\n{self.task.log()[-3000:]}")

    def begun_at(self) -> list[int]:
        """The step after which each of its user processes began."""
        return [entry.step or 0 for entry in self.diary.entries("ready", WORKER)]

    def dawdle(self, pace: float = 0.3) -> None:
        """Have each further step take this many seconds: there is time to do things to it."""
        self.diary.set_pace(pace)

    def hurry(self) -> None:
        self.diary.set_pace(0.0)

    def fail(self) -> None:
        """Have its user process, and with it the application, end with an error."""
        self.diary.order(WORKER, "exit", "3")


def applications(place: YarnPlace, tag: str) -> list[dict[str, Any]]:
    """All with this tag that the ResourceManager knows, oldest first."""
    url = f"{place.cluster.rm_webapp[0]}/ws/v1/cluster/apps"
    found = place.cluster.client(USER).get_json(url, applicationTags=tag)["apps"]
    return sorted((found or {}).get("app", []), key=lambda each: str(each["id"]))


def has_ended(application: dict[str, Any]) -> bool:
    return application["state"] in ("FINISHED", "FAILED", "KILLED")


def _brief(found: list[dict[str, Any]]) -> list[str]:
    return [f"{each['id']} {each['state']} {each['finalStatus']}" for each in found]
