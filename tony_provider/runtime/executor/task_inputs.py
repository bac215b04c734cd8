"""Inputs of a task: shards that are assigned at its start, shards from a queue, and copies of shards on the node.

Copies are for programs that cannot read the store themselves. For queues, a Unix socket passes the program's requests
for shards to the application master.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import shutil
import threading
from collections.abc import Awaitable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Callable, Optional, TypeVar

import attrs

from tony_provider.runtime.common import contract
from tony_provider.runtime.common.concurrency import Cancelled, in_parallel
from tony_provider.runtime.common.text import masked
from tony_provider.runtime.executor import workspace
from tony_provider.runtime.executor.master_link import MasterRequests
from tony_provider.runtime.executor.start_context import ExecutorContext, StartPart
from tony_provider.runtime.executor.start_preparation import PreparationError, wait_for_store
from tony_provider.runtime.executor.task_outputs import NotCopiedError, ShardCopies, TaskOutputs
from tony_provider.runtime.inputs.shards import MOST_AT_ONCE, InputShard
from tony_provider.runtime.jobspec.model import InputDeal
from tony_provider.runtime.protocol import limits, tony_pb2
from tony_provider.runtime.storage import StorageNotFound, uris
from tony_provider.runtime.storage.base import download
from tony_provider.runtime.storage.stores import JobStores

log = logging.getLogger(__name__)

_AT_ONCE = 4  # concurrent transfers of files


class ShardChangedError(Exception):
    """A stored file differs from its listing, so another attempt would fail in the same way."""


class FetchedShards:
    """The copies of shards for one start of a task. Each copy keeps its file's name, in a separate directory."""

    def __init__(self, stores: JobStores, directory: Path) -> None:
        self._stores = stores
        self._directory = directory
        self._cancelled = threading.Event()

    def copy(self, name: str, number: int, shard: InputShard) -> Path:
        """Copy one shard of an input and return its path. A ``file`` URI is not copied.

        Blocks, also while the store is unreachable. Raises ShardChangedError, StorageError, OSError, Cancelled.
        """
        path = self._place(name, str(number), shard)
        if path.exists():
            return path
        self._check_room(shard.size)
        self._fetch((path, shard))
        return path

    def remove(self, name: str, number: int) -> None:
        """Remove the copy of one shard. Blocks briefly."""
        shutil.rmtree(self._directory / name / str(number), ignore_errors=True)

    def copy_part(self, name: str, part: Path) -> None:
        """Copy all shards that the file ``part`` lists, one per line, and add to each line the path of the copy.

        Copies of an earlier start are reused. Blocks and raises like ``copy``.
        """
        lines = [json.loads(line) for line in part.read_bytes().splitlines()]
        shards = [InputShard.of_line(json.dumps(line).encode()) for line in lines]
        paths = [self._place(name, _key(shard), shard) for shard in shards]
        missing = {path: shard for path, shard in zip(paths, shards) if not path.exists()}
        self._remove_others(name, paths)
        self._check_room(sum(shard.size for shard in missing.values()))
        self._fetch_all(missing)
        written = [{**line, "path": str(path)} for line, path in zip(lines, paths)]
        part.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in written), encoding="utf-8")

    def cancel(self) -> None:
        """Cancel all copies. They soon raise Cancelled."""
        self._cancelled.set()

    def _place(self, name: str, mark: str, shard: InputShard) -> Path:
        if uris.scheme(shard.uri) == "file":
            return Path(uris.parse(shard.uri).path)
        return self._directory / name / mark / (uris.name(shard.uri) or "shard")

    def _remove_others(self, name: str, paths: Sequence[Path]) -> None:
        """Remove copies of this input that an earlier start has left, except those at ``paths``."""
        wanted = {path.parent.name for path in paths}
        directory = self._directory / name
        for each in directory.iterdir() if directory.exists() else ():
            if each.name not in wanted:
                shutil.rmtree(each, ignore_errors=True)

    def _check_room(self, size: int) -> None:
        self._directory.mkdir(mode=0o700, exist_ok=True)
        if problem := workspace.disk_reserve_problem(self._directory, size):
            raise OSError(f"{problem}, but {size} bytes must be copied")

    def _fetch_all(self, missing: dict[Path, InputShard]) -> None:
        ordered = sorted(missing.items(), key=lambda each: -each[1].size)  # largest first, to end sooner
        for _ in in_parallel(self._fetch, ordered, _AT_ONCE, "shards"):
            pass

    def _fetch(self, missing: tuple[Path, InputShard]) -> None:
        path, shard = missing
        try:
            wait_for_store(partial(self._download, shard, path), self._cancelled)
        except StorageNotFound as error:
            raise ShardChangedError(f"{shard.uri} was listed, but does not exist any more") from error

    def _download(self, shard: InputShard, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        arriving = path.parent / ".part"
        if download(self._stores.of(shard.uri), shard.uri, arriving, cancelled=self._cancelled) != shard.size:
            raise ShardChangedError(f"{shard.uri} has changed since it was listed")
        arriving.rename(path)


def _key(shard: InputShard) -> str:
    """Return the name for the directory of a copy. Later starts reuse the copy if the file is listed unchanged."""
    return hashlib.sha256(f"{shard.uri}\n{shard.size}\n{shard.modified_ms}".encode()).hexdigest()[:16]


async def fetch_part(requests: MasterRequests, name: str, path: Path) -> None:
    """Write to ``path`` one line for each of this task's shards of an input. Raises PreparationError, OSError."""
    file = await asyncio.to_thread(path.open, "wb")
    try:
        while not await _fetch_one_deal(requests, name, file):
            file.seek(0)
            await asyncio.to_thread(file.truncate)
    finally:
        await asyncio.to_thread(file.close)


async def _fetch_one_deal(requests: MasterRequests, name: str, file: BinaryIO) -> bool:
    """Write the lines. Return False if the input was redistributed meanwhile, which makes the lines invalid."""
    position, parts = 0, 0
    while True:
        wanted = tony_pb2.InputPartWanted(name=name, position=position)
        answer: tony_pb2.InputPart = await requests.ask(tony_pb2.FromExecutor(input_part_wanted=wanted))
        if answer.problem:
            raise PreparationError(
                f"the application master did not assign shards of the input {name}: {answer.problem}"
            )
        if parts and answer.parts != parts:
            return False
        await asyncio.to_thread(file.write, answer.lines)
        if answer.last:
            return True
        position, parts = answer.position, answer.parts


_LONGEST_LINE = 1 << 20  # bytes

CopyOutputs = Callable[[Sequence[str]], Awaitable[ShardCopies]]
"""Has on the store what was made of a shard, see ``RunOutputs.copy``."""


class NotFetchedError(Exception):
    """A shard could not be copied to this node. Another task may succeed."""


@attrs.frozen
class NodeShards:
    """Checks each shard that the program takes, and copies the shard if its input has ``fetch``. The methods block."""

    stores: JobStores
    copies: FetchedShards
    copied: frozenset[str]  # names of the inputs with ``fetch``

    def take(self, name: str, number: int, line: bytes) -> str:
        """Check the shard that ``line`` describes. Return the path of the copy, or an empty text without ``fetch``.

        Raises ShardChangedError, NotFetchedError.
        """
        if problem := shard_problem(self.stores, line):
            raise ShardChangedError(problem)
        if name not in self.copied:
            return ""
        try:
            return str(self.copies.copy(name, number, InputShard.of_line(line)))
        except ShardChangedError:
            raise
        except Exception as error:  # an internal error
            raise NotFetchedError(f"shard {number} could not be copied: {error}") from error

    def settle(self, name: str, number: int) -> None:
        """Remove the copy of a shard that the program has completed, returned or reported as failed."""
        if name in self.copied:
            self.copies.remove(name, number)


def shard_problem(stores: JobStores, line: bytes) -> str:
    """Describe how a shard differs from its listing, or return an empty text if it does not. Blocks.

    Other errors of the store are only logged, because the program will get them itself.
    """
    shard = InputShard.of_line(line)
    try:
        now = InputShard.of_status(stores.of(shard.uri).status(shard.uri))
    except StorageNotFound:
        return f"{shard.uri} was listed, but does not exist any more"
    except Exception:  # an internal error
        log.warning("cannot check whether %s has changed since it was listed", shard.uri, exc_info=True)
        return ""
    if now.size != shard.size or (now.modified_ms and shard.modified_ms not in (0, now.modified_ms)):
        return f"{shard.uri} has changed since it was listed"
    return ""


T = TypeVar("T")


class QuestionError(ValueError):
    """A line of the program is not a valid request."""


@attrs.frozen
class ShardQuestion:
    """A request of the program: the result of a shard, the next shard, or both."""

    name: str
    done: Optional[int] = None  # number of a completed shard
    back: Optional[int] = None  # number of a shard that the program returns without a result
    failed: Optional[int] = None  # number of a failed shard
    reason: str = ""  # reason of the failure
    outputs: list[str] = attrs.field(factory=list)  # paths or names of the files that the program made of ``done``
    take: bool = False  # the program requests the next shard

    @classmethod
    def of_line(cls, line: bytes) -> ShardQuestion:
        """Parse a line of the program. Raises QuestionError."""
        try:
            fields = json.loads(line)
            known = {field.name for field in attrs.fields(cls)} - {"name"}
            question = cls(fields["input"], **{key: fields[key] for key in known & fields.keys()})
            texts = [question.name, question.reason, *question.outputs]
            "".join(texts).encode()  # JSON may contain half of a surrogate pair, which cannot be sent
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise QuestionError(f"not a valid request: {line[:200]!r}") from error
        shards = [each for each in (question.done, question.back, question.failed) if each is not None]
        if len(shards) > 1 or not all(map(_is_number, shards)) or not isinstance(question.outputs, list):
            raise QuestionError(f"not a valid request: {line[:200]!r}")
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
    """Passes the requests of one start's user process to the application master."""

    def __init__(
        self,
        path: Path,
        requests: MasterRequests,
        start: int,
        shards: NodeShards,
        copy: CopyOutputs,
        secrets: Sequence[str] = (),
    ) -> None:
        """Prepare the server. ``secrets``: values to mask in the reasons of failures, which other users may read."""
        self._secrets = tuple(secrets)
        self._path = path
        self._requests = requests
        self._start = start
        self._shards = shards
        self._copy = copy
        # Separate threads, so that a hanging store does not delay heartbeats.
        self._working = ThreadPoolExecutor(_AT_ONCE, "shards")
        self._server: Optional[asyncio.AbstractServer] = None
        self._connections: set[asyncio.Task[None]] = set()
        self._held: list[set[tuple[str, int]]] = []  # input and number of the shards that each connection holds

    @property
    def held(self) -> list[tony_pb2.HeldShards]:
        """The shards that were taken and are not completed."""
        by_name: dict[str, list[int]] = {}
        for name, shard in sorted(set().union(*self._held)):
            by_name.setdefault(name, []).append(shard)
        return [tony_pb2.HeldShards(start=self._start, name=name, shards=shards) for name, shards in by_name.items()]

    async def open(self) -> None:
        """Start to listen. Raises OSError."""
        self._server = await asyncio.start_unix_server(self._accept, self._path, limit=_LONGEST_LINE)

    async def close(self) -> None:
        """Close all connections. The master releases the held shards when it knows that the process has ended."""
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
        self._held.append(held)
        try:
            await self._converse(reader, writer, held)
            for name, shard in sorted(held):
                await self._ask(ShardQuestion(name, back=shard), held)
            self._held = [each for each in self._held if each is not held]
        except asyncio.CancelledError:  # asyncio would log it as an error
            return
        finally:
            self._connections.discard(task)

    async def _converse(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, held: set[tuple[str, int]]
    ) -> None:
        """Answer requests until the program closes its end."""
        try:
            while line := await reader.readline():
                answer = await self._answer(line, held)
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError) as error:  # the connection was closed, or a line is too long
            log.warning("the connection of a program that reads shards failed: %s", error)
        finally:
            writer.close()

    async def _answer(self, line: bytes, held: set[tuple[str, int]]) -> Mapping[str, Any]:
        try:
            question = ShardQuestion.of_line(line)
            copies = await self._copy(question.outputs) if question.done is not None else ShardCopies()
        except (QuestionError, NotCopiedError) as error:
            return {"error": str(error)}
        question = attrs.evolve(question, outputs=copies.names, reason=masked(question.reason, self._secrets))
        if question.message(self._start).ByteSize() > limits.size_limit("shard_request"):
            copies.settle(committed=False)
            return {"error": f"the shard has too many output files to list: {len(copies.names)}"}
        while True:
            answer = await self._ask(question, held)
            copies.settle(committed=not answer.problem)
            copies = ShardCopies()
            if answer.problem:
                return {"error": answer.problem}
            if not question.take:
                return {}
            if not answer.HasField("shard"):
                return {"end": True, "failed": answer.failed, "failures": answer.failures}
            try:
                path = await self._do(self._shards.take, question.name, answer.shard, answer.line.encode())
            except NotFetchedError as error:
                await self._ask(ShardQuestion(question.name, back=answer.shard), held)
                return {"error": str(error)}
            except ShardChangedError as error:
                log.warning("%s: %s", question.name, error)
                question = ShardQuestion(question.name, failed=answer.shard, reason=str(error), take=True)
            else:
                here = {"path": path} if path else {}
                return {"shard": answer.shard, **json.loads(answer.line), **here}

    async def _do(self, work: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._working, work, *args)

    async def _ask(self, question: ShardQuestion, held: set[tuple[str, int]]) -> tony_pb2.ShardAnswer:
        request = tony_pb2.FromExecutor(shard_request=question.message(self._start))
        answer: tony_pb2.ShardAnswer = await self._requests.ask(request)
        for settled in (question.done, question.back, question.failed):
            if settled is not None:
                held.discard((question.name, settled))
                await self._do(self._shards.settle, question.name, settled)
        if answer.HasField("shard"):
            held.add((question.name, answer.shard))
        return answer


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


