"""The cluster takes containers back."""

from __future__ import annotations

from typing import Any

from tests.faults.account import Account
from tests.faults.field import WORKER_MEMORY, Field
from tests.faults.row import row
from tests.faults.rows.node import beside_the_master
from tests.faults.rows.process import HIT_AT
from tests.faults.training import Training
from tony_provider.runtime.protocol.status import JobState

# Of three nodes of 4096 MiB: two workers have more than their queue's share, and the rest of the cluster is too little
# for the two of the other queue, whose share that is.
WORKER, RIVAL = "3000MiB", "3500MiB"
NO_BUDGET: dict[str, Any] = {"budget": 0}  # preemption is not counted
RIVAL_SECONDS = 10
SLOW = 1.0  # seconds that a step takes: the training is still there when its container is taken


@row("preempted", "preemption by another queue")
def preempted(field: Field) -> Account:
    """A job of the queue `ml` takes a worker's container; it comes back when that job has ended."""
    training = field.train(memory=WORKER, restart=NO_BUDGET, queue="default")
    training.until_step(HIT_AT)
    training.dawdle(SLOW)
    with training.hit():
        rival = field.place.submit(
            {
                "framework": "standalone",
                "queue": "ml",
                "tasks": {"worker": {"instances": 2, "memory": RIVAL, "command": f"sleep {RIVAL_SECONDS}"}},
            }
        )
    rival.until(JobState.RUNNING)
    training.hurry()
    account = training.finish(replaced=None)
    rival.succeeded()
    return _taken(training, account, "preempting")


@row("decommissioned", "the node of a worker is decommissioned")
def decommissioned(field: Field) -> Account:
    """It is said beforehand: a checkpoint is asked for, and what is lost then does not count."""
    training = field.train(memory=WORKER_MEMORY, restart=NO_BUDGET)
    training.until_step(HIT_AT)
    training.dawdle(SLOW)
    task = beside_the_master(field, training)
    daemon = field.daemon_of(str(training.job.task(task).node))
    with training.hit():
        field.hadoop.decommission(int(daemon.rpartition("-")[2]), seconds=5)
    training.until_restarted(task)
    training.hurry()
    field.hadoop.decommission(seconds=0)
    field.hadoop.restart(daemon)
    return _taken(training, training.finish(replaced=[task]), "node_leaving")


def _taken(training: Training, account: Account, announced: str) -> Account:
    events = [event["event"] for event in training.job.events()]
    account.expect(announced in events, f"no event {announced}: nobody was told beforehand")
    account.expect(bool(training.resumed_steps()), "it was not restarted: nothing was taken")
    return account
