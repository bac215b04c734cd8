"""A user process that hangs says where, before it is stopped."""

from __future__ import annotations

import sys
import venv
from pathlib import Path

from tests.runtime.executor.conftest import Launch, Running
from tests.runtime.executor.containers import SECRET

_HANG = """
import os, pathlib, signal, threading, time

def wait_for_ever():
    pathlib.Path(os.environ.get("MARK", "hangs")).touch()
    time.sleep(1000)

def help_out():
    time.sleep(1000)

signal.signal(signal.SIGTERM, signal.SIG_IGN)
threading.Thread(target=help_out, daemon=True).start()
wait_for_ever()
"""


async def stopped(launch: Launch, command: str, program: str = _HANG, **container: object) -> Running:
    """A process that hung, and was stopped with its stacks."""
    running = await launch(command, **container)
    (running.container.directory / "hang.py").write_text(program)
    await running.begin()
    await running.until_there("hangs")
    running.master.stop(1, grace=0.1, stacks=True)
    assert (await running.master.first("exited")).stopped
    return running


def log(running: Running) -> str:
    return (running.container.log_dir / "task.err").read_text()


async def test_python_shows_the_stacks_of_all_its_threads(launch: Launch) -> None:
    running = await stopped(launch, f"{sys.executable} hang.py")
    for function in ("wait_for_ever", "help_out"):
        assert f"in {function}" in log(running)
    assert "hang.py" in log(running)
    assert "[tony] process " in log(running)
    assert await running.end() == 0
    assert "in wait_for_ever" in running.log


async def test_the_master_learns_where_each_process_hangs(launch: Launch) -> None:
    secret = f"{sys.executable} hang.py {SECRET}"
    child = f"MARK=child-hangs {sys.executable} hang.py"
    running = await stopped(launch, f"{child} & until [ -e child-hangs ]; do sleep 0.05; done; exec {secret}")
    told = await running.master.first("stacks")
    assert told.start == 1
    first, second = told.processes  # the command itself comes before its child
    assert SECRET not in first.command
    for process in (first, second):
        assert "hang.py" in process.command
        assert list(process.frames) == [
            'File "hang.py", line 6 in wait_for_ever',
            'File "hang.py", line 13 in <module>',
        ]
    assert await running.end() == 0


async def test_the_master_learns_of_processes_whose_errors_go_elsewhere_too(launch: Launch) -> None:
    running = await stopped(launch, f"exec {sys.executable} hang.py 2>errors")
    [process] = (await running.master.first("stacks")).processes
    assert list(process.frames) == []
    assert await running.end() == 0


async def test_other_programs_are_named_and_not_harmed(launch: Launch) -> None:
    running = await stopped(launch, "trap 'echo saved >&2; exit' TERM; touch hangs; sleep 600 & wait")
    assert "saved" in log(running)
    assert ": /bin/sh -c" in log(running) or ": sh" in log(running)


async def test_a_python_without_the_hook_is_not_harmed(launch: Launch) -> None:
    program = _HANG.replace("signal.SIG_IGN", "lambda *_: (print('saved'), exit())")
    running = await stopped(launch, f"{sys.executable} -I hang.py", program)
    assert (running.container.log_dir / "task.out").read_text() == "saved\n"
    assert "in wait_for_ever" not in log(running)


async def test_an_environments_own_sitecustomize_runs_as_ever(launch: Launch, tmp_path: Path) -> None:
    venv.create(tmp_path / "env", symlinks=True)
    [packages] = (tmp_path / "env" / "lib").glob("python3.*/site-packages")
    (packages / "sitecustomize.py").write_text("import builtins; builtins.customized = __file__")
    look = "import faulthandler, sitecustomize; assert sitecustomize.__file__ == customized; print(customized)"
    running = await launch(f'{tmp_path}/env/bin/python -c "{look}"')
    await running.begin()
    exited = await running.master.first("exited")
    assert exited.exit_code == 0, exited.output_tail
    assert (running.container.log_dir / "task.out").read_text() == f"{packages}/sitecustomize.py\n"
