"""How a Python process of a job ends after an uncaught exception."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tony_provider.runtime.sdk

SDK = Path(tony_provider.runtime.sdk.__file__).parent
LINE = "tony: ended 10 s after the exception above, because exit handlers were still running\n"


def start(program: str) -> subprocess.Popen[str]:
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SDK)}
    return subprocess.Popen(
        [sys.executable, "-c", program], env=environ, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Its exit code and what it has written to stderr."""
    with process:
        try:
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    return process.returncode, errors


def test_exit_handlers_do_not_keep_a_failed_process_for_ever() -> None:
    code, errors = ended(start("import atexit, time; atexit.register(time.sleep, 1000); raise ValueError('bad')"))
    assert code == 1
    assert errors.endswith(f"ValueError: bad\n{LINE}")


def test_threads_and_short_exit_handlers_do_their_work() -> None:
    """A checkpoint that is written meanwhile may take long."""
    program = """
import atexit, sys, threading, time
def save():
    time.sleep(11)
    print("saved", file=sys.stderr)
atexit.register(lambda: print("bye", file=sys.stderr))
threading.Thread(target=save).start()
raise ValueError("bad")
"""
    code, errors = ended(start(program))
    assert code == 1
    assert errors.endswith("ValueError: bad\nsaved\nbye\n")


@pytest.mark.parametrize(("end", "code"), [("", 0), ("raise SystemExit(3)", 3)])
def test_exit_handlers_of_other_processes_take_the_time_they_need(end: str, code: int) -> None:
    program = f"import atexit, time, sys; atexit.register(print, 'bye', file=sys.stderr); {end or 'pass'}"
    assert ended(start(program)) == (code, "bye\n")


def test_a_program_s_own_hook_is_called() -> None:
    program = "import sys; sys.excepthook = lambda *_: print('mine', file=sys.stderr); raise ValueError"
    assert ended(start(program)) == (1, "mine\n")
