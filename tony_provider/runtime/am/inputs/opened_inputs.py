"""The inputs of a job as its application master has them: listed by the first one, found on the store by the next."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial
from typing import Callable

import attrs

from tony_provider.runtime import contract
from tony_provider.runtime.address import Address
from tony_provider.runtime.am.owner import Ownership, SupersededError
from tony_provider.runtime.inputs.commit_log import CommitLog, read_log
from tony_provider.runtime.inputs.finding import BadInputError, find
from tony_provider.runtime.inputs.listing import Listing
from tony_provider.runtime.inputs.shard import InputShard
from tony_provider.runtime.inputs.shard_queue import ShardQueue
from tony_provider.runtime.inputs.stores import InputStores
from tony_provider.runtime.inputs.too_few import too_few
from tony_provider.runtime.spec.model import InputDeal, InputSpec
from tony_provider.runtime.spec.problems import child
from tony_provider.runtime.storage import StorageNotFound, StorageUnreachable, uris

log = logging.getLogger(__name__)

_LONGEST_LISTING = 300.0  # seconds for all inputs of the job
_PROGRESS = 10.0  # seconds
_LAST_WORDS = 1.0  # seconds more for what can tell by itself that it took too long


@attrs.frozen
class OpenedInput:
    """One input: its shards and, when they are taken one by one, what became of each so far."""

    name: str
    spec: InputSpec
    uri: str  # of the listing on the store
    listing: Listing
    queue: ShardQueue  # empty unless the deal is ``queue``
    log: CommitLog


def open_inputs(ownership: Ownership, address: Address) -> list[OpenedInput]:
    """List the inputs of the job, or load what a former application master has listed. They are to be closed.

    Where there are any, this one is announced first, at ``address``: from then on a former one, if it still lives,
    commits nothing that would be missing here. Blocks. Raises BadInputError with all that is wrong with them,
    SupersededError, StorageError.
    """
    if not ownership.description.job.inputs:
        return []
    ownership.announce(address)
    opened: list[OpenedInput] = []
    problems = []
    stores = InputStores(ownership.storage, ownership.description.application_dir)
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
    """Give up what this machine keeps of them."""
    for each in opened:
        each.listing.close()


def _open(name: str, ownership: Ownership, stores: InputStores, until: float) -> OpenedInput:
    directory = uris.join(ownership.description.application_dir, contract.INPUTS_DIR)
    uri, commits = uris.join(directory, f"{name}.jsonl"), uris.join(directory, f"{name}.commits")
    spec = ownership.description.job.inputs[name]
    try:
        listing = _listing(name, uri, ownership, stores, until)
        queue = ShardQueue(len(listing) if spec.deal is InputDeal.QUEUE else 0)
        for settled in read_log(ownership.storage, commits):
            queue.was_settled(settled.reader, settled.shard, settled.failed)
    except (BadInputError, StorageUnreachable, SupersededError):
        raise
    except Exception as error:  # a full disk, a damaged file, and whatever the drivers of other stores raise
        log.exception("an input cannot be opened")
        raise BadInputError(f"{child('inputs', name)}: {error or type(error).__name__}") from error
    return OpenedInput(name, spec, uri, listing, queue, CommitLog(ownership.storage, commits, ownership.am_attempt))


def _listing(name: str, uri: str, ownership: Ownership, stores: InputStores, until: float) -> Listing:
    storage, job = ownership.storage, ownership.description.job
    check = partial(_check_time, name, until)
    try:
        return Listing.load(storage, uri)
    except StorageNotFound:
        listing = _within(name, until, lambda: Listing.of(_told(name, find(name, job.inputs[name], stores, check))))
    try:
        problem = too_few(job, name, len(listing))
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
    """These shards, with a line in the log now and then."""
    told = time.monotonic()
    for number, shard in enumerate(shards):
        if time.monotonic() > told + _PROGRESS:
            told = time.monotonic()
            log.info("listing %s: %d shards so far, at %s", name, number, shard.uri)
        yield shard


def _within(name: str, until: float, work: Callable[[], Listing]) -> Listing:
    """In a thread of its own, which is left behind when the time is over: one directory may have no end."""
    done: Future[Listing] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is taken
            done.set_exception(error)

    threading.Thread(target=run, name=f"listing {name}", daemon=True).start()
    try:
        return done.result(max(0.0, until - time.monotonic()) + _LAST_WORDS)
    except FutureTimeoutError:
        _check_time(name, until)
        raise


def _check_time(name: str, until: float) -> None:
    if time.monotonic() > until:
        remedy = "name fewer files, or paths with fewer directories; `checksum` and Parquet with `split_size` take long"
        message = f"listing took more than {_LONGEST_LISTING:g} s; {remedy}"
        raise BadInputError(f"{child('inputs', name)}: {message}")
