"""The parts of an input that is dealt once for all: each task with a rank that reads it has one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Callable, Optional

import attrs

from tony_provider.runtime.am.inputs.opened_inputs import OpenedInput
from tony_provider.runtime.am.inputs.outstanding import Outstanding
from tony_provider.runtime.am.session.session import Session
from tony_provider.runtime.inputs.balanced_deal import BalancedDeal
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.ranks import ranks

log = logging.getLogger(__name__)

_PIECE = 256 << 10  # bytes of lines in one answer
_LINES = 256  # read at a time

Answer = Callable[[tony_pb2.InputPart], None]


@attrs.frozen
class _Wanted:
    task: str
    message: tony_pb2.InputPartWanted
    answer: Answer


class StaticParts:
    """Answers executors that ask for the part of their task, piece by piece.

    The parts are those of the tasks that the current generation has. So they stay the same while single tasks start
    again, and a gang that goes on with others, or grows, is dealt anew.
    """

    def __init__(self, opened: OpenedInput, readers: Sequence[str], session: Session) -> None:
        """``readers``: the task types that it is dealt to."""
        self._listing = opened.listing
        self._readers = frozenset(readers)
        self._session = session
        self._deal: Optional[BalancedDeal] = None
        self._asked: asyncio.Queue[_Wanted] = asyncio.Queue()
        self._outstanding = Outstanding()

    def wanted(self, task: str, message: tony_pb2.InputPartWanted, answer: Answer) -> None:
        """Answer sooner or later. Does not block."""
        problem = self._outstanding.add(task, message.ByteSize())
        if problem:
            answer(tony_pb2.InputPart(request=message.request, problem=problem))
            return
        self._asked.put_nowait(_Wanted(task, message, answer))

    async def run(self) -> None:
        """Answer until it is cancelled."""
        while True:
            asked = await self._asked.get()
            self._outstanding.remove(asked.task, asked.message.ByteSize())
            asked.answer(await self._part(asked))

    async def _part(self, asked: _Wanted) -> tony_pb2.InputPart:
        message, members = asked.message, self._members()
        if asked.task not in members:
            return tony_pb2.InputPart(request=message.request, problem=f"{asked.task} takes no part at present")
        if self._deal is None or self._deal.parts != len(members):
            self._deal = await asyncio.to_thread(BalancedDeal.of, self._listing.sizes, len(members))
            log.info("%s is dealt in %d parts", message.name, len(members))
        part = self._deal.part(members.index(asked.task))
        lines, end = await asyncio.to_thread(self._piece, part, message.position)
        last = end >= len(part)
        return tony_pb2.InputPart(request=message.request, parts=len(members), lines=lines, position=end, last=last)

    def _members(self) -> list[str]:
        """Names of the tasks that have a part, by rank."""
        without = self._session.without
        present = [task for task in self._session.tasks if task.type in self._readers and task.name not in without]
        by_rank = ranks(present)
        return [f"{task_type}:{index}" for task_type, index in sorted(by_rank, key=by_rank.__getitem__)]

    def _piece(self, part: Sequence[int], begin: int) -> tuple[bytes, int]:
        """Lines of the part from a position on, and the position after them."""
        lines: list[bytes] = []
        size = 0
        while size < _PIECE and begin + len(lines) < len(part):
            position = begin + len(lines)
            more = self._listing.lines(part[position : position + _LINES])
            size += sum(map(len, more))
            lines += more
        return b"".join(lines), begin + len(lines)
