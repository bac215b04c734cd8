"""What tasks print, in the log of Airflow's task: live and at the end, of real jobs on this machine."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.operators.trainings import Training
from tony_provider.exceptions import TonySpecError
from tony_provider.operators.tony import TonyTrainOperator
from tony_provider.watching.task_output import BURST_LINES, MAX_LINE_LENGTH


def lines_of(log: str, task: str = "worker:0") -> list[str]:
    return re.findall(rf"{re.escape(task)} \| (.*)", log)


def spec(training: Training, command: str, instances: int = 1, **more: Any) -> dict[str, Any]:
    tasks = {"worker": {"memory": "256MiB", "command": command, "instances": instances}}
    return {**training.spec(), **more, "tasks": tasks}


def until_gone(path: Path) -> str:
    """Wait for what the test does, which has seen what was printed before."""
    return f"while test -e {path}; do sleep 0.05; done"


@pytest.fixture
def seen(training: Training, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that goes away as soon as "ready" of a task's output is logged, while its job runs."""
    gate = training.folder / "gate"
    gate.touch()
    from tony_provider.watching.task_output import OutputDisplay

    lines = OutputDisplay.lines

    def watched(self: OutputDisplay) -> list[str]:
        found = lines(self)
        if any("ready" in line for line in found):
            gate.unlink(missing_ok=True)
        return found

    monkeypatch.setattr(OutputDisplay, "lines", watched)
    return gate


@pytest.mark.parametrize("deferrable", [True, pytest.param(False, marks=pytest.mark.long)])
def test_what_the_leader_prints_is_in_the_log_once(
    training: Training, seen: Path, capfd: pytest.CaptureFixture[str], deferrable: bool
) -> None:
    """Before the end, where the job would not end otherwise, and its rest; without its secrets, and nobody else's."""
    secret = os.urandom(8).hex()
    command = (
        f"echo 100 % $KEY ready; {until_gone(seen)}; printf 'bar 1\\rbar 2\\r'; sleep 1; echo; echo $KEY at the end"
    )
    wanted = spec(training, command, instances=2, secrets=["KEY"])
    training.again(wanted, secrets={"KEY": secret}, deferrable=deferrable)
    triggers = [line for line in capfd.readouterr().out.splitlines() if "[tony_provider.triggers" in line]
    log = "\n".join([*triggers, training.log])
    shown = [line for line in lines_of(log) if not line.startswith("[tony]")]
    shown = [re.sub(r" +\[tony_provider.*", "", line) for line in shown]
    shown = [re.sub(r"\*{3,}", "***", line) for line in shown]  # in a log that was kept they are as long as the secret
    assert [line for line in shown if line != "bar 2"] == ["100 % *** ready", "*** at the end"]
    assert shown.count("bar 2") <= 1
    assert lines_of(log, "worker:1") == []
    assert secret not in log


@pytest.mark.long
def test_a_restart_in_the_middle_is_followed_into_the_next_container(training: Training, tmp_path: Path) -> None:
    once = tmp_path / "once"
    fails = f"if ! test -e {once}; then touch {once}; for i in 1 2 3; do echo first $i; sleep 1; done; exit 4; fi"
    command = f"{fails}; for i in 1 2 3; do echo second $i; sleep 1; done"
    restart = {"budget": 1, "backoff": "1s"}
    training.again(spec(training, command, restart=restart))
    shown = [line for line in lines_of(training.log) if line.startswith(("first", "second"))]
    assert shown == [f"{word} {number}" for word in ("first", "second") for number in (1, 2, 3)]


@pytest.mark.long
def test_who_prints_without_end_fills_no_log(training: Training) -> None:
    """A hundred thousand lines a second, a line of a megabyte, and rubbish."""
    program = "import sys, time, os\nend = time.time() + 8\nn = 0\n"
    program += "print('x' * 10**6)\nsys.stdout.flush()\nsys.stdout.buffer.write(os.urandom(100_000) + b'\\n')\n"
    program += "while time.time() < end:\n    print('\\n'.join(f'line {n + i}' for i in range(10_000)))\n"
    program += "    n += 10_000\n    time.sleep(0.1)\nprint('the very last')\n"
    script = training.folder / "loud.py"
    script.write_text(program)
    training.again(spec(training, f"python3 {script}"))
    shown = lines_of(training.log)
    assert shown[-1] == "the very last"
    assert len(shown) < 4 * BURST_LINES
    assert max(map(len, shown)) < MAX_LINE_LENGTH + 20
    numbers = [int(line.split()[1]) for line in shown if line.startswith("line ")]
    assert numbers == sorted(set(numbers))
    assert any("left out" in line for line in shown)


def test_of_a_failure_the_end_is_told_once(training: Training, seen: Path) -> None:
    command = f"echo ready; {until_gone(seen)}; echo the cause >&2; exit 3"
    assert training.again(spec(training, command, restart={"budget": 0})).state == "failed"
    shown = [line for line in lines_of(training.log) if not line.startswith("[tony]")]
    _, _, end = training.log.partition("Last lines of the output of worker:0:\n")
    if end:
        assert shown == ["ready"]
        assert end.startswith("the cause\n")
    else:  # it was quick
        assert shown == ["ready", "the cause"]
        assert "The end of the output of worker:0 is above" in training.log


@pytest.mark.long
def test_nobodys_output_is_shown_where_none_is_wanted(training: Training) -> None:
    training.again(spec(training, "echo hello; sleep 3"), show_output=False)
    assert lines_of(training.log) == []


@pytest.mark.long
def test_tasks_are_shown_by_their_names(training: Training) -> None:
    training.again(
        spec(training, "echo I am $TONY_TASK_INDEX; sleep 3", instances=3), show_output=["worker:2", "worker:1"]
    )
    assert lines_of(training.log, "worker:0") == []
    for index in (1, 2):
        assert len([line for line in lines_of(training.log, f"worker:{index}") if "I am" in line]) == 1


def test_a_task_that_the_job_has_not_is_said_before_anything_starts(training: Training) -> None:
    done = training.again(spec(training, "true", instances=2), show_output=["worker:1", "worker:2"])
    assert isinstance(done.errors["train"], TonySpecError)
    assert str(done.errors["train"]) == (
        "show_output: the job has no task worker:2; its tasks are worker:0 to worker:1"
    )
    assert training.applications == []


@pytest.mark.parametrize("wanted", ["worker:0", True, None, [], ["worker"], [3], [f"worker:{n}" for n in range(9)]])
def test_what_cannot_be_shown_is_said_when_the_dag_is_read(wanted: Any) -> None:
    with pytest.raises(ValueError, match="show_output"):
        TonyTrainOperator(task_id="train", job={}, show_output=wanted)
