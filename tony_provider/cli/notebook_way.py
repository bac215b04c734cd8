"""The way to a notebook: from its submission to an address that a browser of this machine can open."""

from __future__ import annotations

import http.client
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import attrs

from tony_provider.cli.printing import say
from tony_provider.cli.wait_for_job import JobEndedBadly, until_the_end
from tony_provider.cluster.errors import ClusterError
from tony_provider.cluster.identity import Identity
from tony_provider.cluster.notebook.notebook_job import TASK
from tony_provider.cluster.tunnel.errors import TunnelEnded
from tony_provider.cluster.tunnel.tunnel import HOST, TaskTunnel
from tony_provider.cluster.wait_for_end import wait_for_end
from tony_provider.hooks.tony import TonyHook
from tony_provider.operators.outcome import failure
from tony_provider.runtime.protocol.status import JobStatus, TaskState
from tony_provider.runtime.storage.errors import StorageError
from tony_provider.watching.observation import Observation
from tony_provider.watching.termination import clean_up

log = logging.getLogger(__name__)

_LOOK = 1.0  # seconds between two looks at the job
_ASK = 0.5  # seconds between two looks whether the server answers
_LOOK_FOR_WARNINGS = 30.0  # seconds between two looks
_ANSWER_SECONDS = 10.0
_SERVER_SECONDS = 300.0  # from the container's start: Jupyter's libraries come from a slow disk at times
_END_SECONDS = 60.0  # that an application may take to end once its master has gone
_MOST_BYTES = 1 << 20  # of a result


class ToldToEnd(Exception):  # noqa: N818 - says what happened
    """Ctrl-C, or a signal."""


class _Reached(Exception):  # noqa: N818 - says what happened
    """The container runs."""


@attrs.frozen
class NotebookWay:
    """The way to one notebook, which may not run yet."""

    hook: TonyHook
    identity: Identity
    application_id: str
    token: str = attrs.field(repr=False)
    _answers: threading.Event = attrs.field(factory=threading.Event, init=False)  # before, that nobody does is no news

    def wait_for_container(self, over: threading.Event) -> None:
        """Wait until its program runs, and tell what it waits for.

        Raises ToldToEnd once ``over`` is set, JobEndedBadly and TunnelEnded when the notebook ends before.
        """

        def show(seen: Observation | None, _: list[str]) -> None:
            if over.is_set():
                raise ToldToEnd
            tasks = seen.newest.tasks if seen is not None and seen.newest is not None else []
            if any(task.name == TASK and task.state is TaskState.RUNNING for task in tasks):
                raise _Reached

        try:
            until_the_end(self.hook, self.identity, self.application_id, pause=_LOOK, say=say, show=show)
        except _Reached:
            return
        raise TunnelEnded(f"{self.application_id} has ended")

    def open(self, local_port: int, over: threading.Event) -> TaskTunnel:
        """A tunnel to it, which nobody waits for once ``over`` is set."""
        return self.hook.tunnel(
            self.identity, self.application_id, TASK, local_port=local_port, tell=self._tell, over=over
        )

    def _tell(self, news: str) -> None:
        if self._answers.is_set():
            say(news)

    def wait_for_server(self, tunnel: TaskTunnel, over: threading.Event) -> str:
        """Wait until Jupyter answers; returns the address for a browser. Raises ToldToEnd, ClusterError."""
        deadline = time.monotonic() + _SERVER_SECONDS
        while (path := self._asked(tunnel.port)) is None:
            if over.wait(_ASK):
                raise ToldToEnd
            tunnel.wait(0)
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"Jupyter does not answer within {_SERVER_SECONDS:g} s; `airflow tony logs {self.application_id}` "
                    "shows what it says"
                )
        self._answers.set()
        return f"http://{HOST}:{tunnel.port}{path}?token={self.token}"

    @contextmanager
    def telling_warnings(self) -> Iterator[None]:
        """Tell meanwhile what is wrong with the job: most of all, that work does not get to the store."""
        over = threading.Event()
        threading.Thread(target=self._tell_warnings, args=(over,), name="warnings", daemon=True).start()
        try:
            yield
        finally:
            over.set()

    def _tell_warnings(self, over: threading.Event) -> None:
        told: Sequence[str] = []
        while not over.wait(_LOOK_FOR_WARNINGS):
            try:
                warnings = self.hook.master_status(self.identity, self.application_id).warnings
            except ClusterError:
                continue
            for each in warnings:
                if each not in told and not over.is_set():
                    say(f"Warning: {each}")
            told = warnings

    def _asked(self, port: int) -> str | None:
        """Where its pages begin, as it says itself; None: it does not answer yet."""
        connection = http.client.HTTPConnection(HOST, port, timeout=_ANSWER_SECONDS)
        try:
            connection.request("GET", "/", headers={"Authorization": f"token {self.token}"})
            answer = connection.getresponse()
            answer.read(_MOST_BYTES)
            return urlsplit(answer.headers.get("Location", "/")).path or "/"
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def ending(self, error: TunnelEnded) -> str:
        """How it has ended, in words. Raises JobEndedBadly where it did not end well; ``error``, where it goes on."""
        if wait_for_end(lambda: self.hook.application(self.application_id), _END_SECONDS) is not None:
            raise error
        clean_up(self.hook, self.identity, self.application_id, log.warning)
        application = self.hook.application(self.application_id)
        status = self.hook.job_status(self.identity, self.application_id)
        if problem := failure(self.application_id, application, status):
            raise JobEndedBadly("\n".join([str(problem), *(status.warnings if status is not None else [])]))
        returned = self._returned()
        why = str(returned.get("ended", "ended"))
        lost = _lost(returned, status)
        if not lost:
            return f"The notebook has {why}. Its work is kept: the same command opens it again"
        return "\n".join([f"The notebook has {why}. NOT all of its work is kept:", *(f"  - {each}" for each in lost)])

    def _returned(self) -> dict[str, Any]:
        """What its program has left as its result, as far as that can be read."""
        try:
            returned: Any = self.hook.returned(self.identity, self.application_id)
        except (ClusterError, StorageError):
            return {}
        return returned if isinstance(returned, dict) else {}


def _lost(returned: dict[str, Any], status: JobStatus | None) -> list[str]:
    """What of a notebook's work is not on the store: what its program could not keep, and what was not copied there."""
    lost = [str(returned["not_kept"])] if returned.get("not_kept") else []
    newest = returned.get("kept")
    if status is not None and isinstance(newest, int):
        step = status.checkpoint_step
        if step is None or step < newest:
            lost += status.warnings or ["what was written last is not on the store"]
    return lost
