"""Inputs of a tony job for Python programs: the shards that are dealt to this task; reached by ``tony_sdk.inputs``.

    import tony_sdk

    for shard in tony_sdk.inputs("images"):
        with open(shard.path, "rb") as file:
            ...

With ``deal: static`` these are the shards of this task's part, the same each time. With ``deal: queue`` each one is
taken when the loop comes to it, and is committed when the loop comes for the next: what was made of it must be safe by
then. Say ``shard.done()`` to commit it before. A shard of a process that ends before that is given to another.

With a ``format`` in the job, ``shard.records()`` reads what is in it, also where a shard is a piece of a file.

Needs nothing but Python 3.8.
"""

from __future__ import annotations

import glob
import importlib
import json
import os
import socket
import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Callable, Optional, Union

if TYPE_CHECKING:
    Read = Callable[["TaskShard"], Iterable[Any]]
    Local = Union[str, Iterable[str], None]


class InputError(Exception):
    """An input that this task does not have, or shards of one that could not be read."""


Opener = Callable[[str], BinaryIO]
"""Opens a path, or a URI, as a file of bytes that can be read from any place: ``seek`` and ``read``."""


class TaskShard:
    """One file of an input, or a piece of one.

    ``uri`` is where the file is; ``size`` in bytes, ``modified_ms`` and ``checksum`` are as it was listed. ``format``
    is as in the job, None without. A piece of text or of TFRecords has an ``offset`` and a ``length`` in bytes: its
    records are those that begin in it. A piece of a Parquet file has ``row_groups``.
    """

    def __init__(
        self,
        uri: str,
        size: int = 0,
        modified_ms: int = 0,
        format: Optional[str] = None,
        offset: Optional[int] = None,
        length: Optional[int] = None,
        row_groups: Optional[Sequence[int]] = None,
        checksum: Optional[str] = None,
        path: str = "",
    ) -> None:
        self.uri = uri
        self.size = size
        self.modified_ms = modified_ms
        self.format = format
        self.offset = offset
        self.length = length
        self.row_groups = None if row_groups is None else range(*row_groups)  # their numbers
        self.checksum = checksum
        self._path = path

    @property
    def path(self) -> str:
        """The path of a file of this machine: the shard, or its copy (``fetch: true``); for all else the URI.

        The copy of a shard of a queue is there until something is said of the shard.
        """
        if self._path:
            return self._path
        return self.uri[len("file://") :] if self.uri.startswith("file:///") else self.uri

    def records(self, opener: Optional[Opener] = None) -> Iterator[Any]:
        """What is in it, by the format: lines and TFRecords as bytes, a Parquet file's rows as dictionaries.

        A line comes without its end. ``opener`` opens what is not on this machine's disk; default: fsspec, and for HDFS
        ``pyarrow.fs``, where they are installed. Raises InputError for what is not of that format, what cannot be
        opened, and without a format.
        """
        records: Iterator[Any] = importlib.import_module("tony_records").records(self, opener)
        return records

    def done(self, *outputs: Union[str, os.PathLike[str]]) -> None:
        """Say that nothing of it is to be done any more, and what was made of it. Nothing to do with a static deal."""

    def give_back(self) -> None:
        """Say that somebody else is to have it. Nothing to do with a static deal."""

    def failed(self, reason: str) -> None:
        """Say that it cannot be read: nobody gets it again, and the others are done first.

        Raises InputError, at the end of the input, in every task; with a static deal here.
        """
        raise InputError(f"{self.uri}: {reason}")

    def __enter__(self) -> TaskShard:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        """Commit it, or give it back when an error is on its way."""
        if error is None:
            self.done()
        elif isinstance(error, Exception):
            self.give_back()

    def __str__(self) -> str:
        return self.uri


