"""Executors and containers that die, fall silent, or are cut off from their application master."""

from __future__ import annotations

import signal
import time

from tests.faults.account import Account
from tests.faults.field import Field
from tests.faults.row import row
from tests.faults.rows.process import HIT_AT
from tests.faults.sockets import cut_off

SLOW_MIRROR = {"bandwidth": "1MiB", "format": "auto"}
SLOW = 1.0  # seconds that a step takes: for longer than an executor may say nothing
LARGE = {"FAULTS_PADDING": "8"}  # MiB: a checkpoint then takes the slow mirror longer than ten steps take
SHORT, LONG = 6, 40  # seconds without packets: less, and more, than an executor is given before it is lost


@row("executor-killed", "rank 1: executor kill -9")
def executor_killed(field: Field) -> Account:
    """SIGKILL to an executor: YARN ends the container with it."""
    training = field.train()
    training.until_step(HIT_AT)
    with training.hit():
        training.executor("worker:1").signal(signal.SIGKILL)
    return training.finish(replaced=["worker:1"])


@row("executor-stopped", "rank 1: executor SIGSTOP")
def executor_stopped(field: Field) -> Account:
    """An executor that says nothing any more, while its user process and container live."""
    training = field.train()
    training.until_step(HIT_AT)
    with training.hit():
        training.executor("worker:1").signal(signal.SIGSTOP)
    training.dawdle(SLOW)
    training.until_restarted("worker:1")
    training.hurry()
    return training.finish(replaced=["worker:1"])


@row("ahead-of-mirror", "rank 1 lost while rank 0 is ahead of the mirror")
def ahead_of_mirror(field: Field) -> Account:
    """Rank 0 has a checkpoint that is not on the store yet when rank 1's container is lost: all begin at one step."""
    training = field.train(environment=LARGE, checkpoint=SLOW_MIRROR)
    training.until_saved(30)
    committed = training.job.status().checkpoint_step or 0
    training.expect(committed < 30, f"step {committed} was committed already: nobody was ahead of anything")
    with training.hit():
        training.executor("worker:1").signal(signal.SIGKILL)
    account = training.finish(replaced=["worker:1"])
    went_on_at = training.resumed_steps()
    account.expect(went_on_at[:1] >= [30], f"it went on from {went_on_at}, though rank 0 had step 30 on its disk")
    return account


@row("container-killed", "rank 1: container killed through YARN")
def container_killed(field: Field) -> Account:
    """As its owner may by `yarn container -signal`, or an administrator."""
    training = field.train()
    training.until_step(HIT_AT)
    container_id = training.job.task("worker:1").container_id
    base = field.hadoop.services.active_resourcemanager()
    url = f"{base}/ws/v1/cluster/containers/{container_id}/signal/FORCEFUL_SHUTDOWN"
    with training.hit():
        field.hadoop.client("alice").request("POST", url, b"", "application/json")
    return training.finish(replaced=["worker:1"])


@row("cut-off-short", f"rank 1: executor cut off from the AM for {SHORT} s")
def cut_off_for_a_moment(field: Field) -> Account:
    """Packets between executor and application master vanish for a while, and nothing comes of it."""
    training = field.train(pace=0.4)
    training.until_step(HIT_AT)
    with training.hit(), cut_off(training.executor("worker:1"), training.master()):
        time.sleep(SHORT)
    account = training.finish()
    account.expect(not training.resumed_steps(), "it was restarted")
    return account


@row("cut-off", f"rank 1: executor cut off from the AM for {LONG} s, and back")
def cut_off_for_long(field: Field) -> Account:
    """Given up, and replaced; when it can be heard again it is not let in."""
    training = field.train(pace=0.4)
    training.until_step(HIT_AT)
    with training.hit(), cut_off(training.executor("worker:1"), training.master()):
        training.dawdle(SLOW)
        time.sleep(LONG)
    training.until_restarted("worker:1")
    training.hurry()
    return training.finish(replaced=["worker:1"])
