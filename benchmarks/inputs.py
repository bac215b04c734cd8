"""`python -m benchmarks.inputs`: a million shards in an application master.

How long it takes to find and list them, to assign them in balanced parts, and for the next master to load the listing
and the log of committed shards; what memory they take; and how many shards a second the queue assigns: by itself, and
to readers who wait for each commit until it is in the log on HDFS.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from benchmarks import hadoop, program
from benchmarks.report import OURS, Figure, Ratio, Report, Size
from tests.jobs.places import USER
from tests.runtime.am.input_shards.conftest import ADDRESS, StandInSession
from tests.runtime.am.local_resource_manager.jobs import stage
from tony_provider.runtime.am.checkpoint_chain import Ownership
from tony_provider.runtime.am.input_shards import OpenedInput, QueuedShards, close_inputs, open_inputs
from tony_provider.runtime.inputs.shards import BalancedAssignment, CommitLog, ShardCommit, ShardQueue, ShardReader
from tony_provider.runtime.jobspec.model import InputDeal, InputSpec, JobSpec, Memory, TaskSpec
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.storage import LocalStorage, Storage, WebHdfsConfig, open_storage, uris, walk

SHARDS = (10_000, 100_000, 1_000_000)
ROUNDS = 1  # for each size
READERS = (8, 64, 512)
SECONDS = 8.0  # for each number of readers
FILES = 100
PARTS = 1000
_BATCH = 100  # commits that are written together
_MEBIBYTE = 1 << 20


def measure(shards: Sequence[int] = SHARDS, rounds: int = ROUNDS) -> Report:
    figures = [figure for count in shards for figure in _grown(count, rounds)]
    with hadoop.cluster("inputs") as cluster:
        root = f"hdfs:///tmp/bench-{uuid.uuid4().hex}"
        with open_storage(root, webhdfs=WebHdfsConfig(list(cluster.webhdfs), user=USER)) as storage:
            try:
                figures += [_dealt(readers, storage, f"{root}/{readers}", rounds) for readers in READERS]
            finally:
                storage.remove(root, recursive=True)
    title = f"Inputs of {FILES} files in an application master; commits {_BATCH} at once in logs on this machine"
    return Report("inputs", title, figures, ratios(figures))


def ratios(figures: Sequence[Figure]) -> list[Ratio]:
    """None: nobody else deals shards."""
    return []


# -- how it grows ------------------------------------------------------------------------------------------------------

UNITS = {
    "found and listed": "s",
    "memory": "MiB",
    "assigned in parts": "s",
    "assigned by the queue": "shards/s",
    "log of committed shards": "MiB",
    "taken over": "s",
}


def _grown(shards: int, rounds: int) -> Iterator[Figure]:
    found = [_life(shards) for _ in range(rounds)]
    for what, unit in UNITS.items():
        yield Figure(what, OURS, unit, [each[what] for each in found], Size(shards, "shards"))


def _life(shards: int) -> dict[str, float]:
    """Of an input, from the first application master to the next."""
    with tempfile.TemporaryDirectory(prefix="tony-bench-") as name:
        ownership = _ownership(Path(name), _data(Path(name), shards))
        before, began = _resident(), time.monotonic()
        [opened] = open_inputs(ownership, ADDRESS)
        found = {"found and listed": time.monotonic() - began, "memory": (_resident() - before) / _MEBIBYTE}
        assert len(opened.listing) == shards
        began = time.monotonic()
        BalancedAssignment.of(opened.listing.sizes, PARTS)
        found["assigned in parts"] = time.monotonic() - began
        found["assigned by the queue"] = shards / _dealt_by_queue(opened)
        _commit_all(opened)
        directory = uris.join(uris.parent(opened.uri), "data.commits")
        found["log of committed shards"] = sum(each.size for each in walk(ownership.storage, directory)) / _MEBIBYTE
        close_inputs([opened])
        began = time.monotonic()
        [opened] = open_inputs(attrs.evolve(ownership, am_attempt=2), ADDRESS)
        found["taken over"] = time.monotonic() - began
        assert opened.queue.over
        close_inputs([opened])
    program.progress(f"{shards:,} shards: " + ", ".join(f"{what} {value:.3g}" for what, value in found.items()))
    return found


def _data(home: Path, shards: int) -> Path:
    """Files with holes in them, so large that they are cut into so many pieces of a MiB."""
    directory = home / "data"
    directory.mkdir()
    for number in range(FILES):
        with (directory / f"{number:03d}.tfrecord").open("wb") as file:
            file.truncate(shards // FILES * _MEBIBYTE)
    return directory


def _ownership(home: Path, data: Path) -> Ownership:
    inputs = {"data": InputSpec([str(data)], InputDeal.QUEUE, split_size=Memory(1))}
    job = JobSpec("standalone", {"worker": TaskSpec("true", instances=2)}, inputs=inputs)
    return Ownership(LocalStorage(), stage(home, job).description, 1, b"key")


def _resident() -> int:
    """Bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _dealt_by_queue(opened: OpenedInput) -> float:
    """Seconds; without executors, network and log."""
    readers = [ShardReader(f"worker:{number}", 1, 1) for number in range(64)]
    queue = ShardQueue(len(opened.listing))
    began = time.monotonic()
    for request, reader in enumerate(itertools.cycle(readers), 1):
        shard = queue.take(reader, request)
        if shard is None:
            break
        opened.listing.lines([shard])
        queue.commit(reader, shard)
    assert queue.over
    return time.monotonic() - began