class QueuedShard(TaskShard):
    """A shard that was taken from a queue, and is to be done with once."""

    def __init__(self, queue: _Queue, number: int, **listed: Any) -> None:
        super().__init__(**listed)
        self.open = True  # nobody has said what became of it
        self._refused = False  # somebody has, and to no avail: the loop is not to commit it
        self._queue = queue
        self._number = number

    def done(self, *outputs: Union[str, os.PathLike[str]]) -> None:
        """Commit it, with the names of what was made of it. Returns when that is safe; once more it does nothing.

        Raises InputError when it is somebody else's by now, or what was made of it cannot be copied: that does not
        count then. Say it once more, of something else; otherwise the shard is given back when the loop comes for the
        next.
        """
        self._settle(done=self._number, outputs=[_whole(each) for each in outputs])

    def give_back(self) -> None:
        """Have somebody else do it."""
        self._settle(back=self._number)

    def failed(self, reason: str) -> None:
        """Say that it cannot be read: nobody gets it again, and at the end every task that reads gets InputError."""
        self._settle(failed=self._number, reason=f"{self.uri}: {reason}")

    def take_next(self) -> dict[str, Any]:
        """Ask for another one, with the commit of this one unless something was said of it. Raises InputError.

        One whose commit was refused is given back: who waits for the end of the input would wait for it, too.
        """
        with self._queue.lock:
            said = {"back" if self._refused else "done": self._number} if self.open else {}
            self.open = False
            return self._queue.ask(**said, take=True)

    def _settle(self, **what: Any) -> None:
        if not self.open:
            return  # without the lock, that the loop may have for long
        with self._queue.lock:
            if self.open:
                self.open = False
                try:
                    self._queue.ask(**what)
                except InputError:
                    self.open = self._refused = True
                    raise


class _Queue:
    """A connection to the executor, for one loop."""

    def __init__(self, name: str, path: str) -> None:
        self.lock = threading.RLock()  # an answer goes to who has asked, whatever thread that is
        self._name = name
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(path)
        except OSError as error:
            self._socket.close()
            raise InputError(f"input {name}: the executor does not answer at {path}: {error}") from error
        self._answers = self._socket.makefile("rb")

    def ask(self, **what: Any) -> dict[str, Any]:
        """Ask, and wait for the answer as long as it takes. Raises InputError."""
        with self.lock:
            line = self._exchange(json.dumps({"input": self._name, **what}).encode() + b"\n")
        if not line:
            raise InputError(f"input {self._name}: the executor is gone")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise InputError(f"input {self._name}: {answer['error']}")
        return answer

    def _exchange(self, line: bytes) -> bytes:
        if self._answers.closed:
            raise InputError(f"input {self._name}: the shard was given back when the loop that took it was left")
        try:
            self._socket.sendall(line)
            return self._answers.readline()
        except OSError as error:
            raise InputError(f"input {self._name}: the executor is gone: {error}") from error

    def close(self) -> None:
        """What was taken and not done with is given back."""
        self._answers.close()
        self._socket.close()


def inputs(
    name: str, local: Union[str, Iterable[str], None] = None, format: Optional[str] = None
) -> Iterator[TaskShard]:
    """The shards of this input that are dealt to this task, one after the other.

    ``local`` is what to read outside a job: a pattern of files, or their paths; ``format`` is theirs. Raises InputError
    when the job has no such input for this task, and at the end of a queue of which shards could not be read.
    """
    if is_part(name):
        return _static(os.environ[_part_variable(name)])
    if is_queue(name):
        return _queued(name, os.environ["TONY_INPUT_SOCKET"])
    if os.environ.get("TONY_TASK_TYPE"):
        raise InputError(f"the job has no input {name!r} for this task type")
    return _outside(local, format)


def is_part(name: str) -> bool:
    """Whether this task has a part of the input of its own."""
    return _part_variable(name) in os.environ


def is_queue(name: str) -> bool:
    """Whether the shards of this input are taken one by one."""
    return name in os.environ.get("TONY_INPUT_QUEUES", "").split(",")


def _part_variable(name: str) -> str:
    return "TONY_INPUT_" + name.upper()


def _whole(made: Union[str, os.PathLike[str]]) -> str:
    """The absolute path of what is here; the executor has a working directory of its own."""
    return os.path.abspath(made) if os.path.exists(made) else os.fspath(made)  # noqa: PTH100, PTH110 - not resolved


def _static(part: str) -> Iterator[TaskShard]:
    with Path(part).open(encoding="utf-8") as lines:
        for line in lines:
            shard = TaskShard(**json.loads(line))
            _check_there(shard)
            yield shard


