"""What the store and the cluster say of a training, within a time: who sends a message does not wait for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable

import attrs

from tony_provider.cluster.base import Application, Pages
from tony_provider.cluster.identity import Identity
from tony_provider.hooks.tony import TonyHook
from tony_provider.operators.outcome import task_log_tail
from tony_provider.runtime.protocol.status import JobStatus

_NOTHING = "it has started no application"


@attrs.define(kw_only=True)
class TrainingLook:
    """What is found out of one training. While the time is not over it fills; what is not there by then is unknown."""

    task_id: str
    identity: Identity
    former_run: str = ""  # the id of the run before; empty: there is none, or it is not known
    former: Identity | None = None  # the same training in the run before
    reads_log: bool = False  # what its tasks print may be told
    application_id: str | None = None  # None: that which it has started last
    status: JobStatus | None = None
    application: Application | None = None
    pages: Pages | None = None
    log_tail: str = ""
    former_metrics: dict[str, float] | None = None
    missing: list[str] = attrs.field(factory=list)

    def fill(self, hook: TonyHook) -> None:
        """Ask the store, and the cluster where the store knows no end. Raises ClusterError, StorageError."""
        self.application_id = self.application_id or hook.newest_application(self.identity)
        if self.application_id is None:
            self.missing.append(_NOTHING)
            return
        self.pages = hook.pages(self.identity, self.application_id)
        self.status = hook.job_status(self.identity, self.application_id)
        failure = self.status.failure if self.status is not None else None
        if failure is not None and failure.task is not None and self.reads_log:
            directory = hook.application_dir(self.identity, self.application_id)
            self.log_tail = task_log_tail(hook.storage(), directory, failure.task)
        self._fill_former(hook)
        if self.status is None or not self.status.state.is_final:
            self.application = hook.application(self.application_id)

    def _fill_former(self, hook: TonyHook) -> None:
        before = hook.newest_application(self.former) if self.former is not None else None
        if self.former is not None and before is not None:
            status = hook.job_status(self.former, before)
            self.former_metrics = status.metrics if status is not None else None


def look(hook: TonyHook, at: TrainingLook, seconds: float, tell: Callable[[str], None]) -> None:
    """Fill the look, within so many seconds. Raises nothing: what went wrong is ``missing`` in it.

    ``tell`` is given each problem, for the log.
    """

    def work() -> None:
        try:
            at.fill(hook)
        except Exception as error:  # noqa: BLE001 - whatever it is: the message is to be sent
            problems.append(f"{type(error).__name__}: {error}")

    problems: list[str] = []
    hook.get_conn()  # what this loads, and asks Airflow for, is not for a thread that may be left behind
    thread = threading.Thread(target=work, name="tony-news", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        problems.append(f"the cluster and its store did not answer within {seconds:g} s")
    for problem in list(problems):
        at.missing.append(problem)
        tell(problem)
