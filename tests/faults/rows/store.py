"""The store, and checkpoints on it or on the local disk, break while a training needs them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

from tests.checkpoints import new_objects
from tests.faults.account import Account
from tests.faults.field import Field
from tests.faults.row import COUNT, row
from tests.faults.rows.silence import away_for_a_while
from tests.faults.sockets import connections
from tests.faults.training import Training
from tests.files import files_below
from tests.hadoop.cluster import HadoopCluster
from tony_provider.runtime.checkpoint.catalog import read_stored
from tony_provider.runtime.common import contract
from tony_provider.runtime.storage.base import read_bytes, walk

Breaking = Callable[[bytes], bytes]  # makes a file of another content of it

LARGE = {"FAULTS_PADDING": "32"}  # MiB
SLOW_MIRROR = {"bandwidth": "4MiB"}
MOST_LOST = 30  # steps: three saves, one of them on its way
SLOW = 1.0  # seconds that a step takes: a training that is still there after what follows


@row("datanode-gone", "DataNode gone during a mirror, then rank 0's container")
def datanode_gone(field: Field) -> Account:
    """The one that the checkpoint is being written through dies: it is written again, and is good."""
    training = field.train(environment=LARGE, checkpoint=SLOW_MIRROR, pace=SLOW)
    field.hadoop.kill(training.until(lambda: _written_through(field.hadoop, training), "a checkpoint on its way"))
    return _committed_all_the_same(training)


@row("datanode-stopped", "DataNode stopped during a mirror, then rank 0's container")
def datanode_stopped(field: Field) -> Account:
    """The one that the checkpoint is being written through hangs: the checkpoint is written through the other one."""
    training = field.train(environment=LARGE, checkpoint=SLOW_MIRROR, pace=SLOW)
    hanging = training.until(lambda: _written_through(field.hadoop, training), "a checkpoint on its way")
    field.hadoop.kill(hanging, signal.SIGSTOP)
    account = _committed_all_the_same(training)
    account.expect((account.lost or 0) <= MOST_LOST, f"{account.lost} steps were lost, not {MOST_LOST} at most")
    return account


@row("namenode-restarted", "NameNode restarted during a mirror, then rank 0's container lost")
def namenode_restarted(field: Field) -> Account:
    """It dies while a checkpoint is being written, and comes back: the checkpoint is written all the same."""
    training = field.train(environment=LARGE, checkpoint=SLOW_MIRROR, pace=SLOW)
    training.until(lambda: _written_through(field.hadoop, training), "a checkpoint on its way")
    field.hadoop.kill("namenode")
    field.hadoop.restart("namenode")
    return _committed_all_the_same(training)


@row("namenode-stopped", "NameNode stopped for 45 s, watched by a worker", COUNT)
def namenode_stopped(field: Field) -> Account:
    """The training does not notice; the task's log says that the store does not answer, and when it does again."""
    return _stopped(field, deferrable=False)


@row("namenode-stopped-deferred", "NameNode stopped for 45 s, watched by a trigger", COUNT)
def namenode_stopped_deferred(field: Field) -> Account:
    """The same from a triggerer."""
    return _stopped(field, deferrable=True)


def _stopped(field: Field, *, deferrable: bool) -> Account:
    """It hangs: nobody is refused, and nobody answered."""
    return away_for_a_while(
        field,
        "The store",
        away=lambda: field.hadoop.kill("namenode", signal.SIGSTOP),
        back=lambda: field.hadoop.kill("namenode", signal.SIGCONT),
        deferrable=deferrable,
    )


def _committed_all_the_same(training: Training) -> Account:
    """Rank 0 then loses its container and its disk, so what is on the store is all there is."""
    uri = training.until_committed(10, by_master=True)
    training.expect(training.diary.entries("started")[2:] == [], "a user process was restarted meanwhile")
    with training.hit():
        training.executor(training.leader).signal(signal.SIGKILL)
    account = training.finish(replaced=[training.leader])
    account.expect((training.resumed_steps() or [0])[0] >= 10, f"it did not go on from {uri}")
    return account


@row("truncated-on-store", "the newest checkpoint on the store is truncated")
def truncated_on_store(field: Field) -> Account:
    """Half of a file is gone when rank 0 needs it: the checkpoint is set aside, the one before is taken."""
    return _broken_on_store(field, lambda data: data[: len(data) // 2])


@row("corrupted-on-store", "the newest checkpoint on the store: a bit flipped")
def corrupted_on_store(field: Field) -> Account:
    """The sizes are right, and the content is not: only a checksum tells."""
    return _broken_on_store(field, lambda data: data[:-100] + bytes([data[-100] ^ 1]) + data[-99:])


def _broken_on_store(field: Field, broken: Breaking) -> Account:
    training = field.train(pace=SLOW / 2)
    storage = training.job.hook.storage()
    before = read_stored(storage, training.until_committed(10)).step or 0
    uri = training.until_committed(before + 1)
    objects = new_objects(storage, uri)
    largest = max(objects, key=lambda name: objects[name])
    content = broken(read_bytes(storage, largest))
    with training.hit():
        storage.write(largest, content, overwrite=True)
        training.executor(training.leader).signal(signal.SIGKILL)
    account = training.finish(replaced=[training.leader])
    account.expect(training.resumed_steps() == [before], f"it went on from {training.resumed_steps()}, not {before}")
    chain = uri.partition(f"/{contract.CHECKPOINTS_DIR}/")[0]
    aside = [entry.path for entry in walk(storage, f"{chain}/{contract.BROKEN_DIR}")]
    account.expect(bool(aside), "the broken checkpoint was not set aside")
    return account


@row("truncated-locally", "the newest checkpoint on rank 0's disk is truncated")
def truncated_locally(field: Field) -> Account:
    """Half of it is gone before it was copied, and the user process dies: the one before is taken."""
    training = field.train(environment=LARGE, pace=0.5)
    step, committed = 0, 10
    while committed >= step:  # on a busy machine, a save may be stored before the diary is read
        committed = read_stored(training.job.hook.storage(), training.until_committed(step + 10)).step or 0
        step = max(entry.step or 0 for entry in training.diary.entries("saved", training.leader)) + 10
        newest = training.until_saved(step)
        committed = read_stored(training.job.hook.storage(), training.until_committed(committed)).step or 0
    directory = Path(f"/proc/{newest.pid}/cwd/tony-work/checkpoints").resolve()
    with training.hit():
        largest = max((directory / path for path in files_below(directory) if f"-{step}" in path), key=_size)
        os.truncate(largest, _size(largest) // 2)
        training.kill(training.leader)
    account = training.finish()
    account.expect(training.resumed_steps() == [committed], f"it went on from {training.resumed_steps()}")
    return account


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _written_through(hadoop: HadoopCluster, training: Training) -> str | None:
    """The DataNode that rank 0's executor sends a checkpoint to just now."""
    if not training.diary.entries("saved", training.leader):
        return None
    daemons = {datanode.http: f"datanode-{n}" for n, datanode in enumerate(hadoop.state.addresses.datanodes, 1)}
    for each in connections(training.executor(training.leader)):
        if daemon := daemons.get(f"{each.remote[0]}:{each.remote[1]}"):
            return daemon
    return None
