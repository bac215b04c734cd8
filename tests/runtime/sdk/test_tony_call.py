"""The call of a decorated function in a task, as a process of its own: as in a container, also with an old Python."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.pythons import find_python
from tony_provider.runtime.common import contract
from tony_provider.runtime.sdk import tony_call

Call = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def call(tmp_path: Path) -> Call:
    """``call(source, *args, rank="0")`` runs the ``train`` of the source; what it returns is in ``result``."""
    shutil.copy(tony_call.__file__, tmp_path)

    def call(source: str, *args: Any, rank: str | None = "0", python: Path | str = sys.executable) -> Any:
        (tmp_path / tony_call.FUNCTION_FILE).write_text(f"from __future__ import annotations\n{source}\n")
        described = {"function": "train", "args": args, "kwargs": {}}
        (tmp_path / tony_call.ARGUMENTS_FILE).write_text(json.dumps(described))
        environ = {**os.environ, contract.ENV_RESULT_FILE: str(tmp_path / "result")}
        environ.update({contract.ENV_RANK: rank} if rank is not None else {})
        command = tony_call.COMMAND.replace("python", str(python))
        return subprocess.run(
            command, shell=True, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=60
        )

    return call


def result(folder: Path) -> Any:
    return json.loads((folder / "result").read_text())


def test_it_knows_the_limit() -> None:
    assert tony_call.MAX_RESULT == contract.MAX_RESULT


@pytest.mark.parametrize("version", ["this", "oldest"])
def test_what_it_returns_is_json(call: Call, tmp_path: Path, version: str) -> None:
    python = Path(sys.executable) if version == "this" else find_python()
    if python is None:
        pytest.skip("there is no other Python here")
    source = "def train(a, b: list[int] | None):\n    print('hi')\n    return {'a': (a, b), 'é': None}"
    done = call(source, 1, [2.5], python=python)
    assert (done.returncode, done.stdout, done.stderr) == (0, "hi\n", "")
    assert result(tmp_path) == {"a": [1, [2.5]], "é": None}


@pytest.mark.parametrize("rank", ["1", None])
def test_only_the_leader_returns(call: Call, tmp_path: Path, rank: str | None) -> None:
    assert call("def train(): return object()", rank=rank).returncode == 0
    assert not (tmp_path / "result").exists()


def test_a_traceback_shows_the_function_and_nothing_else(call: Call, tmp_path: Path) -> None:
    source = "def train(rate):\n    def inner():\n        raise RuntimeError(f'rate {rate}')\n    inner()"
    done = call(source, 0.5)
    assert done.returncode == 1
    lines = [line.strip() for line in done.stderr.splitlines() if set(line.strip()) - set("^~")]
    file = f'File "{tmp_path}/tony_function.py"'
    assert lines == [
        "Traceback (most recent call last):",
        f"{file}, line 5, in train",
        "inner()",
        f"{file}, line 4, in inner",
        "raise RuntimeError(f'rate {rate}')",
        "RuntimeError: rate 0.5",
    ]


def test_a_syntax_that_this_python_does_not_know_is_shown(call: Call) -> None:
    done = call("def train(:\n    pass")
    assert done.returncode == 1
    assert "def train(:" in done.stderr
    assert "importlib" not in done.stderr


def test_exit_codes_are_the_functions(call: Call) -> None:
    assert call("def train():\n    import sys\n    sys.exit(7)").returncode == 7


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        ("{'a': [1, {2}]}", "train() cannot return this: returned['a'][1] is of type set, which JSON does not support"),
        ("{1: 2}", "train() cannot return this: returned has the key 1, of type int"),
        ("'x' * (1 << 20)", "train() cannot return this: as JSON it has 1048578 bytes, and the limit is 1048576"),
        ("(lambda a: a.append(a) or a)([])", "train() cannot return this: returned is nested too deeply, 100 levels"),
        ("['caf\\udce9']", "train() cannot return this: returned[0] contains text that UTF-8 cannot encode: '"),
        ("{'\\ud800': 1}", "train() cannot return this: a key of returned contains text that UTF-8 cannot encode"),
        ("10**5000", "train() cannot return this: Exceeds the limit"),
    ],
)
def test_what_cannot_be_returned_is_said(call: Call, tmp_path: Path, returned: str, words: str) -> None:
    done = call(f"def train(): return {returned}")
    assert done.returncode == tony_call.REFUSED
    assert words in done.stderr
    assert not (tmp_path / "result").exists()


def test_processes_of_its_own_find_the_function(call: Call, tmp_path: Path) -> None:
    source = """
def train(n):
    import multiprocessing
    if not n:
        return "below"
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.map(train, [0])
"""
    done = call(source, 1)
    assert done.returncode == 0, done.stderr
    assert result(tmp_path) == ["below"]
