"""A failure that comes again, with nothing in between, is tried once more and then is the job's."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runtime.am.session.world import World, job
from tony_provider.runtime.am.descriptions import essence
from tony_provider.runtime.am.resource_manager import ExitReason
from tony_provider.runtime.am.session.restart_policy import recognise
from tony_provider.runtime.jobspec.model import Duration, MirrorScope, RestartPolicy
from tony_provider.runtime.protocol.status import Failure, FailureKind, FinalStatus, TaskProgress

TYPO = """Traceback (most recent call last):
  File "/data/yarn/usercache/alice/appcache/application_17{run}_0001/container_17{run}_0001_01_00000{run}/train.py", line 12, in <module>
    model = lodel.build()
NameError: name 'lodel' is not defined
"""  # noqa: E501 - as they are
NOISE = "2026-11-22 17:13:{run}7.123456: W tensorflow/tsl/lib.cc:12] process {run}234 of 0x7f{run}a\n"


def typo(run: int) -> str:
    return NOISE.format(run=run) * run + TYPO.format(run=run)


def workers(count: int = 2, *, alone: bool = False, mirror: MirrorScope = MirrorScope.LEADER, **how: Any) -> World:
    policy = RestartPolicy(**{"backoff": Duration(0), "max_backoff": Duration(0), "budget": 9, **how})
    return World(job({"worker": count}, policy=policy, mirror=mirror), ["worker"], alone=alone).run()


def fail(world: World, name: str = "worker:1", *, run: int | None = None, **how: Any) -> None:
    """And start again where that is allowed."""
    tail = typo(world.generation if run is None else run)
    world.end(name, **{"exit_code": 1, "output_tail": tail, **how})
    if not world.session.verdict:
        world.tick(1)
        world.restarted()


def ended(world: World) -> str:
    world.complete_all()
    assert world.verdict.status is FinalStatus.FAILED
    return world.verdict.message


def test_a_typo_is_tried_once_more() -> None:
    world = workers()
    fail(world)
    assert world.generation == 2
    fail(world)
    first, *rest = ended(world).splitlines()
    assert first == (
        "worker:1 on node2:1 ended with exit code 1; "
        "the same failure 2 times, without progress in between (restart.same_failure)"
    )
    assert rest[-1] == "NameError: name 'lodel' is not defined"


def test_as_often_as_the_job_says() -> None:
    world = workers(same_failure=3)
    for generation in (2, 3, 4):
        fail(world)
        assert world.generation == generation
    fail(world)
    assert "the same failure 4 times" in ended(world)


def test_the_budget_may_be_less() -> None:
    world = workers(same_failure=3, budget=1)
    fail(world)
    fail(world)
    assert "restart.budget" in ended(world)


def test_any_task_of_the_type_may_be_the_first_to_fail() -> None:
    world = workers(4)
    fail(world, "worker:3")
    fail(world, "worker:1")
    assert "worker:1 on" in ended(world)


def test_other_failures_in_between_do_not_matter() -> None:
    world = workers()
    fail(world)
    fail(world, exit_code=7, output_tail="no route to host")
    world.lose("worker:0", ExitReason.PREEMPTED)
    world.restarted()
    fail(world)
    assert "the same failure 2 times" in ended(world)


def test_it_is_the_same_failure_in_another_process_of_a_task() -> None:
    world = workers()
    fail(world, process="rank 3 (local rank 1)")
    fail(world, "worker:0", process="rank 0 (local rank 0)")
    first = ended(world).partition("\n")[0]
    assert first.startswith(
        "worker:0 on node1:1: rank 0 (local rank 0) ended with exit code 1; the same failure 2 times"
    )


@pytest.mark.parametrize(
    "other",
    [
        {"exit_code": 2},
        {"signal": 11, "exit_code": 0},
        {"output_tail": TYPO.format(run=1).replace("line 12", "line 13")},
        {"output_tail": TYPO.format(run=1).replace("lodel", "modle")},
        {"output_tail": ""},
    ],
)
def test_another_failure_is_another(other: dict[str, Any]) -> None:
    world = workers()
    fail(world)
    fail(world, **other)
    assert world.generation == 3
    assert not world.session.verdict


def test_a_process_that_kills_itself_in_the_same_way() -> None:
    world = workers()
    fail(world, signal=11, exit_code=0, output_tail="")
    fail(world, signal=11, exit_code=0, output_tail="")
    assert "was killed by SIGSEGV; the same failure 2 times" in ended(world)


@pytest.mark.parametrize("how", [{"signal": 9, "exit_code": 0}, {"exit_code": 137}, {"signal": 15, "exit_code": 0}])
def test_who_is_killed_from_outside_has_done_nothing_wrong(how: dict[str, Any]) -> None:
    world = workers()
    for _ in range(4):
        fail(world, run=1, **how)
    assert world.generation == 5


def test_lost_containers_are_no_failure_of_the_program() -> None:
    world = workers(node_losses=0)
    for _ in range(4):
        world.lose("worker:1", ExitReason.LOST)
        world.restarted()
    assert world.generation == 5


def test_a_step_in_between() -> None:
    world = workers()
    for step in range(1, 5):
        fail(world)
        world.beat("worker:0", step)
    assert world.generation == 5
    assert world.noted("stepped")[0] == "the program reported step 1"
    fail(world)
    fail(world)
    assert ended(world)


def test_the_step_that_a_process_told_with_its_end() -> None:
    world = workers()
    for step in (7, 8, 9):
        fail(world, progress=TaskProgress(step))
    assert world.generation == 4


def test_steps_that_were_reached_before_are_no_progress() -> None:
    """Such as those of a program that fails in its first validation, and has no checkpoint until then."""
    world = workers()
    fail(world, progress=TaskProgress(7))
    fail(world, progress=TaskProgress(7))
    assert "the same failure 2 times, without progress in between" in ended(world)


def test_a_failure_after_other_steps_is_another() -> None:
    """Such as a time-out of the network: then only the budget counts."""
    world = workers(budget=3)
    for step in (9, 5, 7):
        fail(world, progress=TaskProgress(step))
    assert world.generation == 4
    fail(world, progress=TaskProgress(6))
    assert "given up after 3 restarts without progress (restart.budget)" in ended(world)


def test_a_failure_before_the_first_step_is_the_same_as_one_after_a_step() -> None:
    world = workers()
    fail(world, progress=TaskProgress(7))
    fail(world)
    assert "the same failure 2 times" in ended(world)


def test_step_zero_is_none() -> None:
    world = workers()
    fail(world)
    world.beat("worker:1", 0)
    fail(world)
    assert ended(world)


def test_steps_from_before_the_failure_do_not_count() -> None:
    """Executors tell of the newest one until the next start."""
    world = workers()
    world.end("worker:1", exit_code=1, output_tail=typo(1))
    world.beat("worker:0", 5)
    world.obey_all()
    world.beat("worker:0", 5)
    world.start_all()
    fail(world)
    assert ended(world)


def test_a_newer_checkpoint_in_between() -> None:
    world = workers()
    for step in (10, 20, 30):
        fail(world)
        world.commit(step)
    world.commit(30)  # the same again
    fail(world)
    fail(world)
    assert ended(world)


def test_failures_before_the_window_do_not_count() -> None:
    """Of a program that reports nothing: the same trouble with the network, hours later."""
    world = workers(window=Duration(100))
    for _ in range(4):
        fail(world)
        world.wait(101)
    assert world.generation == 5


def test_each_independent_task_by_itself() -> None:
    world = workers(alone=True)
    fail(world, "worker:0", run=1)
    fail(world, "worker:1", run=2)
    assert not world.session.verdict
    fail(world, "worker:1", run=3)
    assert ended(world)


def test_a_new_application_master_does_not_forget_it() -> None:
    world = workers()
    fail(world)
    world.master_dies()
    world.come_back()
    fail(world)
    assert "the same failure 2 times" in ended(world)


@pytest.mark.parametrize("what", ["step", "checkpoint"])
def test_nor_what_came_in_between(what: str) -> None:
    world = workers()
    fail(world)
    if what == "step":
        world.beat("worker:1", 4)
    else:
        world.commit(4)
    world.master_dies()
    world.come_back()
    fail(world)
    assert world.generation == 3


def test_only_the_last_traceback_is_compared() -> None:
    first = "Traceback (most recent call last):\n  File x\nKeyError: 1\n\nDuring handling …\n\n"
    assert essence(first + TYPO.format(run=1)) == essence("epoch 3 of 9\n" + TYPO.format(run=2))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("I1122 17:13:27.123456   12345 x.cc:84] gone", "I1123 07:01:59.000001  987 x.cc:84] gone"),
        ("port 20001 of 10.0.0.1:20001 in use", "port 31999 of 10.12.0.254:31999 in use"),
        ("/tmp/tmpabc_1234/x.so: no such file", "/tmp/tmpzzz91234/x.so: no such file"),
        ("python[1234]: died", "python[77]: died"),
        ("[rank 3] generation 2, attempt 1", "[rank 0] generation 5, attempt 2"),
        ("at <Foo object at 0x7f31c0de>, id 3b1f77aa90", "at <Foo object at 0x55aa>, id 90ff8c11b2"),
        ("took 12.5 s", "took 9.25 s"),
        ("/job:worker/replica:0/task:1/device:CPU:0 is gone", "/job:worker/replica:0/task:0/device:CPU:0 is gone"),
        ("\x1b[31mbad\x1b[0m", "\x1b[32mbad\x1b[1m"),
        (
            'File "/data1/yarn/usercache/al/appcache/application_7_0001/container_7_0001_01_000002/a.py"',
            'File "/data2/nm/usercache/al/appcache/application_7_0001/container_e1_7_0001_01_000003/a.py"',
        ),
    ],
)
def test_what_differs_from_run_to_run_is_passed_over(one: str, other: str) -> None:
    assert essence(one) == essence(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("line 12", "line 13"), ("index 7 of 8", "index 6 of 8"), ("name 'a'", "name 'b'"), ("step 7", "step 8")],
)
def test_what_tells_failures_apart_is_kept(one: str, other: str) -> None:
    assert essence(one) != essence(other)


@given(st.text(), st.sampled_from(FailureKind), st.none() | st.integers(0, 255), st.none() | st.integers(1, 64))
def test_any_failure_is_recognised_again(
    output: str, kind: FailureKind, exit_code: int | None, signal: int | None
) -> None:
    failure = Failure(kind, f"worker:0 ended\n{output}", "worker:0", exit_code, signal)
    elsewhere = Failure(kind, f"worker:1 on another node ended\n{output}", "worker:1", exit_code, signal)
    assert recognise(failure, "worker") == recognise(elsewhere, "worker")
