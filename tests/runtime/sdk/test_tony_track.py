from __future__ import annotations

import itertools
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runtime.sdk.conftest import environment, reports
from tony_provider.runtime.common import contract
from tony_provider.runtime.sdk import tony_sdk
from tony_provider.runtime.sdk.tony_progress import LoopProgress

SDK = Path(tony_sdk.__file__).parent
Reports = Callable[[], list[dict[str, Any]]]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_loop_reports_its_steps(in_a_job: Reports) -> None:
    steps = tony_sdk.track(range(900))
    for step in steps:
        steps.report(loss=1 / (step + 1))
    assert not steps.stopped
    last = in_a_job()[-1]
    assert (last["step"], last["total_steps"]) == (900, 900)
    assert last["loss"] == pytest.approx(1 / 900)
    assert 0 <= last["input_wait"] <= 1


def test_a_report_without_a_step_takes_that_of_the_loop(in_a_job: Reports) -> None:
    for step in tony_sdk.track(range(10, 13)):
        assert tony_sdk.report(loss=step / 2)
    lines = [(line["step"], line["total_steps"], line["loss"]) for line in in_a_job() if "loss" in line]
    assert lines == [(10, 13, 5.0), (11, 13, 5.5), (12, 13, 6.0)]
    assert tony_sdk.report(loss=0.5)
    assert in_a_job()[-1] == {"loss": 0.5}


def test_of_loops_within_each_other_the_innermost_counts(in_a_job: Reports) -> None:
    for _ in tony_sdk.track(range(2)):
        for _ in tony_sdk.track("abc", total=6):
            break
        tony_sdk.report(loss=1.0)
    assert [line["step"] for line in in_a_job() if "loss" in line] == [0, 1]


@given(first=st.integers(0, 30), length=st.integers(0, 30), done=st.integers(0, 90))
@pytest.mark.parametrize("kind", [lambda items: items, list, iter])
def test_it_goes_on_after_the_steps_that_were_done(kind: Any, first: int, length: int, done: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SDK)
        patch.setenv(contract.ENV_RESUME_STEP, str(done))
        items = range(first, first + length)
        steps = tony_sdk.track(kind(items), start=first, resume=True)
        assert list(steps) == [item for item in items if item >= done]
        assert steps.step == first + length


