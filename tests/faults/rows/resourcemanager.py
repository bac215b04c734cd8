"""The ResourceManager goes away, comes back, or leaves it to its twin: not an event for the job."""

from __future__ import annotations

import signal

from tests.faults.account import Account
from tests.faults.field import Field
from tests.faults.row import COUNT, row
from tests.faults.rows.master import SLOW
from tests.faults.rows.silence import away_for_a_while
from tests.faults.training import Training


@row("resourcemanager-restarted", "ResourceManager kill -9 and restart")
def restarted(field: Field) -> Account:
    """The same one comes back with its state."""
    training = field.train(pace=SLOW)
    training.until_step(15)
    number = field.active_resourcemanager()
    with training.hit():
        field.hadoop.kill(f"resourcemanager-{number}")
    field.hadoop.restart(f"resourcemanager-{number}")
    field.hadoop.activate(number)
    field.hadoop.wait_ready()
    training.hurry()
    return _untouched(training)


@row("resourcemanager-failover", "ResourceManager failover to its twin")
def failover(field: Field) -> Account:
    """The active one dies, and the standby takes over."""
    training = field.train(pace=SLOW)
    training.until_step(15)
    number = field.active_resourcemanager()
    with training.hit():
        _fail_over(field, number)
    training.hurry()
    return _untouched(training)


@row("resourcemanager-failover-asking", "failover while a container is being replaced")
def failover_while_asking(field: Field) -> Account:
    """What was asked of the dead one is asked of the other, once."""
    training = field.train()
    training.until_step(25)
    number, executor = field.active_resourcemanager(), training.executor("worker:1")
    with training.hit():
        field.hadoop.kill(f"resourcemanager-{number}", signal.SIGSTOP)
        executor.signal(signal.SIGKILL)
        _fail_over(field, number)
    return training.finish(replaced=["worker:1"])


@row("resourcemanager-stopped", "ResourceManager stopped for 45 s, watched by a worker", COUNT)
def stopped(field: Field) -> Account:
    """The training does not notice; the task's log says that it does not answer, and when it does again."""
    return _stopped(field, deferrable=False)


@row("resourcemanager-stopped-deferred", "ResourceManager stopped for 45 s, watched by a trigger", COUNT)
def stopped_deferred(field: Field) -> Account:
    """The same from a triggerer."""
    return _stopped(field, deferrable=True)


def _stopped(field: Field, *, deferrable: bool) -> Account:
    """Not by a signal that lets it go on: it would call every node lost that it has not heard of meanwhile."""
    number = field.active_resourcemanager()

    def back() -> None:
        field.hadoop.restart(f"resourcemanager-{number}")
        field.hadoop.activate(number)
        field.hadoop.wait_ready()

    return away_for_a_while(
        field,
        "The cluster",
        away=lambda: field.hadoop.kill(f"resourcemanager-{number}"),
        back=back,
        deferrable=deferrable,
    )


def _fail_over(field: Field, dead: int) -> None:
    """Have the twin take over from one that is killed."""
    field.hadoop.kill(f"resourcemanager-{dead}")
    field.hadoop.activate(3 - dead)
    field.hadoop.wait_ready()


def _untouched(training: Training) -> Account:
    account = training.finish()
    starts = [(entry.task, entry.pid) for entry in training.diary.entries("started")]
    account.expect(len(starts) == len(training.gang), f"user processes were started {len(starts)} times: {starts}")
    return account
