"""Distribution of input shards to tasks: a fixed part for each task (static), or one shard at a time (queue).

The application master lists each input once. Executors then request the part of their task, or the next shard.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Callable, Optional, Union

import attrs

from tony_provider.runtime.am.checkpoint_chain import Ownership, SupersededError
from tony_provider.runtime.am.session.session import Session
from tony_provider.runtime.common.clock import epoch_ms
from tony_provider.runtime.common.concurrency import retry, run_in_threads
from tony_provider.runtime.common.network import Address
from tony_provider.runtime.common.quantities import count, size, some
from tony_provider.runtime.inputs.finding import BadInputError, find_shards
from tony_provider.runtime.inputs.shards import (
    BalancedAssignment,
    CommitLog,
    InputShard,
    Listing,
    ShardCommit,
    ShardQueue,
    ShardReader,
    commits_uri,
    listing_uri,
    read_log,
    too_few_shards,
)
from tony_provider.runtime.jobspec.model import InputDeal, InputSpec, ranks
from tony_provider.runtime.jobspec.problems import child
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.protocol.status import InputStatus, JobState
from tony_provider.runtime.storage import StorageError, StorageNotFound, StorageUnreachable
from tony_provider.runtime.storage.stores import JobStores

log = logging.getLogger(__name__)

SendToExecutor = Callable[[tony_pb2.ToExecutor], None]
NoteEvent = Callable[..., None]
"""Records an event: its name and message, and optionally its task and data."""


class InputAssigner:
    """Answers executors' requests for the part of a task in a static input, or for the next shard of a queue.

    The session knows which user processes run. The methods do not block, because the ``workers`` do the work. ``note``
    records an event in the event log: a name and a message. ``fail`` fails the job with a message.
    """

    def __init__(
        self,
        opened: Sequence[OpenedInput],
        session: Session,
        ownership: Ownership,
        note: NoteEvent,
        fail: Callable[[str], None],
    ) -> None:
        self._note = note
        self._opened = opened
        self._static: dict[str, StaticParts] = {}
        self._queues: dict[str, QueuedShards] = {}
        job = ownership.description.job
        for each in opened:
            if each.spec.deal is InputDeal.QUEUE:
                self._queues[each.name] = QueuedShards(each, session, ownership, note, fail)
            elif each.spec.deal is InputDeal.STATIC:
                self._static[each.name] = StaticParts(each, job.readers(each.name), session)
        if ownership.am_attempt == 1:
            for each in opened:
                total = f"{count(len(each.listing), 'shard')}, {size(each.listing.total_size)}"
                note("input_listed", f"{each.name}: {total}")

    @property
    def workers(self) -> Sequence[Union[StaticParts, QueuedShards]]:
        """The objects that answer the requests, one for each input, while their ``run`` is running.

        ``run`` raises SupersededError, and internal errors.
        """
        return [*self._static.values(), *self._queues.values()]

    def look(self) -> None:
        """Make the shards of ended user processes available again. The caller repeats this periodically."""
        for queue in self._queues.values():
            queue.look()

    def part_wanted(self, task: str, message: tony_pb2.InputPartWanted, send: SendToExecutor) -> None:
        """Answer a request for the task's part of a static input, now or later."""
        parts = self._static.get(message.name)
        if parts is None:
            problem = f"the input {message.name} does not exist, or is not distributed in parts"
            send(_part(tony_pb2.InputPart(request=message.request, problem=problem)))
            return
        parts.wanted(task, message, lambda answer: send(_part(answer)))

    def shard_requested(self, task: str, attempt: int, message: tony_pb2.ShardRequest, send: SendToExecutor) -> None:
        """Answer a request for the next shard of a queue, now or later."""
        queue = self._queues.get(message.name)
        if queue is None:
            problem = f"the input {message.name} does not exist, or is not a queue of shards"
            send(_shard(tony_pb2.ShardAnswer(request=message.request, problem=problem)))
            return
        queue.requested(ShardReader(task, attempt, message.start), message, lambda answer: send(_shard(answer)))

    def process_ended(self, task: str, attempt: int, start: int) -> None:
        """Record which shards an ended user process took and did not commit."""
        for name, queue in self._queues.items():
            if shards := queue.uncommitted(ShardReader(task, attempt, start)):
                message = f"start {start} ended before it committed these shards of {name}: {some(map(str, shards))}"
                self._note("uncommitted", message, task, {"input": name, "process": start, "shards": shards})

    def holds(self, task: str, attempt: int, held: Iterable[tony_pb2.HeldShards]) -> None:
        """Record which shards the user process of a newly registered executor holds."""
        for each in held:
            queue = self._queues.get(each.name)
            if queue is not None:
                queue.holds(ShardReader(task, attempt, each.start), each.shards)

    @property
    def status(self) -> list[InputStatus]:
        """The progress of each input, in the order of the job."""
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