def _check_there(shard: TaskShard) -> None:
    """Raises InputError when it is a file of this machine that is gone, or a piece of one that is not what was cut."""
    if shard.path == shard.uri:
        return
    try:
        stat = Path(shard.path).stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputError(f"{shard.uri} was listed, and is not there any more") from error
    listed = shard.uri.startswith("file:")  # and not a copy of it, which was looked at when it was made
    if (
        listed
        and shard.length is not None
        and (stat.st_size, stat.st_mtime_ns // 1_000_000) != (shard.size, shard.modified_ms)
    ):
        raise InputError(f"{shard.uri} has changed since it was listed")


def _queued(name: str, path: str) -> Iterator[TaskShard]:
    queue = _Queue(name, path)
    try:
        shard: Optional[QueuedShard] = None
        while True:
            answer = shard.take_next() if shard else queue.ask(take=True)
            if answer.get("end"):
                break
            shard = QueuedShard(queue, answer.pop("shard"), **answer)
            yield shard
    finally:
        queue.close()
    if answer["failed"]:
        raise InputError(f"shards of the input {name} that could not be read: {answer['failed']}. {answer['failures']}")


def _outside(local: Union[str, Iterable[str], None], format: Optional[str]) -> Iterator[TaskShard]:
    paths = sorted(glob.glob(local)) if isinstance(local, str) else list(local or ())  # noqa: PTH207
    for path in paths:
        stat = Path(path).stat()
        yield TaskShard(f"file://{Path(path).resolve()}", stat.st_size, stat.st_mtime_ns // 1_000_000, format)


def batches(
    name: str, size: int, read: Optional[Read] = None, local: Local = None, format: Optional[str] = None
) -> Iterator[list[Any]]:
    """Lists of ``size`` examples, the last one of each shard perhaps shorter: none has examples of two shards.

    With a queue a shard is committed when the loop comes for the batch after its last one, and no sooner.
    """
    if size < 1:
        raise ValueError("a batch has at least one example")
    for shard in _shards(name, local, format):
        examples = iter((read or _records)(shard))
        while batch := list(islice(examples, size)):
            yield batch


def tf_dataset(
    name: str,
    read: Optional[Read] = None,
    signature: Any = None,
    local: Local = None,
    format: Optional[str] = None,
) -> Any:
    """A ``tf.data.Dataset`` of the examples of this task's part, from its beginning for each epoch.

    ``signature`` is what one is, as ``output_signature`` of ``from_generator`` wants it; default: bytes. Distribution
    strategies leave a part as it was dealt (``AutoShardPolicy.OFF``). Raises InputError for a queue: what reads ahead
    would commit shards before they are used.
    """
    _refuse_queue(name)
    tf = importlib.import_module("tensorflow")

    def examples() -> Iterator[Any]:
        for shard in _shards(name, local, format):
            yield from (read or _records)(shard)

    spec = tf.TensorSpec((), tf.string) if signature is None else signature
    dataset = tf.data.Dataset.from_generator(examples, output_signature=spec)
    if not is_part(name):
        return dataset
    options = tf.data.Options()  # else a worker would skip the others' share of what is its own already
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return dataset.with_options(options)


def torch_dataset(name: str, read: Optional[Read] = None, local: Local = None, format: Optional[str] = None) -> Any:
    """An ``IterableDataset`` of the examples of this task's part, from its beginning for each epoch.

    The processes of a ``DataLoader`` divide the shards among themselves. Raises InputError for a queue: what reads
    ahead would commit shards before they are used.
    """
    _refuse_queue(name)
    local = local if local is None or isinstance(local, str) else list(local)
    torch_data: Any = importlib.import_module("torch.utils.data")

    class Examples(torch_data.IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Iterator[Any]:
            shards, process = _shards(name, local, format), torch_data.get_worker_info()
            if process is not None:
                shards = islice(shards, process.id, None, process.num_workers)
            for shard in shards:
                yield from (read or _records)(shard)

        def __reduce__(self) -> Any:
            """For a ``DataLoader`` whose processes are started by ``spawn``: the class is made there, too."""
            return torch_dataset, (name, read, local, format)

    return Examples()


def _shards(name: str, local: Local, format: Optional[str]) -> Iterator[TaskShard]:
    shards: Iterator[TaskShard] = inputs(name, local, format)
    return shards


def _records(shard: TaskShard) -> Iterator[Any]:
    return shard.records()


def _refuse_queue(name: str) -> None:
    if is_queue(name):
        raise InputError(
            f"input {name}: its deal is `queue`, and a dataset that reads ahead would commit shards before they are "
            "used; loop over tony_sdk.batches or tony_sdk.inputs instead"
        )
