"""The dealer of a job's inputs: passes what executors ask to the input that it is about."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Callable, Union

from tony_provider.runtime.am.inputs.opened_inputs import OpenedInput
from tony_provider.runtime.am.inputs.queued_shards import QueuedShards
from tony_provider.runtime.am.inputs.static_parts import StaticParts
from tony_provider.runtime.am.owner import Ownership
from tony_provider.runtime.am.session.session import Session
from tony_provider.runtime.inputs.shard_queue import ShardReader
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.protocol.status import InputStatus
from tony_provider.runtime.quantities import count, size
from tony_provider.runtime.spec.model import InputDeal

log = logging.getLogger(__name__)

Send = Callable[[tony_pb2.ToExecutor], None]


class InputDealer:
    """Answers executors that ask for their part of an input, or for a shard.

    It asks the session which user processes run; the session knows nothing of shards. The methods do not block; ``run``
    does the work. ``note`` takes events for the event log: a name and a message; ``fail`` why the job is to end.
    """

    def __init__(
        self,
        opened: Sequence[OpenedInput],
        session: Session,
        ownership: Ownership,
        note: Callable[[str, str], None],
        fail: Callable[[str], None],
    ) -> None:
        self._opened = opened
        self._static: dict[str, StaticParts] = {}
        self._queues: dict[str, QueuedShards] = {}
        job = ownership.description.job
        for each in opened:
            if each.spec.deal is InputDeal.QUEUE:
                self._queues[each.name] = QueuedShards(each, session, ownership, note, fail)
            else:
                self._static[each.name] = StaticParts(each, job.readers(each.name), session)
        if ownership.am_attempt == 1:
            for each in opened:
                total = f"{count(len(each.listing), 'shard')}, {size(each.listing.total_size)}"
                note("input_listed", f"{each.name}: {total}")

    async def run(self) -> None:
        """Work until it is cancelled. Raises SupersededError, and what is a fault of ours."""
        workers: list[Union[StaticParts, QueuedShards]] = [*self._static.values(), *self._queues.values()]
        tasks = [asyncio.ensure_future(worker.run()) for worker in workers]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def look(self) -> None:
        """Free what those have whose user process has ended. To be called now and then."""
        for queue in self._queues.values():
            queue.look()

    def part_wanted(self, task: str, message: tony_pb2.InputPartWanted, send: Send) -> None:
        """Answer, sooner or later."""
        parts = self._static.get(message.name)
        if parts is None:
            problem = f"no input {message.name} is dealt to all at once"
            send(_part(tony_pb2.InputPart(request=message.request, problem=problem)))
            return
        parts.wanted(task, message, lambda answer: send(_part(answer)))

    def shard_requested(self, task: str, attempt: int, message: tony_pb2.ShardRequest, send: Send) -> None:
        """Answer, sooner or later."""
        queue = self._queues.get(message.name)
        if queue is None:
            problem = f"no input {message.name} is taken shard by shard"
            send(_shard(tony_pb2.ShardAnswer(request=message.request, problem=problem)))
            return
        queue.requested(ShardReader(task, attempt, message.start), message, lambda answer: send(_shard(answer)))

    def holds(self, task: str, attempt: int, held: Iterable[tony_pb2.HeldShards]) -> None:
        """Take note of what an executor that has registered says that its user process has."""
        for each in held:
            queue = self._queues.get(each.name)
            if queue is not None:
                queue.holds(ShardReader(task, attempt, each.start), each.shards)

    @property
    def status(self) -> list[InputStatus]:
        """How far each input is, as specified."""
        return [_status(each) for each in self._opened]


def _status(opened: OpenedInput) -> InputStatus:
    queued = opened.spec.deal is InputDeal.QUEUE
    return InputStatus(
        name=opened.name,
        deal=opened.spec.deal.value,
        shards=len(opened.listing),
        size=opened.listing.total_size,
        listing=opened.uri,
        committed=opened.queue.committed if queued else None,
        failed=len(opened.queue.failed),
    )


def _part(answer: tony_pb2.InputPart) -> tony_pb2.ToExecutor:
    return tony_pb2.ToExecutor(input_part=answer)


def _shard(answer: tony_pb2.ShardAnswer) -> tony_pb2.ToExecutor:
    return tony_pb2.ToExecutor(shard_answer=answer)
