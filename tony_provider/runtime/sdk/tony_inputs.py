"""Inputs of a tony job for Python programs. ``tony_sdk.inputs`` yields the shards assigned to this task.

    import tony_sdk

    for shard in tony_sdk.inputs("images"):
        with open(shard.path, "rb") as file:
            ...

With ``deal: static``, each loop yields the same shards: this task's part. With ``deal: queue``, a shard is taken when
the loop requests it, and committed when the loop requests the next shard. The program must save the results of a shard
before the commit. Call ``shard.done()`` to commit earlier. If a process ends before the commit, another process gets
the shard.

If the job has a ``format``, ``shard.records()`` reads the records, even if a shard is a piece of a file.

Needs only Python 3.8.
"""

from __future__ import annotations

import glob
import importlib
import json
import os
import socket
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Callable, Optional, Union

if TYPE_CHECKING:
    Read = Callable[["TaskShard"], Iterable[Any]]
    Local = Union[str, Iterable[str], None]


class InputError(Exception):
    """This task does not have the input, or shards of the input could not be read."""


Opener = Callable[[str], BinaryIO]
"""Opens a path or URI as a binary file with ``seek`` and ``read``."""


@dataclass(eq=False, repr=False)
class TaskShard:
    """One file of an input, or a piece of a file.

    ``path`` is the path of a local file: the input file itself, or a local copy (``fetch: true``). If there is no local
    file, ``path`` is the URI. With a queue, the copy exists until the shard is committed, given back or failed.

    ``uri`` is the location of the file. ``size`` (bytes), ``modified_ms`` and ``checksum`` are from the listing.
    ``format`` is the format in the job, or None. A piece of text or TFRecords has ``offset`` and ``length`` in bytes,
    and contains the records that begin in this range. A piece of a Parquet file has ``row_groups``: the numbers of its
    row groups. ``partition`` has the values of a Hive table's partition by column, ``snapshot`` the id of an Iceberg
    table's snapshot.
    """

    uri: str
    size: int = 0
    modified_ms: int = 0
    format: Optional[str] = None
    offset: Optional[int] = None
    length: Optional[int] = None
    row_groups: Optional[Sequence[int]] = None
    checksum: Optional[str] = None
    path: str = ""
    partition: Optional[dict[str, str]] = None
    snapshot: Optional[int] = None

    def __post_init__(self) -> None:
        if self.row_groups is not None:
            self.row_groups = range(*self.row_groups)
        if not self.path:
            self.path = self.uri[len("file://") :] if self.uri.startswith("file:///") else self.uri

    def records(self, opener: Optional[Opener] = None) -> Iterator[Any]:
        """Yield the records: lines and TFRecords as bytes, rows of Parquet files as dictionaries.

        Lines are without line ends. ``opener`` opens files that are not on this machine's disk. The default is
        ``pyarrow.fs`` for HDFS, and fsspec for other stores, if they are installed. Raises InputError if the job has no
        format, if a file cannot be opened, and for data in another format.
        """
        records: Iterator[Any] = importlib.import_module("tony_records").records(self, opener)
        return records

    def done(self, *outputs: Union[str, os.PathLike[str]]) -> None:
        """Commit the shard, with the names of its results. Has no effect with ``deal: static``."""

    def give_back(self) -> None:
        """Return the shard to the queue. Has no effect with ``deal: static``."""

    def failed(self, reason: str) -> None:
        """Mark the shard as unreadable, so that no task gets it again. Other shards are processed first.

        With ``deal: queue``, every reading task gets InputError at the end of the input. With ``deal: static``, this
        method raises InputError.
        """
        raise InputError(f"{self.uri}: {reason}")

    def __enter__(self) -> TaskShard:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        """Commit the shard, or return it to the queue after an exception."""
        if error is None:
            self.done()
        elif isinstance(error, Exception):
            self.give_back()

    def __str__(self) -> str:
        return self.uri


