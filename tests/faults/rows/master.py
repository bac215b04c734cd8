"""Application masters that die: user processes never notice."""

from __future__ import annotations

import signal

from tests.faults.account import Account
from tests.faults.field import Field
from tests.faults.row import COUNT, row
from tests.faults.training import Training
from tests.faults.tries import Tries
from tests.hadoop.processes import stop
from tests.waiting import until

SLOW = 0.5  # seconds that a step takes, so that the training is still there when a master has come back


@row("master-killed", "application master kill -9")
def master_killed(field: Field) -> Account:
    """YARN starts another one, which adopts the running tasks."""
    training = field.train(pace=SLOW)
    training.until_step(15)
    with training.hit():
        training.master().signal(signal.SIGKILL)
    training.until_master(2)
    training.hurry()
    return _untouched(training, 2)


@row("master-killed-twice", "application master kill -9, twice")
def master_killed_twice(field: Field) -> Account:
    """The second one as well, as soon as it has taken over."""
    training = field.train(pace=SLOW)
    training.until_step(15)
    for number in (2, 3):
        with training.hit():
            training.master().signal(signal.SIGKILL)
        training.until_master(number)
    training.hurry()
    return _untouched(training, 3)


@row("master-killed-and-task", "AM kill -9 and, before the next, a user process")
def master_and_task_killed(field: Field) -> Account:
    """What fails while there is no master is found by the next one."""
    training = field.train(pace=SLOW)
    training.until_step(25)
    with training.hit():
        training.master().signal(signal.SIGKILL)
        training.kill("worker:1")
    return training.finish()


@row("master-node-gone", "the application master's node is gone")
def master_node_gone(field: Field) -> Account:
    """NodeManager and all containers of one node die at once, the master among them."""
    training = field.train(pace=SLOW)
    training.until_step(15)
    node = field.application(training.job.id)["amHostHttpAddress"]
    daemon = field.daemon_of(node)
    there = [
        task for task in training.gang if str(training.job.task(task).node).partition(":")[0] == node.partition(":")[0]
    ]
    processes = field.processes_on(daemon)
    with training.hit():
        field.hadoop.kill(daemon)
        stop(processes, 0)
    training.until_master(2)
    training.hurry()
    field.hadoop.restart(daemon)
    return training.finish(replaced=there)


def _untouched(training: Training, attempt: int) -> Account:
    account = training.finish()
    starts = [(entry.task, entry.pid) for entry in training.diary.entries("started")]
    account.expect(len(starts) == len(training.gang), f"user processes were started {len(starts)} times: {starts}")
    number = training.job.status().am_attempt
    account.expect(number == attempt, f"the last application master was number {number}")
    return account


@row("master-killed-watched", "application master kill -9, watched by a worker", COUNT)
def killed_watched(field: Field) -> Account:
    """The task's log says that it was lost, and that the next one has taken over."""
    tries = Tries(field)
    attempt = tries.begin(tries.job(pace=SLOW))
    training = tries.training()
    training.until_step(12)
    with training.hit():
        training.master().signal(signal.SIGKILL)
    training.until_master(2)
    lines = ("The application master was lost", "has taken over")
    until(lambda: all(line in attempt.said() for line in lines), lambda: attempt.said()[-3000:], 60)
    training.hurry()
    told = attempt.result()
    account = training.finish()
    account.expect(told["state"] == "success", f"the task: {told['error']}")
    return account
