"""Outputs whose parts appear one after the other: each as soon as its task is over, for good."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Callable

from tony_provider.runtime.am.outputs.output_publisher import OutputPublisher
from tony_provider.runtime.am.owner import SupersededError
from tony_provider.runtime.am.session.session import Session
from tony_provider.runtime.outputs.output_part import OutputPart
from tony_provider.runtime.retrying import retry
from tony_provider.runtime.spec.model import OutputCommit
from tony_provider.runtime.storage import StorageError

_FOREVER = float("inf")


class TaskParts:
    """Has the parts of tasks that are over published.

    Only once the event log on the store says that a task is: else the next application master could start it again,
    and its part would be there twice. ``when_kept`` calls back then. ``note`` takes events for the event log.
    """

    def __init__(
        self,
        publisher: OutputPublisher,
        session: Session,
        when_kept: Callable[[Callable[[], None]], None],
        note: Callable[[str, str], None],
    ) -> None:
        self._publisher = publisher
        self._session = session
        self._when_kept = when_kept
        self._note = note
        outputs = session.state.job.outputs
        self._names = {name for name, spec in outputs.items() if spec.commit is OutputCommit.TASK}
        self._seen: set[str] = set()  # tasks
        self._over: asyncio.Queue[OutputPart] = asyncio.Queue()

    def look(self) -> None:
        """Look for tasks that are over by now. To be called now and then."""
        for task in self._session.tasks if self._names else ():
            if task.released and task.name not in self._seen:
                self._seen.add(task.name)
                end = task.process.end if task.process else None
                for part in end.outputs if end else ():
                    if part.output in self._names:
                        self._when_kept(partial(self._over.put_nowait, part))

    async def run(self) -> None:
        """Work until it is cancelled. Raises SupersededError, and what is a fault of ours."""
        while True:
            part = await self._over.get()
            publish = partial(asyncio.to_thread, self._publisher.publish_part, part)
            try:
                await retry(publish, _FOREVER, StorageError, self._troubled)
            except SupersededError:
                raise
            except Exception as error:  # noqa: BLE001 - tried again at the job's end, which says what comes of it
                self._note("not_published", f"{part.output}: {error or type(error).__name__}")
            else:
                self._note("part_published", f"{part.output}: {part.part}")

    def _troubled(self, error: StorageError) -> None:
        self._note("store_unavailable", f"what tasks have left waits: {error}")
