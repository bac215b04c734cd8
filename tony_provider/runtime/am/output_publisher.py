"""Publish the outputs of a job: check them before the job, and publish files after the job or after each task."""

from __future__ import annotations

import asyncio
import logging
import threading
from array import array
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Callable

from tony_provider.runtime.am.checkpoint_chain import FencedError, Ownership, SupersededError
from tony_provider.runtime.am.session.session import Session
from tony_provider.runtime.common.concurrency import retry
from tony_provider.runtime.inputs.shards import commits_uri, read_log
from tony_provider.runtime.jobspec.model import InputDeal, OutputCommit
from tony_provider.runtime.jobspec.problems import child
from tony_provider.runtime.outputs.publication import OutputPart, OutputPlace, Publication, PublishError
from tony_provider.runtime.protocol.status import OutputStatus
from tony_provider.runtime.storage import (
    Storage,
    StorageError,
    StorageInvalidPath,
    StorageUnreachable,
    StorageUnsupported,
)
from tony_provider.runtime.storage.stores import JobStores

log = logging.getLogger(__name__)

_FINAL = (StorageInvalidPath, StorageUnsupported)  # retries would fail the same way

_Work = Callable[[str, Sequence[OutputPart]], None]
"""Function that processes an output: it gets the name and the parts of the output."""


class OutputPublisher:
    """Publishes the outputs of one application at their paths."""

    def __init__(self, ownership: Ownership) -> None:
        description = ownership.description
        self._ownership = ownership
        self._stores = JobStores(ownership.storage, description.application_dir)
        self._lock = threading.Lock()  # only one thread writes at a time
        self._users: dict[str, str] = {}  # our user name on the store of each output
        self._statuses = {
            name: OutputStatus(name, OutputPlace(spec.path, description.application_id).uri)
            for name, spec in description.job.outputs.items()
        }

    @property
    def status(self) -> list[OutputStatus]:
        """The status of each output, in the order of the job. A published output has a size."""
        return list(self._statuses.values())

    def open(self) -> None:
        """Check before the job that the outputs can be written. Blocks.

        Raises SupersededError, StorageUnreachable, and PublishError with all problems.
        """
        problems = []
        for name in self._statuses:
            try:
                self._ownership.check_newest()
                self._users[name] = self._publication(name).open()
            except (StorageUnreachable, SupersededError):
                raise
            except PublishError as error:
                problems.append(str(error))
            except Exception as error:  # an internal error
                log.exception("an output cannot be written")
                problems.append(f"{child('outputs', name)}: {error or type(error).__name__}")
        if problems:
            raise PublishError("\n".join(problems))

    async def publish(self, parts: Sequence[OutputPart], told: Callable[[str], None]) -> str:
        """Publish these parts and the files of committed shards. Return the reason of a failure, or an empty string.

        Retries for ``timeouts.upload`` seconds. ``told`` receives the first error of these retries. If there are
        several outputs and a check of one fails, none is published. Raises SupersededError.
        """
        problem = ""
        for work in (self._check, self._publish) if len(self._statuses) > 1 else (self._publish,):
            for name in self._statuses:
                problem = problem or await self._try(work, name, parts, told)
        return problem

    async def _try(self, work: _Work, name: str, parts: Sequence[OutputPart], told: Callable[[str], None]) -> str:
        """Run ``work`` for one output, with retries.

        Return the reason of a failure, or an empty string. Raises SupersededError.
        """
        mine = [part for part in parts if part.output == name]
        seconds = self._ownership.description.job.timeouts.upload
        trying = partial(asyncio.to_thread, self._do, work, name, mine)
        try:
            await retry(trying, seconds, StorageError, lambda error: told(str(error)))
        except SupersededError:
            raise
        except (PublishError, FencedError) as error:
            return str(error)
        except Exception as error:
            log.exception("an output cannot be published")
            return f"{child('outputs', name)}: {error or type(error).__name__}"
        return ""

    def _do(self, work: _Work, name: str, parts: Sequence[OutputPart]) -> None:
        try:
            with self._lock:
                work(name, parts)
        except _FINAL as error:
            raise PublishError(f"{child('outputs', name)}: {error}") from error

    def _check(self, name: str, parts: Sequence[OutputPart]) -> None:
        self._publication(name).check(parts, partial(self._committed, name))

    def _publish(self, name: str, parts: Sequence[OutputPart]) -> None:
        self._statuses[name] = self._publication(name).publish(parts, partial(self._committed, name))

    def publish_part(self, part: OutputPart) -> None:
        """Publish one part of an output whose parts appear one by one. Blocks. Raises PublishError, StorageError."""
        with self._lock:
            self._publication(part.output).publish_part(part)

    def _publication(self, name: str) -> Publication:
        description = self._ownership.description
        spec = description.job.outputs[name]
        place = OutputPlace(spec.path, description.application_id)
        storage = self._stores.of(place.target)
        user = self._users.get(name, "")
        return Publication(storage, name, spec, place, description.training, self._ownership.check, user)

    def _committed(self, name: str) -> Iterator[tuple[str, str]]:
        description = self._ownership.description
        place = OutputPlace(description.job.outputs[name].path, description.application_id)
        for each, spec in description.job.inputs.items():
            if spec.deal is InputDeal.QUEUE:
                yield from committed_files(self._ownership.storage, description.application_dir, each, place)

    def close(self) -> None:
        """Close the stores."""
        self._stores.close()


