"""Nodes that fall silent, while what they run lives on."""

from __future__ import annotations

from tests.faults.account import Account
from tests.faults.field import WORKER_MEMORY, Field
from tests.faults.row import row
from tests.faults.rows.process import HIT_AT
from tests.faults.training import Training

SLOW = 1.0  # seconds that a step takes: for longer than a silent node is waited for


@row("nodemanager-killed", "NodeManager kill -9, its container lives on")
def nodemanager_killed(field: Field) -> Account:
    """YARN gives the node up, though the container on it lives: it is replaced elsewhere, and must stop by itself."""
    training = field.train(memory=WORKER_MEMORY)
    training.until_step(HIT_AT)
    task = beside_the_master(field, training)
    daemon = field.daemon_of(str(training.job.task(task).node))
    training.dawdle(SLOW)
    survivor = training.executor(task)
    with training.hit():
        field.hadoop.kill(daemon)
    training.expect(survivor.alive(), "the container died with its NodeManager: nothing was shown")
    back = training.until_restarted(task)
    training.hurry()
    training.until_step(HIT_AT, after=back.at)
    field.hadoop.restart(daemon)
    return training.finish(replaced=[task])


def beside_the_master(field: Field, training: Training) -> str:
    """A task that is not on the application master's node."""
    master = field.application(training.job.id)["amHostHttpAddress"].partition(":")[0]
    return next(task for task in training.gang if str(training.job.task(task).node).partition(":")[0] != master)