def test_epochs_count_on(in_a_job: Reports, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(contract.ENV_RESUME_STEP, "13")
    batches = tony_sdk.track("abcdefghij", total=30, resume=True)
    assert ["".join(batches) for _ in range(3)] == ["", "defghij", "abcdefghij"]
    assert (in_a_job()[-1]["step"], in_a_job()[-1]["total_steps"]) == (30, 30)


def test_where_a_range_begins_it_counts_from(in_a_job: Reports) -> None:
    for _ in tony_sdk.track(range(120, 900)):
        pass
    assert (in_a_job()[-1]["step"], in_a_job()[-1]["total_steps"]) == (900, 900)


@pytest.mark.parametrize(
    ("items", "resume_step", "resume", "steps"),
    [
        (range(1, 201), 0, False, 200),
        (range(1, 201), 0, True, 200),
        (range(1, 201), 120, True, 200),
        (range(121, 201), 120, False, 200),
        (range(120, 200), 120, False, 200),
        (range(1, 200), 1, False, 200),
    ],
)
def test_whether_a_range_counts_from_0_or_from_1(
    in_a_job: Reports, monkeypatch: pytest.MonkeyPatch, items: range, resume_step: int, resume: bool, steps: int
) -> None:
    monkeypatch.setenv(contract.ENV_RESUME_STEP, str(resume_step))
    done = list(tony_sdk.track(items, resume=resume))
    assert done == list(items)[resume_step * resume :]
    assert (in_a_job()[-1]["step"], in_a_job()[-1]["total_steps"]) == (steps, steps)


def test_what_has_no_length_has_no_total(in_a_job: Reports) -> None:
    for step in tony_sdk.track(itertools.count()):
        if step == 5:
            break
    assert in_a_job()[-1]["step"] == 5
    assert "total_steps" not in in_a_job()[-1]


def test_an_error_in_the_loop_leaves_what_was_done(in_a_job: Reports) -> None:
    def train() -> None:
        for step in tony_sdk.track(range(10)):
            if step == 7:
                raise RuntimeError("as programs do")

    with pytest.raises(RuntimeError):
        train()
    assert in_a_job()[-1]["step"] == 7


def test_it_reports_about_once_a_second_and_the_share_of_waiting(in_a_job: Reports) -> None:
    clock = Clock()
    progress = LoopProgress(100, clock)
    for step in range(100):
        progress.waiting()
        clock.now += 0.0625
        progress.working()
        clock.now += 0.1875
        progress.at(step + 1, loss=step, step=7, self=8)
    told = in_a_job()
    assert [report["step"] for report in told] == list(range(4, 101, 4))
    assert {report["input_wait"] for report in told} == {0.25}
    progress.waiting()
    clock.now += 100.0
    progress.worked()
    progress.working()
    progress.at(101)
    assert in_a_job()[-1]["input_wait"] < 0.05


def test_outside_a_job_it_is_the_same_loop(in_a_job: Reports, monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGTERM)
    for name in (contract.ENV_TASK_TYPE, contract.ENV_METRICS_FILE):
        monkeypatch.delenv(name)
    assert list(tony_sdk.track(range(3), resume=True, stop=True)) == [0, 1, 2]
    assert not tony_sdk.stopping()
    assert signal.getsignal(signal.SIGTERM) is before


STOPPED = """
import multiprocessing, os, signal, sys, time
if "own" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: print("the program's own handler"))
import tony_sdk
fork = multiprocessing.get_context("fork")
steps = tony_sdk.track(range(10), stop=True)
for step in steps:
    if step == 3 and "own" in sys.argv:
        os.kill(os.getpid(), signal.SIGTERM)
    elif step == 3:
        runs = fork.Event()
        child = fork.Process(target=lambda: (runs.set(), time.sleep(600)))
        child.start()
        runs.wait()  # Python forgets a signal that comes while it forks
        child.terminate()
        child.join()
        os.kill(os.getpid(), signal.SIGTERM)
    print(step, tony_sdk.stopping(), flush=True)
print(steps.step, steps.stopped, flush=True)
"""


def run(program: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {"PYTHONPATH": str(SDK), **environment(folder)}
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], env=env, capture_output=True, text=True, timeout=60, check=False
    )


def test_it_ends_after_the_item_in_which_the_job_says_stop(tmp_path: Path) -> None:
    done = run(STOPPED, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["0 False", "1 False", "2 False", "3 True", "4 True"]
    assert reports(tmp_path)[-1]["step"] == 4


def test_the_programs_own_handler_is_called_too(tmp_path: Path) -> None:
    done = run(STOPPED, tmp_path, "own")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[3:] == ["the program's own handler", "3 True", "4 True"]


def test_the_second_signal_ends_the_process(tmp_path: Path) -> None:
    program = "import os, signal, tony_sdk\ntony_sdk.stopping()\n" + "os.kill(os.getpid(), signal.SIGTERM)\n" * 2
    assert run(program, tmp_path).returncode == -signal.SIGTERM


FORKED = """
import os, signal, tony_sdk
if {own}:
    signal.signal(signal.SIGTERM, lambda *_: print("the program's own handler", flush=True))
tony_sdk.stopping()
child = os.fork()
if child == 0:
    tony_sdk.stopping()
    os.kill(os.getpid(), signal.SIGTERM)
    print(tony_sdk.stopping(), flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    os._exit(0)
print(os.waitpid(child, 0)[1], flush=True)
"""


def test_a_child_that_asks_is_told_as_its_parent_is(tmp_path: Path) -> None:
    done = run(FORKED.format(own=False), tmp_path)
    assert done.stdout.splitlines() == ["True", str(int(signal.SIGTERM))]
    own = "the program's own handler"
    assert run(FORKED.format(own=True), tmp_path).stdout.splitlines() == [own, "True", own, "0"]


def test_a_loop_does_not_report_each_item(in_a_job: Reports) -> None:
    def items() -> Iterator[int]:
        yield from range(100_000)

    assert sum(tony_sdk.track(items())) == sum(range(100_000))
    assert len(in_a_job()) < 100
