"""A job that fails says which task, where, why, and what that task said last; and it ends soon."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from tests.jobs.left import assert_nothing_left
from tests.jobs.places import LocalPlace, Place, YarnPlace
from tony_provider.runtime.protocol.status import FailureKind, JobState, TaskState
from tony_provider.runtime.storage.base import write_atomically

TALKER = """
test $TONY_TASK_INDEX = 1 || exec sleep 1000
for number in $(seq 100); do echo "line $number of the traceback" >&2; done
exit 3
"""


STALLS = """
import os, time

def all_reduce():
    time.sleep(1000)

def load():
    time.sleep(1000)

load() if os.environ["TONY_RANK"] == "1" else all_reduce()
"""


def test_the_diagnostics_of_a_stall_show_where_the_guilty_rank_hangs(local: LocalPlace, tmp_path: Path) -> None:
    program = tmp_path / "stalls.py"
    program.write_text(STALLS)
    worker = {"instances": 3, "memory": "128MiB", "command": "exec python3 stalls.py"}
    timeouts = {"stall": "1s", "grace": "5s"}
    spec = {"framework": "generic", "files": [str(program)], "restart": {"budget": 0}, "timeouts": timeouts}
    job = local.run({**spec, "tasks": {"worker": worker}})
    message = job.failed()
    first, *stacks = message.splitlines()
    assert re.search(r'; worker:1 at File ".*stalls.py", line 8 in load, unlike 2 others$', first), message
    assert stacks[0].startswith("worker:1 (process ")
    assert stacks[0].endswith(" stalls.py):")
    assert [line.rpartition(" in ")[2] for line in stacks if line.startswith("  ")] == [
        *("load", "<module>"),
        *("all_reduce", "<module>"),
    ], message
    failure = job.status().failure
    assert failure is not None
    assert failure.message == message
    assert failure.task == "worker:1"  # whose log the task log then shows


def test_files_that_explain_a_failure_are_kept(local: LocalPlace) -> None:
    command = "echo dump > $TONY_DEBUG_DIR/trace; exit 3"
    job = local.run({"restart": {"budget": 0}, "tasks": {"worker": {"memory": "128MiB", "command": command}}})
    job.failed()
    assert job.read("logs/worker-0.log.debug-1/trace") == "dump\n"
    assert "kept 1 file of TONY_DEBUG_DIR in" in job.log("worker:0")


def test_files_of_a_process_that_was_stopped_are_kept_too(local: LocalPlace, tmp_path: Path) -> None:
    command = """
        echo dump > $TONY_DEBUG_DIR/trace
        touch "$PLACE/running-$TONY_TASK_INDEX"
        until test -e "$PLACE/running-$((1 - TONY_TASK_INDEX))"; do sleep 0.1; done
        test $TONY_TASK_INDEX = 0 && exit 3
        exec sleep 600
    """
    worker = {"instances": 2, "memory": "128MiB", "command": command, "env": {"PLACE": str(tmp_path)}}
    job = local.run({"restart": {"budget": 0}, "tasks": {"worker": worker}})
    job.failed()
    assert job.read("logs/worker-1.log.debug-1/trace") == "dump\n"


def test_the_diagnostics_name_the_task_and_end_with_its_last_words(place: Place) -> None:
    job = place.run(
        {
            "timeouts": {"grace": "5s"},
            "restart": {"budget": 0},
            "tasks": {"worker": {"instances": 2, "memory": "128MiB", "command": TALKER}},
        }
    )

    diagnostics = job.failed()
    failed, other = job.task("worker:1"), job.task("worker:0")
    assert diagnostics.startswith(f"worker:1 on {failed.node} ended with exit code 3\n")
    assert diagnostics.splitlines()[-1] == "line 100 of the traceback"
    assert "line 1 of" not in diagnostics
    assert (failed.state, other.state) == (TaskState.FAILED, TaskState.STOPPED)

    status = job.status()
    assert status.state is JobState.FAILED
    assert status.failure is not None
    assert (status.failure.kind, status.failure.task) == (FailureKind.USER, "worker:1")
    assert (status.failure.exit_code, status.failure.signal) == (3, None)
    assert status.failure.message == diagnostics
    # All that it said is kept, not only the end.
    assert "line 1 of the traceback" in job.log("worker:1")
    assert_nothing_left(place, job)


@pytest.mark.parametrize(
    ("command", "kind", "words"),
    [
        pytest.param(
            "echo before; kill -SEGV $$", FailureKind.USER, ["worker:0", "was killed by SIGSEGV"], id="a signal"
        ),
        pytest.param(
            "no-such-program --fast",
            FailureKind.LAUNCH,
            ["worker:0", "no-such-program --fast", "not found", "PATH"],
            id="a command that does not exist",
        ),
        pytest.param(
            "python train.py",
            FailureKind.USER,
            ["worker:0", "exit code 2", "can't open file", "train.py"],
            id="a script that was not given",
        ),
        pytest.param("/etc", FailureKind.LAUNCH, ["worker:0", "/etc", "cannot be executed"], id="no program"),
    ],
)
def test_the_diagnostics_say_why(local: Place, command: str, kind: FailureKind, words: list[str]) -> None:
    job = local.run({"restart": {"budget": 0}, "tasks": {"worker": {"memory": "128MiB", "command": command}}})

    diagnostics = job.failed()
    assert [word for word in words if word not in diagnostics] == [], diagnostics
    failure = job.status().failure
    assert failure is not None
    assert failure.kind is kind
    assert_nothing_left(local, job)


def test_a_failure_begins_with_its_cause_and_a_missing_module_is_final(local: Place) -> None:
    command = "exec python3 -c 'import nothing_at_all'"
    job = local.run({"restart": {"budget": 3}, "tasks": {"worker": {"memory": "128MiB", "command": command}}})

    first_line = job.failed().partition("\n")[0]
    assert "nothing_at_all" not in first_line, "everyone may read it"
    why = "the cluster's only node lacks a Python module or script, so a retry would fail the same way"
    assert first_line.endswith(f"ended with exit code 1; {why}")
    status = job.status()
    assert status.failure is not None
    assert status.failure.cause == "ModuleNotFoundError: No module named 'nothing_at_all'"
    assert (status.failure.permanent, status.restarts) == (True, 0)


def test_a_command_that_does_not_exist_on_the_nodes(yarn: YarnPlace) -> None:
    job = yarn.run(
        {
            "restart": {"budget": 0},
            "tasks": {"worker": {"memory": "128MiB", "command": "no-such-program --fast; exit $?"}},
        }
    )

    diagnostics = job.failed()
    assert diagnostics.startswith(f"worker:0 on {job.task('worker:0').node} ended with exit code 127")
    assert "no-such-program" in diagnostics.splitlines()[-1]
    assert_nothing_left(yarn, job)


def test_a_task_that_takes_more_memory_than_its_container_has(yarn: YarnPlace, tmp_path: Path) -> None:
    script = tmp_path / "greedy.py"
    script.write_text(
        textwrap.dedent(
            """
            import sys, time
            print("reading everything into memory", file=sys.stderr)
            data = b"x" * (400 << 20)
            time.sleep(1000)
            """
        )
    )
    job = yarn.run(
        {
            "files": [str(script)],
            "restart": {"budget": 0},
            "tasks": {"worker": {"memory": "256MiB", "command": "python greedy.py"}},
        }
    )

    diagnostics = job.failed()
    assert f"worker:0 on {job.nodes('worker:0')[0]}" in diagnostics
    assert "used more memory than it was given" in diagnostics
    assert "raise the task type's memory" in diagnostics
    failure = job.status().failure
    assert failure is not None
    assert failure.kind is FailureKind.OUT_OF_MEMORY
    # Though its executor was killed with it.
    assert diagnostics.endswith("reading everything into memory")
    assert "reading everything into memory" in job.log("worker:0")
    assert_nothing_left(yarn, job)


def test_a_file_that_vanishes_before_the_nodes_have_fetched_it(yarn: YarnPlace) -> None:
    hook = yarn.hook()
    stored = f"{hook.layout.root}/elsewhere/vanishing.txt"
    write_atomically(hook.storage(), stored, b"here for now")
    spec = {"files": [stored], "tasks": {"worker": {"memory": "128MiB", "command": "cat vanishing.txt"}}}

    # Everything was checked by then, and nothing has been started.
    job = yarn.submit(spec, hook=hook, before_submit=lambda _: hook.storage().remove(stored))

    diagnostics = job.failed()
    assert f"worker:0 on {job.task('worker:0').node} could not be prepared on its node" in diagnostics
    assert "File does not exist" in diagnostics
    assert "elsewhere/vanishing.txt" in diagnostics
    assert "\tat " not in diagnostics  # of Java's stack
    assert_nothing_left(yarn, job)


SAVES_ITS_ARGUMENTS = """
date +%N > $TONY_CHECKPOINT_DIR/args-$(date +%s).pkl
sleep 5  # it is stored meanwhile
echo "NameError: name 'lodel' is not defined" >&2
exit 1
"""


def test_arguments_that_each_start_saves_do_not_keep_a_broken_program_alive(local: LocalPlace) -> None:
    job = local.run(
        {
            "framework": "standalone",
            "restart": {"backoff": "0s"},
            "tasks": {"worker": {"memory": "128MiB", "command": SAVES_ITS_ARGUMENTS}},
        }
    )
    assert "the same failure 2 times, without progress in between (restart.same_failure)" in job.failed()
    assert [event for event in job.events() if event["event"] == "checkpoint"], "what it saves is stored all the same"
    assert job.status().restarts == 1