def _commit_all(opened: OpenedInput) -> None:
    reader, now = ShardReader("worker:0", 1, 1), int(time.time() * 1000)
    for begin in range(0, len(opened.listing), _BATCH):
        end = min(begin + _BATCH, len(opened.listing))
        opened.log.add([ShardCommit(shard, reader, now) for shard in range(begin, end)])


# -- with a log on HDFS ------------------------------------------------------------------------------------------------


def _dealt(readers: int, storage: Storage, root: str, rounds: int) -> Figure:
    speeds = []
    for number in range(rounds):
        speeds.append(asyncio.run(_queue_speed(readers, storage, f"{root}/{number}")))
        program.progress(f"{readers} readers, log on HDFS: {speeds[-1]:.1f} shards/s")
    return Figure("dealt and committed, log on HDFS", OURS, "shards/s", speeds, Size(readers, "readers"))


async def _queue_speed(readers: int, storage: Storage, directory: str) -> float:
    """Shards a second that are dealt to readers who do nothing but say that they are done."""
    with tempfile.TemporaryDirectory(prefix="tony-bench-") as name:
        ownership = _ownership(Path(name), _data(Path(name), SHARDS[0]))
        [listed] = await asyncio.to_thread(open_inputs, ownership, ADDRESS)
        description = attrs.evolve(ownership.description, application_dir=directory)
        on_hdfs = attrs.evolve(ownership, storage=storage, description=description)
        log = CommitLog(storage, f"{directory}/data.commits", 1)
        known = {ShardReader(f"worker:{number}", 1, 1) for number in range(readers)}
        session = StandInSession(running=known).as_session
        shards = QueuedShards(attrs.evolve(listed, log=log), session, on_hdfs, _tell, _tell)
        working = asyncio.ensure_future(shards.run())
        began = time.monotonic()
        done = await asyncio.gather(*(_read(shards, reader, began + SECONDS) for reader in known))
        seconds = time.monotonic() - began
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        close_inputs([listed])
    return sum(done) / seconds


def _tell(*words: str) -> None:
    program.progress(": ".join(words))


async def _read(shards: QueuedShards, reader: ShardReader, until: float) -> int:
    """How many shards it has committed by then."""
    done, last = 0, None
    for request in itertools.count(1):
        answer: asyncio.Future[tony_pb2.ShardAnswer] = asyncio.get_running_loop().create_future()
        asked = tony_pb2.ShardRequest(start=1, name="data", request=request, done=last, take=True)
        shards.requested(reader, asked, answer.set_result)
        said = await answer
        done += last is not None
        if time.monotonic() > until or not said.HasField("shard"):
            return done
        last = said.shard
    raise AssertionError("unreachable")


def main() -> int:
    parser = program.options(__doc__)
    parser.add_argument("--shards", type=program.sizes, default=SHARDS, help="such as 10000,1000000")
    arguments = parser.parse_args()
    return program.tell(measure(arguments.shards, arguments.rounds or ROUNDS), arguments.output)


if __name__ == "__main__":
    raise SystemExit(main())
