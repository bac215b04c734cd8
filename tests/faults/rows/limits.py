"""Containers that run out of something."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tests.faults.account import Account
from tests.faults.field import EVERY, Field
from tests.faults.row import COUNT, TRAIN, row
from tests.faults.rows.process import HIT_AT
from tests.hadoop.config import Configuration
from tests.hadoop.settings import Settings
from tests.waiting import until
from tony_provider.runtime.protocol.status import TaskStatus

LOG_DISK_MB, PRINTED_MB = 24, 100
DISKS_LOOKED_AT = {
    "yarn.nodemanager.disk-health-checker.enable": "true",
    "yarn.nodemanager.disk-health-checker.interval-ms": "1000",
    "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "90",  # YARN's default
}
SLOW = 0.5  # seconds that a step takes: the training is still there when the disks are looked at
DISK_KIB = 24  # room on the full disk: for the first part of a checkpoint
FIRST_MIB, STEP_MIB = 1536, 1024  # that a container gets, and gets more
HOG_MIB = 1500  # that a process takes beside what it needs


@row("disk-full", "the disk below rank 0's checkpoints is full")
def disk_full(field: Field) -> Account:
    """The next checkpoint cannot be written, nor restored in this container: rank 0 goes elsewhere."""
    if os.geteuid() != 0:
        return Account(did="not run: mounting a small disk takes root", problems=["needs root"])
    training = field.train()
    training.until_step(HIT_AT)
    directory = Path(f"/proc/{training.user_process(training.leader).pid}/cwd/tony-work/checkpoints").resolve()
    with training.hit(), _small_disk(directory):
        training.until_step(HIT_AT + 10, after=training.until_restarted(training.leader).at)
    return training.finish(replaced=[training.leader])


@row("disk-full-at-first", "the disk below rank 0's checkpoints is full before the first checkpoint")
def disk_full_at_first(field: Field) -> Account:
    """No restart is allowed, but the budget does not pay for one that leaves a faulty node."""
    if os.geteuid() != 0:
        return Account(did="not run: mounting a small disk takes root", problems=["needs root"])
    training = field.train(restart={"budget": 0})
    training.until_step(EVERY - 5)
    task = training.leader
    node = next(each.node for each in training.job.status().tasks if each.name == task)
    directory = Path(f"/proc/{training.user_process(task).pid}/cwd/tony-work/checkpoints").resolve()
    with training.hit(), _small_disk(directory):
        training.until_step(HIT_AT, after=training.until_restarted(task).at)
    account = training.finish(replaced=[task])
    after = next(each.node for each in training.job.status().tasks if each.name == task)
    account.expect(after != node, f"{task} restarted on {node}, whose disk is full")
    return account


@contextmanager
def _small_disk(directory: Path) -> Iterator[None]:
    """Meanwhile ``directory`` is a disk of its own, of next to no room."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_KIB}k,mode=700", "full", str(directory)]
    subprocess.run(mount, check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


@row("sick-node", "the disk below rank 1 is full, which the preflight of the next start finds", COUNT)
def sick_node(field: Field) -> Account:
    """Rank 0 dies, and rank 1 moves to another node before any process starts. The node is recorded."""
    if os.geteuid() != 0:
        return Account(did="not run: mounting a small disk takes root", problems=["needs root"])
    training = field.train(preflight=True, restart={"budget": 1})
    training.until_step(HIT_AT)
    sick = training.job.task("worker:1").node
    directory = Path(f"/proc/{training.user_process('worker:1').pid}/cwd/tony-work").resolve()
    with _small_disk(directory), training.hit():
        training.kill("worker:0")
        back = training.until_restarted("worker:1")
    training.until_step(HIT_AT + 10, after=back.at)
    account = training.finish(replaced=["worker:1"])
    losses = [event["message"] for event in training.job.events() if event["event"] == "node_loss"]
    account.expect(any("preflight: its disk has" in each for each in losses), f"the finding is not recorded: {losses}")
    suspects = [each.node for each in training.job.hook.suspect_nodes()]
    account.expect(sick in suspects, f"{sick} is not among the nodes that lost containers: {suspects}")
    return account


@row("log-directory-full", "log directories of 24 MB on every node, and rank 1 prints 100 MB")
def log_directory_full(field: Field) -> Account:
    """Some of what it prints is lost, which the job says. No node is given up for a full disk, and no task is lost."""
    if os.geteuid() != 0:
        return Account(did="not run: mounting a small disk takes root", problems=["needs root"])
    with _small_log_disks(field):
        training = field.train(pace=SLOW)
        training.until_step(HIT_AT)
        with training.hit():
            training.diary.order("worker:1", "print", str(PRINTED_MB))
        printed = training.until(lambda: training.diary.newest("printed", "worker:1"), "the last of it")
        training.until(lambda: _all_looked_at(field, printed.at), "every node's disks to be looked at")
        nodes = field.hadoop.services.nodes()
        ill = [f"{node['id']}: {node['healthReport']}" for node in nodes if node["state"] != "RUNNING"]
        training.expect(not ill, f"nodes were given up: {ill}")
        training.hurry()
        account = training.finish()
        warnings = training.job.status().warnings
        account.expect(any("output of worker:1" in each for each in warnings), f"its warnings are {warnings}")
        account.expect(training.resumed_steps() == [], "a task was lost")
    return account


@contextmanager
def _small_log_disks(field: Field) -> Iterator[None]:
    """Meanwhile all containers' logs are on disks of their own, and NodeManagers look after them as YARN's do."""
    hadoop, usual = field.hadoop, field.hadoop.settings.properties
    watchful = usual | {"yarn-site": usual["yarn-site"] | DISKS_LOOKED_AT}
    numbers = range(1, hadoop.settings.nodemanagers + 1)
    directories = [hadoop.layout.logs / f"containers-{number}" for number in numbers]

    def renew(settings: Settings) -> None:
        Configuration(settings, hadoop.state.addresses, hadoop.layout).write_all()
        for number in numbers:
            hadoop.restart(f"nodemanager-{number}")

    for directory in directories:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={LOG_DISK_MB}m,mode=755", "logs", str(directory)]
        subprocess.run(mount, check=True)
    try:
        renew(replace(hadoop.settings, properties=watchful))
        yield
    finally:
        for directory in directories:
            subprocess.run(["umount", "--lazy", str(directory)], check=True)
        renew(hadoop.settings)


def _all_looked_at(field: Field, since: float) -> bool:
    return all(node["lastHealthUpdate"] > since * 1000 for node in field.hadoop.services.nodes())


@row("out-of-memory", "rank 1 takes more memory than its container has")
def out_of_memory(field: Field) -> Account:
    """YARN kills the container; the next one has more, as the policy says."""
    training = field.train(
        memory=f"{FIRST_MIB}MiB", pace=1.0, restart={"memory_step": f"{STEP_MIB}MiB", "backoff": "1s"}
    )
    training.until_step(HIT_AT)
    former = training.job.task("worker:1").container_id
    training.diary.order("worker:1", "hog", str(HOG_MIB))
    training.hits.append(training.diary.until_obeyed("worker:1").at)
    training.until_restarted("worker:1")
    # The status is written every now and then: the process may be there before it is told where.
    task = until(lambda: _in_another(training.job.task("worker:1"), former), training.job.describe)
    given = field.container_memory(task)
    training.hurry()
    training.expect(given == FIRST_MIB + STEP_MIB, f"its new container has {given} MiB")
    return training.finish(replaced=["worker:1"])


def _in_another(task: TaskStatus, former: str | None) -> TaskStatus | None:
    return task if task.node and task.container_id not in (None, former) else None


@row("hang", "rank 1 hangs")
def hang(field: Field) -> Account:
    """Nobody makes a step any more, and nobody dies: the job finds out, and shows where the program hangs."""
    # It counts from a process's start, and TensorFlow's takes long on a busy machine.
    training = field.train(timeouts={"grace": "5s", "stall": "45s" if field.program == TRAIN else "10s"})
    training.until_step(HIT_AT)
    training.diary.order("worker:1", "hang")
    training.hits.append(training.diary.until_obeyed("worker:1").at)
    account = training.finish()
    account.expect("wait_for_ever" in training.container_logs(), "no log shows where the program hung")
    return account