class QueuedShard(TaskShard):
    """A shard taken from a queue. It must be settled once, by ``done``, ``give_back`` or ``failed``."""

    def __init__(self, queue: _Queue, number: int, **listed: Any) -> None:
        super().__init__(**listed)
        self.open = True  # whether the shard is not settled yet
        self._refused = False  # whether a commit was refused; the loop must not repeat a refused commit
        self._queue = queue
        self._number = number

    def done(self, *outputs: Union[str, os.PathLike[str]]) -> None:
        """Commit the shard, with the names of its results. A second call has no effect.

        Returns when the commit is stored. Raises InputError if another process has the shard by now, or if the results
        cannot be copied. After InputError, the shard is not committed. You can then call ``done`` with other results.
        If you do not, the loop returns the shard to the queue.
        """
        self._settle(done=self._number, outputs=[_whole(each) for each in outputs])

    def give_back(self) -> None:
        """Return the shard to the queue for another process."""
        self._settle(back=self._number)

    def failed(self, reason: str) -> None:
        """Mark the shard as unreadable. No task gets it again, and each reading task gets InputError at the end."""
        self._settle(failed=self._number, reason=f"{self.uri}: {reason}")

    def take_next(self) -> dict[str, Any]:
        """Request the next shard, and commit this shard if it is not settled. Raises InputError.

        After a refused commit, return the shard to the queue. Otherwise, tasks that wait for the end of the input would
        also wait for this shard.
        """
        with self._queue.lock:
            said = {"back" if self._refused else "done": self._number} if self.open else {}
            self.open = False
            return self._queue.ask(**said, take=True)

    def _settle(self, **what: Any) -> None:
        if not self.open:
            return  # do not wait for the lock, because the loop may hold it for a long time
        with self._queue.lock:
            if self.open:
                self.open = False
                try:
                    self._queue.ask(**what)
                except InputError:
                    self.open = self._refused = True
                    raise


class _Queue:
    """Connection to the executor, for one loop."""

    def __init__(self, name: str, path: str) -> None:
        self.lock = threading.RLock()  # keeps each request and its answer together if several threads send
        self._name = name
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(path)
        except OSError as error:
            self._socket.close()
            raise InputError(f"input {name}: the executor does not answer at {path}: {error}") from error
        self._answers = self._socket.makefile("rb")

    def ask(self, **what: Any) -> dict[str, Any]:
        """Send a request, and wait for the answer without a timeout. Raises InputError."""
        with self.lock:
            line = self._exchange(json.dumps({"input": self._name, **what}).encode() + b"\n")
        if not line:
            raise InputError(f"input {self._name}: the executor has closed the connection")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise InputError(f"input {self._name}: {answer['error']}")
        return answer

    def _exchange(self, line: bytes) -> bytes:
        if self._answers.closed:
            raise InputError(f"input {self._name}: the shard was returned to the queue when its loop ended")
        try:
            self._socket.sendall(line)
            return self._answers.readline()
        except OSError as error:
            raise InputError(f"input {self._name}: the connection to the executor failed: {error}") from error

    def close(self) -> None:
        """Close the connection. The executor then returns unsettled shards to the queue."""
        self._answers.close()
        self._socket.close()


def inputs(name: str, local: Local = None, format: Optional[str] = None) -> Iterator[TaskShard]:
    """Yield the shards of this input that are assigned to this task.

    Outside a job, ``local`` is a file pattern or the paths of files to read, and ``format`` is the format of these
    files. Raises InputError if the job does not have this input for this task, and at the end of a queue with
    unreadable shards.
    """
    if is_part(name):
        return _static(os.environ[_part_variable(name)])
    if is_queue(name):
        return _queued(name, os.environ["TONY_INPUT_SOCKET"])
    if os.environ.get("TONY_TASK_TYPE"):
        raise InputError(f"the job has no input {name!r} for this task type")
    return _outside(local, format)


def is_part(name: str) -> bool:
    """Return whether this task has a static part of the input."""
    return _part_variable(name) in os.environ


def is_queue(name: str) -> bool:
    """Return whether the shards of this input are taken from a queue."""
    return name in os.environ.get("TONY_INPUT_QUEUES", "").split(",")


def _part_variable(name: str) -> str:
    return "TONY_INPUT_" + name.upper()


def _whole(made: Union[str, os.PathLike[str]]) -> str:
    """Return the absolute path of a local file, because the executor has another working directory."""
    return os.path.abspath(made) if os.path.exists(made) else os.fspath(made)  # noqa: PTH100, PTH110 - keep links