class TaskInputs(StartPart):
    """The job's inputs for one start. Call ``open`` at most once, and then ``close``."""

    def __init__(self, context: ExecutorContext, start: int, requests: MasterRequests, outputs: TaskOutputs) -> None:
        super().__init__()
        container = context.container
        job = container.job
        read = [name for name in job.inputs if container.task_type in job.readers(name)]
        self._queued = [name for name in read if job.inputs[name].deal is InputDeal.QUEUE]
        self._static = [name for name in read if name not in self._queued]
        self._workspace = context.workspace
        self._requests = requests
        self._stores = JobStores(context.storage, container.description.application_dir)
        self._socket = Path(context.workspace.tmpdir, f"inputs-{start}")
        self._copies = FetchedShards(self._stores, context.workspace.inputs)
        self._copied = frozenset(name for name in read if job.inputs[name].fetch)
        shards = NodeShards(self._stores, self._copies, self._copied)
        self._server = ShardServer(
            self._socket, requests, start, shards, outputs.copy, list(container.user_secrets.values())
        )

    @property
    def held(self) -> list[tony_pb2.HeldShards]:
        """The shards that the process has taken and not completed."""
        return self._server.held

    async def open(self) -> dict[str, str]:
        """Fetch the lists of assigned shards and open the socket. Return the variables with the paths.

        Raises PreparationError, OSError.
        """
        environ = {}
        directory = self._workspace.inputs
        for name in self._queued:  # remove the copies of a former start
            await asyncio.to_thread(shutil.rmtree, directory / name, ignore_errors=True)
        for name in self._static:
            await asyncio.to_thread(directory.mkdir, mode=0o700, exist_ok=True)
            path = directory / f"{name}.jsonl"
            await fetch_part(self._requests, name, path)
            if name in self._copied:
                await self._copy_part(name, path)
            environ[contract.ENV_INPUT_PREFIX + name.upper()] = str(path)
        if self._queued:
            await self._server.open()
            environ[contract.ENV_INPUT_QUEUES] = ",".join(self._queued)
            environ[contract.ENV_INPUT_SOCKET] = str(self._socket)
        return environ

    async def close(self) -> None:
        self._copies.cancel()
        await self._server.close()
        self._stores.close()

    async def _copy_part(self, name: str, part: Path) -> None:
        try:
            await asyncio.to_thread(self._copies.copy_part, name, part)
        except asyncio.CancelledError:
            self._copies.cancel()
            raise
        except Cancelled:
            raise
        except Exception as error:  # an internal error
            raise PreparationError(f"the task's part of the input {name} could not be copied: {error}") from error