_LONGEST_LISTING = 300.0  # seconds, for all inputs of the job
_PROGRESS = 10.0  # seconds between two log lines
_LAST_WORDS = 1.0  # seconds after the deadline in which the thread can still report the timeout itself


@attrs.frozen
class OpenedInput:
    """An input with its listed shards and, for a queue, the state of each shard."""

    name: str
    spec: InputSpec
    uri: str  # URI of the listing on the store
    listing: Listing
    queue: ShardQueue  # empty for a static input
    log: CommitLog


def open_inputs(ownership: Ownership, address: Address) -> list[OpenedInput]:
    """List the inputs of the job, or load the listing of a former application master.

    The caller must pass the result to ``close_inputs``. If the job has inputs, first announces this master at
    ``address``. After that, a former master that still runs confirms no commit that this master has not read. Blocks.
    Raises SupersededError, StorageError, and BadInputError with the problems of all inputs.
    """
    if not ownership.description.job.inputs:
        return []
    ownership.announce(address)
    opened: list[OpenedInput] = []
    problems = []
    stores = JobStores(ownership.storage, ownership.description.application_dir)
    until = time.monotonic() + _LONGEST_LISTING
    try:
        for name in ownership.description.job.inputs:
            try:
                opened.append(_open(name, ownership, stores, until))
            except BadInputError as error:
                problems.append(str(error))
    except BaseException:
        close_inputs(opened)
        raise
    finally:
        stores.close()
    if problems:
        close_inputs(opened)
        raise BadInputError("\n".join(problems))
    return opened


def close_inputs(opened: list[OpenedInput]) -> None:
    """Delete the local files of the listings."""
    for each in opened:
        each.listing.close()


def _open(name: str, ownership: Ownership, stores: JobStores, until: float) -> OpenedInput:
    directory = ownership.description.application_dir
    uri, commits = listing_uri(directory, name), commits_uri(directory, name)
    spec = ownership.description.job.inputs[name]
    try:
        listing = _listing(name, uri, ownership, stores, until)
        queue = ShardQueue(len(listing) if spec.deal is InputDeal.QUEUE else 0)
        for settled in read_log(ownership.storage, commits):
            queue.was_settled(settled.reader, settled.shard, settled.failed)
    except (BadInputError, StorageUnreachable, SupersededError):
        raise
    except Exception as error:  # a full disk, a damaged file, or an exception of another store's driver
        log.exception("an input cannot be opened")
        raise BadInputError(f"{child('inputs', name)}: {error or type(error).__name__}") from error
    return OpenedInput(name, spec, uri, listing, queue, CommitLog(ownership.storage, commits, ownership.am_attempt))


def _listing(name: str, uri: str, ownership: Ownership, stores: JobStores, until: float) -> Listing:
    storage, job = ownership.storage, ownership.description.job
    check = partial(_check_time, name, until)
    try:
        return Listing.load(storage, uri)
    except StorageNotFound:
        listing = _within(
            name, until, lambda: Listing.of(_told(name, find_shards(name, job.inputs[name], stores, check)))
        )
    try:
        problem = too_few_shards(job, name, len(listing))
        if problem is None:
            ownership.check_newest()
            listing.save(storage, uri)
    except BaseException:
        listing.close()
        raise
    if problem:
        listing.close()
        raise BadInputError(problem)
    return listing


def _told(name: str, shards: Iterable[InputShard]) -> Iterator[InputShard]:
    """Yield the shards, and periodically log the progress."""
    told = time.monotonic()
    for number, shard in enumerate(shards):
        if time.monotonic() > told + _PROGRESS:
            told = time.monotonic()
            log.info("listing the input %s: %d shards so far, now at %s", name, number, shard.uri)
        yield shard


def _within(name: str, until: float, work: Callable[[], Listing]) -> Listing:
    """Run ``work`` in a separate thread.

    After the deadline the thread is abandoned, because a listing may never end.
    """
    (listing,) = run_in_threads([work], max(0.0, until - time.monotonic()) + _LAST_WORDS, f"listing {name}")
    if not listing.done():
        _check_time(name, until)
    return listing.result(0)


def _check_time(name: str, until: float) -> None:
    if time.monotonic() > until:
        remedy = "name fewer files, or paths with fewer directories; `checksum` and Parquet with `split_size` are slow"
        message = f"listing took more than {_LONGEST_LISTING:g} s; {remedy}"
        raise BadInputError(f"{child('inputs', name)}: {message}")