def _static(part: str) -> Iterator[TaskShard]:
    with Path(part).open(encoding="utf-8") as lines:
        for line in lines:
            shard = TaskShard(**json.loads(line))
            _check_there(shard)
            yield shard


def _check_there(shard: TaskShard) -> None:
    """Raise InputError if a local file does not exist any more, or if a file that was split has changed."""
    if shard.path == shard.uri:
        return
    try:
        stat = Path(shard.path).stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputError(f"{shard.uri} was listed, but does not exist any more") from error
    listed = shard.uri.startswith("file:")  # copies were checked when they were made
    if (
        listed
        and shard.length is not None
        and shard.modified_ms
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
        raise InputError(f"unreadable shards of the input {name}: {answer['failed']}. {answer['failures']}")


def _outside(local: Local, format: Optional[str]) -> Iterator[TaskShard]:
    paths = sorted(glob.glob(local)) if isinstance(local, str) else list(local or ())  # noqa: PTH207
    for path in paths:
        stat = Path(path).stat()
        yield TaskShard(f"file://{Path(path).resolve()}", stat.st_size, stat.st_mtime_ns // 1_000_000, format)


def batches(
    name: str, size: int, read: Optional[Read] = None, local: Local = None, format: Optional[str] = None
) -> Iterator[list[Any]]:
    """Yield lists of ``size`` examples. A list has examples of one shard, so the last list of a shard may be shorter.

    With a queue, a shard is committed after the loop has finished its last batch and requests another one.
    """
    if size < 1:
        raise ValueError(f"the batch size is {size}, but must be at least 1")
    for shard in inputs(name, local, format):
        examples = iter((read or TaskShard.records)(shard))
        while batch := list(islice(examples, size)):
            yield batch


def tf_dataset(
    name: str,
    read: Optional[Read] = None,
    signature: Any = None,
    local: Local = None,
    format: Optional[str] = None,
) -> Any:
    """Return a ``tf.data.Dataset`` of the examples of this task's part. Each epoch yields all examples again.

    ``signature`` is the ``output_signature`` of ``from_generator``; the default is bytes. Distribution strategies do
    not shard the part again (``AutoShardPolicy.OFF``). Raises InputError for a queue: a dataset that reads ahead would
    commit shards before they are used.
    """
    _refuse_queue(name)
    tf = importlib.import_module("tensorflow")

    def examples() -> Iterator[Any]:
        for shard in inputs(name, local, format):
            yield from (read or TaskShard.records)(shard)

    spec = tf.TensorSpec((), tf.string) if signature is None else signature
    dataset = tf.data.Dataset.from_generator(examples, output_signature=spec)
    if not is_part(name):
        return dataset
    options = tf.data.Options()  # by default, each worker would skip some of its examples
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return dataset.with_options(options)


def torch_dataset(name: str, read: Optional[Read] = None, local: Local = None, format: Optional[str] = None) -> Any:
    """Return an ``IterableDataset`` of the examples of this task's part. Each epoch yields all examples again.

    The processes of a ``DataLoader`` divide the shards among themselves. Raises InputError for a queue: a dataset that
    reads ahead would commit shards before they are used.
    """
    _refuse_queue(name)
    local = local if local is None or isinstance(local, str) else list(local)
    torch_data: Any = importlib.import_module("torch.utils.data")

    class Examples(torch_data.IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Iterator[Any]:
            shards, process = inputs(name, local, format), torch_data.get_worker_info()
            if process is not None:
                shards = islice(shards, process.id, None, process.num_workers)
            for shard in shards:
                yield from (read or TaskShard.records)(shard)

        def __reduce__(self) -> Any:
            """Support ``DataLoader`` processes that are started by ``spawn``: each process creates this class again."""
            return torch_dataset, (name, read, local, format)

    return Examples()


def _refuse_queue(name: str) -> None:
    if is_queue(name):
        raise InputError(
            f"input {name} has `deal: queue`, but a dataset reads ahead and would commit shards before they are "
            "used; loop over tony_sdk.batches or tony_sdk.inputs instead"
        )
