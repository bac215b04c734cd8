"""An input that is taken shard by shard: requests of executors, the queue, and its log on the store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Callable

import attrs

from tony_provider.runtime.am.inputs.opened_inputs import OpenedInput
from tony_provider.runtime.am.inputs.outstanding import Outstanding
from tony_provider.runtime.am.owner import Ownership
from tony_provider.runtime.am.session.session import Session
from tony_provider.runtime.clock import epoch_ms
from tony_provider.runtime.inputs.commit_log import Settled
from tony_provider.runtime.inputs.shard_queue import ShardReader
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.protocol.status import JobState
from tony_provider.runtime.retrying import retry
from tony_provider.runtime.spec.problems import child
from tony_provider.runtime.storage import StorageError

log = logging.getLogger(__name__)

_MOST_FAILURES = 5  # that are told by name

Answer = Callable[[tony_pb2.ShardAnswer], None]


@attrs.frozen
class _Request:
    reader: ShardReader
    message: tony_pb2.ShardRequest
    answer: Answer

    @property
    def key(self) -> tuple[ShardReader, int]:
        """What it has in common with the same one, asked again over another stream."""
        return self.reader, self.message.request


class QueuedShards:
    """Gives shards to whoever asks, one at a time, and takes note of what became of them.

    A commit is answered when it is on the store. Many that come at once are written together. ``note`` takes events for
    the event log: a name and a message; ``fail`` why the job is to end.
    """

    def __init__(
        self,
        opened: OpenedInput,
        session: Session,
        ownership: Ownership,
        note: Callable[[str, str], None],
        fail: Callable[[str], None],
    ) -> None:
        self.opened = opened
        self._queue = opened.queue
        self._session = session
        self._ownership = ownership
        self._note = note
        self._fail = fail
        self._longest = ownership.description.job.timeouts.upload
        self._news = asyncio.Event()
        self._settled: list[Settled] = []  # to be written
        self._heard: list[_Request] = []  # to be answered after that
        self._waiting: dict[tuple[ShardReader, int], _Request] = {}  # for a shard, in the order of their requests
        self._outstanding = Outstanding()

    # ---- what executors say ------------------------------------------------------------------------------------

    def requested(self, reader: ShardReader, message: tony_pb2.ShardRequest, answer: Answer) -> None:
        """Take note, and answer sooner or later. Does not block."""
        problem = "" if self._runs(reader) else f"start {reader.start} of {reader.task} has ended"
        problem = problem or self._outstanding.add(reader.task, message.ByteSize())
        if not problem and (problem := self._settle(reader, message)):
            self._outstanding.remove(reader.task, message.ByteSize())
        if problem:
            answer(tony_pb2.ShardAnswer(request=message.request, problem=problem))
            return
        self._heard.append(_Request(reader, message, answer))
        self._news.set()

    def holds(self, reader: ShardReader, shards: Sequence[int]) -> None:
        """An executor says what its process has; a former application master may have given it that."""
        self._queue.holds(reader, shards)

    def look(self) -> None:
        """Free the shards of readers that have ended. To be called now and then."""
        if self._session.phase is JobState.RECOVERING:
            return  # who is there yet is not known
        for reader in self._queue.readers:
            if not self._runs(reader) and self._queue.ended(reader):
                log.info("%s: shards of %s are free again", self.opened.name, reader)
        for key, request in list(self._waiting.items()):
            if not self._runs(request.reader):
                self._over(self._waiting.pop(key))
        if self._waiting:
            self._news.set()

    def _runs(self, reader: ShardReader) -> bool:
        return self._session.process_runs(reader.task, reader.attempt, reader.start)

    def _settle(self, reader: ShardReader, message: tony_pb2.ShardRequest) -> str:
        """Take note of what became of the shard that the message names, if any; why that cannot be."""
        kind = message.WhichOneof("shard")
        if kind == "done":
            return self._put(Settled(message.done, reader, epoch_ms(), outputs=list(message.outputs)))
        if kind == "failed":
            return self._put(Settled(message.failed, reader, epoch_ms(), failed=message.reason))
        if kind == "back":
            # It may be somebody else's by now: all is well.
            self._queue.give_back(reader, message.back, message.request)
        return ""

    def _put(self, settled: Settled) -> str:
        queue, reader, shard = self._queue, settled.reader, settled.shard
        before = queue.settled
        failed = settled.failed
        accepted = queue.commit(reader, shard) if failed is None else queue.fail(reader, shard, failed)
        if queue.settled > before:  # else it is asked again, since the answer was lost
            self._settled.append(settled)
        return "" if accepted else f"shard {shard} of {self.opened.name} is not {reader.task}'s any more"

    # ---- the work ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Write and answer until it is cancelled, or the store refuses commits for too long.

        Raises SupersededError, and what is a fault of ours.
        """
        try:
            await self._work()
        except StorageError as error:
            self._fail(
                f"{child('inputs', self.opened.name)}: for {self._longest:g} s (timeouts.upload) no commit could be "
                f"written to the store: {error}"
            )

    async def _work(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            heard, self._heard = self._heard, []
            settled, self._settled = self._settled, []
            if settled:
                await self._write(settled)
            for request in heard:
                if request.message.take:
                    former, self._waiting[request.key] = self._waiting.get(request.key), request
                    if former is not None:
                        self._over(former)
                else:
                    self._over(request)
                    request.answer(tony_pb2.ShardAnswer(request=request.message.request))
            await self._deal()

    async def _write(self, settled: list[Settled]) -> None:
        # The second look: a newer application master that was announced meanwhile may have read the log before.
        for work in (partial(self._write_now, settled), self._ownership.check_newest):
            await retry(partial(asyncio.to_thread, work), self._longest, StorageError, self._troubled)
        for each in settled:
            if each.failed is not None:
                self._note("shard_failed", f"{self.opened.name}: {each.failed}")

    def _write_now(self, settled: list[Settled]) -> None:
        self._ownership.check_newest()
        self.opened.log.add(settled)

    def _troubled(self, error: StorageError) -> None:
        self._note("store_unavailable", f"commits of {self.opened.name} wait: {error}")

    async def _deal(self) -> None:
        """Answer those who can be."""
        if self._session.phase is JobState.RECOVERING:
            return  # what is free is not known until all are back
        given: list[tuple[_Request, int]] = []
        for key, request in list(self._waiting.items()) if self._queue.has_free else ():
            shard = self._queue.take(*key) if self._runs(request.reader) else None
            if shard is not None:
                given.append((request, shard))
                self._over(self._waiting.pop(key))
        lines = await asyncio.to_thread(self.opened.listing.lines, [shard for _, shard in given])
        for (request, shard), line in zip(given, lines):
            request.answer(tony_pb2.ShardAnswer(request=request.message.request, shard=shard, line=line.decode()))
        if self._queue.over and self._waiting:
            await self._end()

    async def _end(self) -> None:
        """Nobody gets anything more."""
        waiting, self._waiting = list(self._waiting.values()), {}
        failures = await asyncio.to_thread(self._failures)
        for request in waiting:
            self._over(request)
            request.answer(
                tony_pb2.ShardAnswer(request=request.message.request, failed=len(self._queue.failed), failures=failures)
            )

    def _over(self, request: _Request) -> None:
        self._outstanding.remove(request.reader.task, request.message.ByteSize())

    def _failures(self) -> str:
        return "; ".join(list(self._queue.failed.values())[:_MOST_FAILURES])