_MOST_FAILURES = 5  # maximum number of failures that an answer lists

AnswerShardRequest = Callable[[tony_pb2.ShardAnswer], None]


@attrs.frozen
class _Request:
    reader: ShardReader
    message: tony_pb2.ShardRequest
    answer: AnswerShardRequest

    @property
    def key(self) -> tuple[ShardReader, int]:
        """Key of the request. If the executor repeats the request over another stream, the key is the same."""
        return self.reader, self.message.request


class QueuedShards:
    """Assigns the shards of a queue to processes, one at a time, and records which shards are done or failed.

    A commit is answered only after it is on the store. Concurrent commits are written together. ``note`` records an
    event in the event log: a name and a message. ``fail`` fails the job with a message.
    """

    def __init__(
        self,
        opened: OpenedInput,
        session: Session,
        ownership: Ownership,
        note: NoteEvent,
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
        self._settled: list[ShardCommit] = []  # shards that are done or failed, not yet in the log
        self._heard: list[_Request] = []  # new requests, to be answered after the next write
        self._waiting: dict[tuple[ShardReader, int], _Request] = {}  # requests for a shard, oldest first
        self._outstanding = OutstandingRequests()

    # ---- what executors say ------------------------------------------------------------------------------------

    def requested(self, reader: ShardReader, message: tony_pb2.ShardRequest, answer: AnswerShardRequest) -> None:
        """Record a request, to be answered now or later. Does not block."""
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
        """Record which shards an executor's process holds. A former application master may have assigned the shards."""
        self._queue.holds(reader, shards)

    def uncommitted(self, reader: ShardReader) -> list[int]:
        """Return the last shards that a reader took and did not commit, in the order of its requests."""
        return self._queue.uncommitted_by(reader)

    def look(self) -> None:
        """Make the shards of ended readers available again. The caller repeats this periodically."""
        if self._session.phase is JobState.RECOVERING:
            return  # it is not yet known which tasks still run
        for reader in self._queue.readers:
            if not self._runs(reader) and self._queue.ended(reader):
                log.info("the input %s: the shards of %s are available again", self.opened.name, reader)
        for key, request in list(self._waiting.items()):
            if not self._runs(request.reader):
                self._over(self._waiting.pop(key))
        if self._waiting:
            self._news.set()

    def _runs(self, reader: ShardReader) -> bool:
        return self._session.process_runs(reader.task, reader.attempt, reader.start)

    def _settle(self, reader: ShardReader, message: tony_pb2.ShardRequest) -> str:
        """Record the shard that a message reports, if any. Return why the report is rejected, or an empty string."""
        kind = message.WhichOneof("shard")
        if kind == "done":
            return self._put(ShardCommit(message.done, reader, epoch_ms(), outputs=list(message.outputs)))
        if kind == "failed":
            return self._put(ShardCommit(message.failed, reader, epoch_ms(), failed=message.reason))
        if kind == "back":
            # This has no effect if the shard already belongs to another reader.
            self._queue.give_back(reader, message.back, message.request)
        return ""

    def _put(self, settled: ShardCommit) -> str:
        queue, reader, shard = self._queue, settled.reader, settled.shard
        before = queue.settled
        failed = settled.failed
        accepted = queue.commit(reader, shard) if failed is None else queue.fail(reader, shard, failed)
        if queue.settled > before:  # otherwise the request is a repetition, because the answer was lost
            self._settled.append(settled)
        return "" if accepted else f"shard {shard} of {self.opened.name} is not assigned to {reader.task} any more"

    # ---- the work ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Write commits and answer requests until cancelled.

        Fail the job if the store does not accept commits within ``timeouts.upload``. Raises SupersededError, and
        internal errors.
        """
        try:
            await self._work()
        except StorageError as error:
            self._fail(
                f"{child('inputs', self.opened.name)}: no commit could be written to the store for "
                f"{self._longest:g} s (timeouts.upload): {error}"
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

    async def _write(self, settled: list[ShardCommit]) -> None:
        # Check again after the write. A newer application master may have read the log just before the write.
        # In that case, these commits must not be confirmed.
        for work in (partial(self._write_now, settled), self._ownership.check_newest):
            await retry(partial(asyncio.to_thread, work), self._longest, StorageError, self._troubled)
        for each in settled:
            if each.failed is not None:
                self._note("shard_failed", f"{self.opened.name}: {each.failed}")

    def _write_now(self, settled: list[ShardCommit]) -> None:
        self._ownership.check_newest()
        self.opened.log.add(settled)

    def _troubled(self, error: StorageError) -> None:
        self._note(
            "store_unavailable", f"cannot commit shards of the input {self.opened.name} to the store, retrying: {error}"
        )

    async def _deal(self) -> None:
        """Assign free shards to the waiting requests, and answer all of them if no shard is left."""
        if self._session.phase is JobState.RECOVERING:
            return  # a shard that seems free may belong to a task that has not yet registered again
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
        """Answer each waiting request: no shard is left. The answer lists the failed shards."""
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


_PIECE = 256 << 10  # bytes after which an answer gets no further lines
_LINES = 256  # lines that are read at a time

AnswerPartRequest = Callable[[tony_pb2.InputPart], None]


@attrs.frozen
class _Wanted:
    task: str
    message: tony_pb2.InputPartWanted
    answer: AnswerPartRequest


class StaticParts:
    """Answers executors' requests for the part of a task in a static input. Each answer contains a piece of the part.

    There are as many parts as reading tasks in the current generation. So the parts stay the same if single tasks
    restart. If a gang continues with fewer or more tasks, the input is distributed again.
    """

    def __init__(self, opened: OpenedInput, readers: Sequence[str], session: Session) -> None:
        """``readers``: the task types that read this input."""
        self._listing = opened.listing
        self._readers = frozenset(readers)
        self._session = session
        self._deal: Optional[BalancedAssignment] = None
        self._asked: asyncio.Queue[_Wanted] = asyncio.Queue()
        self._outstanding = OutstandingRequests()

    def wanted(self, task: str, message: tony_pb2.InputPartWanted, answer: AnswerPartRequest) -> None:
        """Record a request, to be answered later. Does not block."""
        if problem := self._outstanding.add(task, message.ByteSize()):
            answer(tony_pb2.InputPart(request=message.request, problem=problem))
            return
        self._asked.put_nowait(_Wanted(task, message, answer))

    async def run(self) -> None:
        """Answer requests until cancelled."""
        while True:
            asked = await self._asked.get()
            self._outstanding.remove(asked.task, asked.message.ByteSize())
            asked.answer(await self._part(asked))

    async def _part(self, asked: _Wanted) -> tony_pb2.InputPart:
        message, members = asked.message, self._members()
        if asked.task not in members:
            return tony_pb2.InputPart(request=message.request, problem=f"{asked.task} is not an active reader")
        if self._deal is None or self._deal.parts != len(members):
            self._deal = await asyncio.to_thread(BalancedAssignment.of, self._listing.sizes, len(members))
            log.info("the input %s is distributed in %d parts", message.name, len(members))
        part = self._deal.part(members.index(asked.task))
        lines, end = await asyncio.to_thread(self._piece, part, message.position)
        last = end >= len(part)
        return tony_pb2.InputPart(request=message.request, parts=len(members), lines=lines, position=end, last=last)

    def _members(self) -> list[str]:
        """Return the names of the tasks that read this input, ordered by rank."""
        without = self._session.without
        present = [task for task in self._session.tasks if task.type in self._readers and task.name not in without]
        by_rank = ranks(present)
        return [f"{task_type}:{index}" for task_type, index in sorted(by_rank, key=by_rank.__getitem__)]

    def _piece(self, part: Sequence[int], begin: int) -> tuple[bytes, int]:
        """Return lines of the part from position ``begin`` on, and the position of the next line."""
        lines: list[bytes] = []
        size = 0
        while size < _PIECE and begin + len(lines) < len(part):
            position = begin + len(lines)
            more = self._listing.lines(part[position : position + _LINES])
            size += sum(map(len, more))
            lines += more
        return b"".join(lines), begin + len(lines)


MOST_OUTSTANDING = 16 << 20  # bytes of unanswered requests of one task
_LEAST = 1 << 10  # minimum size in bytes that a request counts as, because its objects also need memory


class OutstandingRequests:
    """Limits the total size of each task's unanswered requests."""

    def __init__(self) -> None:
        self._bytes: Counter[str] = Counter()

    def add(self, task: str, size: int) -> str:
        """Count a request of ``size`` bytes. If it exceeds the limit, return the reason, otherwise an empty string."""
        if self._bytes[task] + max(size, _LEAST) > MOST_OUTSTANDING:
            return (
                f"the unanswered requests of {task} exceed {MOST_OUTSTANDING >> 20} MiB; "
                "wait for answers before the next request"
            )
        self._bytes[task] += max(size, _LEAST)
        return ""

    def remove(self, task: str, size: int) -> None:
        """Subtract a request that was answered."""
        self._bytes[task] -= max(size, _LEAST)
        if self._bytes[task] <= 0:
            del self._bytes[task]
