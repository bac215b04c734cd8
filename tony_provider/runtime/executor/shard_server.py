"""The Unix socket where a user process takes shards, one by one: a line of JSON for each question and each answer.

A question names an input, and at most one shard and what became of it (``done``, ``back`` or ``failed``, with a
``reason``); it may ask for another shard:

    {"input": "images", "done": 7, "outputs": ["hdfs:///out/7"], "take": true}

The answer to it is one of

    {"shard": 8, "uri": "hdfs:///data/8", "size": 1048576, "modified_ms": 1760000000000, "path": "…"}
    {"end": true, "failed": 0, "failures": ""}       none is left; how many could not be read, and the first of these
    {}                                               none was asked for
    {"error": "…"}                                   it was refused

``path`` is there where the shard was copied to this node: until something is said of it.
What a connection has taken is given back when it ends.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Optional, Protocol, TypeVar

import attrs

from tony_provider.runtime.executor.input_requests import InputRequests
from tony_provider.runtime.executor.run_outputs import NotCopiedError, ShardCopies
from tony_provider.runtime.inputs.shard_queue import MOST_AT_ONCE
from tony_provider.runtime.protocol import limits, tony_pb2
from tony_provider.runtime.text import masked

log = logging.getLogger(__name__)

_LONGEST_LINE = 1 << 20  # bytes
_AT_ONCE = 4  # shards that are looked at, or copied

Copy = Callable[[Sequence[str]], Awaitable[ShardCopies]]
"""Has on the store what was made of a shard, see ``RunOutputs.copy``."""


@attrs.frozen
class TakenShard:
    """A shard as the program gets it."""

    problem: str = ""  # why nobody can read it; empty: it can be read
    path: str = ""  # of its copy on this node, where there is one


class NotFetchedError(Exception):
    """A shard that could not be copied here; somebody else may have better luck."""


class TakenShards(Protocol):
    """What is done about shards on this node. Both block, and are called in threads."""

    def take(self, name: str, number: int, line: bytes) -> TakenShard:
        """Look at a shard of this line, and have it here if it is wanted here. Raises NotFetchedError."""

    def settle(self, name: str, number: int) -> None:
        """Nothing more is done with it."""


T = TypeVar("T")


class QuestionError(ValueError):
    """A line that is no question."""


@attrs.frozen
class Question:
    """What a program asks."""

    name: str
    done: Optional[int] = None
    back: Optional[int] = None
    failed: Optional[int] = None
    reason: str = ""
    outputs: list[str] = attrs.field(factory=list)
    take: bool = False

    @classmethod
    def of_line(cls, line: bytes) -> Question:
        """Raises QuestionError."""
        try:
            fields = json.loads(line)
            known = {field.name for field in attrs.fields(cls)} - {"name"}
            question = cls(fields["input"], **{key: fields[key] for key in known & fields.keys()})
            texts = [question.name, question.reason, *question.outputs]
            "".join(texts).encode()  # half of a surrogate pair can be written in JSON, and not sent on
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise QuestionError(f"not a question: {line[:200]!r}") from error
        shards = [each for each in (question.done, question.back, question.failed) if each is not None]
        if len(shards) > 1 or not all(map(_is_number, shards)) or not isinstance(question.outputs, list):
            raise QuestionError(f"not a question: {line[:200]!r}")
        return question

    def message(self, start: int) -> tony_pb2.ShardRequest:
        return tony_pb2.ShardRequest(
            start=start,
            name=self.name,
            done=self.done,
            back=self.back,
            failed=self.failed,
            reason=self.reason,
            outputs=self.outputs,
            take=bool(self.take),
        )


class ShardServer:
    """Passes the questions of one start's user process on to the application master."""

    def __init__(
        self,
        path: Path,
        requests: InputRequests,
        start: int,
        shards: TakenShards,
        copy: Copy,
        secrets: Sequence[str] = (),
    ) -> None:
        """``secrets``: values that are masked in what the program says of a failure, which others read."""
        self._secrets = tuple(secrets)
        self._path = path
        self._requests = requests
        self._start = start
        self._shards = shards
        self._copy = copy
        # Own threads: a store that hangs is not to take those that heartbeats need.
        self._working = ThreadPoolExecutor(_AT_ONCE, "shards")
        self._server: Optional[asyncio.AbstractServer] = None
        self._connections: set[asyncio.Task[None]] = set()
        self._held: set[tuple[str, int]] = set()  # by all connections

    @property
    def held(self) -> list[tony_pb2.HeldShards]:
        """The shards that were taken, and are not done with."""
        by_name: dict[str, list[int]] = {}
        for name, shard in sorted(self._held):
            by_name.setdefault(name, []).append(shard)
        return [tony_pb2.HeldShards(start=self._start, name=name, shards=shards) for name, shards in by_name.items()]

    async def open(self) -> None:
        """Listen. Raises OSError."""
        self._server = await asyncio.start_unix_server(self._accept, self._path, limit=_LONGEST_LINE)

    async def close(self) -> None:
        """Hear nobody any more. What is held is free again as soon as the master knows that the process has ended."""
        if self._server is not None:
            self._server.close()
            await asyncio.to_thread(self._path.unlink, missing_ok=True)
        connections = list(self._connections)
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        self._working.shutdown(wait=False)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine that runs
        if len(self._connections) >= MOST_AT_ONCE:
            writer.write(json.dumps({"error": f"more than {MOST_AT_ONCE} connections of one task"}).encode() + b"\n")
            writer.close()
            return
        self._connections.add(task)
        held: set[tuple[str, int]] = set()
        try:
            await self._converse(reader, writer, held)
            for name, shard in sorted(held):
                await self._ask(Question(name, back=shard), held)
        except asyncio.CancelledError:  # asyncio would log it as a fault
            return
        finally:
            self._connections.discard(task)

    async def _converse(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, held: set[tuple[str, int]]
    ) -> None:
        """Answer until the program has closed its end."""
        try:
            while line := await reader.readline():
                answer = await self._answer(line, held)
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError) as error:  # it went away, or wrote a line without an end
            log.warning("a program that takes shards: %s", error)
        finally:
            writer.close()

    async def _answer(self, line: bytes, held: set[tuple[str, int]]) -> Mapping[str, Any]:
        try:
            question = Question.of_line(line)
            copies = await self._copy(question.outputs) if question.done is not None else ShardCopies([], [])
        except (QuestionError, NotCopiedError) as error:
            return {"error": str(error)}
        question = attrs.evolve(question, outputs=copies.names, reason=masked(question.reason, self._secrets))
        if question.message(self._start).ByteSize() > limits.largest("shard_request"):
            copies.settle(committed=False)
            return {"error": f"what was made of the shard has too many files to be named: {len(copies.names)}"}
        while True:
            answer = await self._ask(question, held)
            copies.settle(committed=not answer.problem)
            copies = ShardCopies([], [])
            if answer.problem:
                return {"error": answer.problem}
            if not question.take:
                return {}
            if not answer.HasField("shard"):
                return {"end": True, "failed": answer.failed, "failures": answer.failures}
            try:
                taken = await self._do(self._shards.take, question.name, answer.shard, answer.line.encode())
            except NotFetchedError as error:
                await self._ask(Question(question.name, back=answer.shard), held)
                return {"error": str(error)}
            if not taken.problem:
                here = {"path": taken.path} if taken.path else {}
                return {"shard": answer.shard, **json.loads(answer.line), **here}
            log.warning("%s: %s", question.name, taken.problem)
            question = Question(question.name, failed=answer.shard, reason=taken.problem, take=True)

    async def _do(self, work: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._working, work, *args)

    async def _ask(self, question: Question, held: set[tuple[str, int]]) -> tony_pb2.ShardAnswer:
        answer = await self._requests.shard(question.message(self._start))
        for settled in (question.done, question.back, question.failed):
            if settled is not None:
                held.discard((question.name, settled))
                self._held.discard((question.name, settled))
                await self._do(self._shards.settle, question.name, settled)
        if answer.HasField("shard"):
            held.add((question.name, answer.shard))
            self._held.add((question.name, answer.shard))
        return answer


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63