_FOREVER = float("inf")


class TaskParts:
    """Publishes the parts of completed tasks one by one, for outputs with ``commit: task``.

    A part is published only after the event log on the store contains the task's completion. Otherwise the next
    application master might restart the task, and its part would be published twice. ``when_kept`` calls its argument
    when the log is written. ``note`` takes events for the event log.
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
        self._seen: set[str] = set()  # names of completed tasks
        self._over: asyncio.Queue[OutputPart] = asyncio.Queue()

    def look(self) -> None:
        """Find tasks that have completed. The caller repeats this periodically."""
        for task in self._session.tasks if self._names else ():
            if task.released and task.name not in self._seen:
                self._seen.add(task.name)
                for part in task.end.outputs if task.end else ():
                    if part.output in self._names:
                        self._when_kept(partial(self._over.put_nowait, part))

    async def run(self) -> None:
        """Publish parts until cancelled. Raises SupersededError, and internal errors."""
        while True:
            part = await self._over.get()
            publish = partial(asyncio.to_thread, self._publisher.publish_part, part)
            try:
                await retry(publish, _FOREVER, StorageError, self._troubled)
            except SupersededError:
                raise
            except Exception as error:  # noqa: BLE001 - retried at the job's end, which reports the result
                self._note("not_published", f"{part.output}: {error or type(error).__name__}")
            else:
                self._note("part_published", f"{part.output}: {part.part}")

    def _troubled(self, error: StorageError) -> None:
        self._note("store_unavailable", f"cannot write output files of tasks to the store, retrying: {error}")


def committed_files(
    storage: Storage, application_dir: str, input_name: str, place: OutputPlace
) -> Iterator[tuple[str, str]]:
    """Yield the files of an output as pairs of part and path, from the log of an input's commits. Blocks.

    If a shard appears twice, only its last line counts: a replaced application master may have written an
    unacknowledged commit after its successor had read the log. Raises StorageError.
    """
    commits = commits_uri(application_dir, input_name)
    last = array("q")  # index: shard; value: its last line
    for line, settled in enumerate(read_log(storage, commits)):
        last.extend([-1] * (settled.shard + 1 - len(last)))
        last[settled.shard] = line
    for line, settled in enumerate(read_log(storage, commits)):
        if settled.failed is None and last[settled.shard] == line:
            for uri in settled.outputs:
                file = place.of_part(uri)
                if file is not None:
                    yield file
