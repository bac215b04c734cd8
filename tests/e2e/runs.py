"""DAG runs and their tasks, driven and looked at from outside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from tests.e2e.rest import Rest, RestError
from tests.hadoop.processes import Process
from tests.waiting import until

STATE_SECONDS = 300.0  # that anything here may take to get into a state, on a machine that is slow and busy
PERIOD = 0.5  # seconds between two looks, which the server does in the order of their coming
_WATCHED = " is RUNNING in queue "  # which a trigger says first of an application
ENDED = ("success", "failed", "upstream_failed", "skipped", "removed")


@dataclass(frozen=True)
class Run:
    rest: Rest
    dag_id: str
    run_id: str

    @property
    def path(self) -> str:
        return f"/dags/{self.dag_id}/dagRuns/{quote(self.run_id, safe='')}"

    def facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = self.rest.call("GET", self.path)
        return facts

    @property
    def state(self) -> str:
        return str(self.facts()["state"])

    def end(self, seconds: float = STATE_SECONDS) -> str:
        """Wait until it has ended; how."""
        return until(
            lambda: state if (state := self.state) in ("success", "failed") else "",
            lambda: f"the end of {self.dag_id} {self.run_id}: {self.describe()}",
            seconds,
            PERIOD,
        )

    def task(self, task_id: str = "train", map_index: int = -1) -> TaskInstance:
        return TaskInstance(self, task_id, map_index)

    def tasks(self) -> list[dict[str, Any]]:
        return list(self.rest.call("GET", f"{self.path}/taskInstances", limit=100)["task_instances"])

    def clear(self, *task_ids: str | list[Any], downstream: bool = False) -> None:
        """As the button does; without names all tasks. Of a mapped task one: [name, index]."""
        body = {
            "dry_run": False,
            "dag_run_id": self.run_id,
            "only_failed": False,
            "include_downstream": downstream,
            **({"task_ids": list(task_ids)} if task_ids else {}),
        }
        self.rest.call("POST", f"/dags/{self.dag_id}/clearTaskInstances", body)

    def fail(self) -> None:
        """Have it ended, should it not be."""
        try:
            if self.state not in ("success", "failed"):
                self.rest.call("PATCH", self.path, {"state": "failed"})
        except RestError as error:
            if error.status != 404:
                raise

    def processes(self) -> list[Process]:
        """That its tasks have on this machine."""
        found = (Process.of(int(each["pid"])) for each in self.tasks() if each["pid"])
        return [process for process in found if process is not None]

    def describe(self) -> str:
        states = [f"{each['task_id']}[{each['map_index']}] {each['state']}" for each in self.tasks()]
        return f"{self.state}: {', '.join(states)}"


@dataclass(frozen=True)
class TaskInstance:
    run: Run
    task_id: str
    map_index: int = -1

    @property
    def path(self) -> str:
        return f"{self.run.path}/taskInstances/{self.task_id}"

    @property
    def _mapped(self) -> str:
        return self.path if self.map_index < 0 else f"{self.path}/{self.map_index}"

    def facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = self.run.rest.call("GET", self._mapped)
        return facts

    @property
    def state(self) -> str:
        return str(self.facts()["state"])

    @property
    def try_number(self) -> int:
        return int(self.facts()["try_number"])

    def until(self, *states: str, tries: int = 0, seconds: float = STATE_SECONDS) -> str:
        """Wait until it is in one of the states, in this try or a later one; it must not end otherwise."""

        def look() -> str | None:
            facts = self.facts()
            state = str(facts["state"])
            if facts["try_number"] < tries:
                return None
            if state in states:
                return state
            assert state not in ENDED, f"{self.task_id} is {state}, and was to be {states}\n{self.log()[-3000:]}"
            return None

        return until(
            look, lambda: f"{self.task_id} to be {states}: {self.facts()}\n{self.log()[-3000:]}", seconds, PERIOD
        )

    def until_watched(self) -> None:
        """Wait until it is deferred and its trigger has found the application: a mark before that is told to nobody."""
        self.until("deferred")
        until(
            lambda: _WATCHED in self.log(),
            lambda: f"a trigger of {self.task_id}: {self.log()[-3000:]}",
            STATE_SECONDS,
            PERIOD,
        )

    def mark(self, state: str) -> None:
        """As the buttons do: failed, success."""
        body = {"new_state": state}
        self.run.rest.call("PATCH", self._mapped, body)

    def log(self, try_number: int = 0) -> str:
        """Of one try, the last one by default; what the triggerer said is in it. Empty before the first try."""
        number = try_number or self.try_number
        if number == 0:
            return ""
        answer = self.run.rest.call("GET", f"{self.path}/logs/{number}", map_index=self.map_index, full_content=True)
        return "\n".join(_line(entry) for entry in answer["content"])

    def xcom(self, key: str = "return_value") -> Any:
        """None when there is none."""
        path = f"{self.path}/xcomEntries/{quote(key, safe='')}"
        try:
            return self.run.rest.call("GET", path, map_index=self.map_index, deserialize=True)["value"]
        except RestError as error:
            if error.status == 404:
                return None
            raise

    def links(self) -> dict[str, str | None]:
        """The extra links' names and addresses."""
        found = self.run.rest.call("GET", f"{self.path}/links", map_index=self.map_index)["extra_links"]
        return dict(found)

    def tries(self) -> list[dict[str, Any]]:
        path = f"{self._mapped}/tries"
        return sorted(self.run.rest.call("GET", path)["task_instances"], key=lambda each: int(each["try_number"]))


@dataclass(frozen=True)
class Backfill:
    rest: Rest
    number: int

    @classmethod
    def create(
        cls,
        rest: Rest,
        dag_id: str,
        dates: Sequence[str],
        *,
        at_once: int,
        reprocess: str = "none",
        conf: dict[str, Any] | None = None,
    ) -> Backfill:
        """Of all dates from the first to the last of ``dates``."""
        body = {
            "dag_id": dag_id,
            "from_date": f"{dates[0]}T00:00:00Z",
            "to_date": f"{dates[-1]}T00:00:00Z",
            "max_active_runs": at_once,
            "reprocess_behavior": reprocess,
            **({"dag_run_conf": conf} if conf is not None else {}),  # Airflow 3.0 takes no null
        }
        return cls(rest, rest.call("POST", "/backfills", body)["id"])

    def end(self, seconds: float = STATE_SECONDS) -> None:
        path = f"/backfills/{self.number}"
        until(lambda: self.rest.call("GET", path)["completed_at"], f"the end of backfill {self.number}", seconds, 1.0)


def runs_of(rest: Rest, dag_id: str) -> list[Run]:
    """All runs of a DAG, oldest date first."""
    found = rest.call("GET", f"/dags/{dag_id}/dagRuns", limit=100, order_by="run_after")["dag_runs"]
    return [Run(rest, dag_id, each["dag_run_id"]) for each in found]


def _line(entry: Any) -> str:
    if not isinstance(entry, dict):
        return str(entry)
    more = entry.get("error_detail")
    return f"{entry.get('event', '')}" + (f"\n{more}" if more else "")
