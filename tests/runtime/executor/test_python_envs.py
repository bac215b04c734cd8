"""What a user process is run by, of each kind of environment that its container gets as files."""

from __future__ import annotations

import json
import shutil
import sys
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.environments import COMPILED, LOOK, PURE, pex, wheels
from tests.runtime.executor.conftest import Launch, Running
from tests.runtime.executor.containers import CONTAINER, job
from tests.waiting import until
from tony_provider.runtime.common.concurrency import Cancelled
from tony_provider.runtime.executor.user_environment import ProgramRunner, PythonEnvError, interpreter_path

COMMAND = "python look.py && cowsay -t moo"


def deliver(below: Path, *files: Path, names: tuple[str, ...] = ()) -> None:
    """Into a container's directory, as a node does."""
    place = below / CONTAINER / "python_env"
    place.mkdir(parents=True)
    for file, name in zip(files, names or [file.name for file in files], strict=True):
        (place / name).symlink_to(file)
    (below / CONTAINER / "look.py").write_text(LOOK)


async def seen(launch: Launch, python_env: str, command: str = COMMAND) -> tuple[Running, dict[str, Any]]:
    running = await launch(job(command, python_env=python_env))
    await running.begin()
    exited = await running.master.first("exited")
    output = (running.container.log_dir / "task.out").read_text()
    assert exited.exit_code == 0, (exited.error, output)
    assert "| moo |" in output
    line = next(line for line in output.splitlines() if line.startswith("seen "))
    return running, json.loads(line.removeprefix("seen "))


async def failed(launch: Launch, python_env: str) -> str:
    running = await launch(job("python look.py", python_env=python_env))
    await running.begin()
    exited = await running.master.first("exited")
    assert exited.exit_code != 0
    return str(exited.error)


async def test_wheels_are_laid_over_the_nodes_python(launch: Launch, tmp_path: Path) -> None:
    deliver(tmp_path, *wheels().values())
    running, found = await seen(launch, ",".join(each.name for each in wheels().values()))
    work = str(running.container.directory / "tony-work")
    assert found["cowsay"].startswith(work)
    assert found["child"] == found["cowsay"]
    assert found["prefix"].startswith(work)
    assert tuple(found["version"]) == sys.version_info[:2]
    assert "grpc" in found["ours"]  # which is the node's own here: the environment of these tests


async def test_a_pex_is_a_python_of_its_own(launch: Launch, tmp_path: Path) -> None:
    deliver(tmp_path, pex())
    running, found = await seen(launch, pex().name)
    assert found["cowsay"].startswith(str(running.container.directory / "tony-work" / "pex"))
    assert found["child"] == found["cowsay"]
    assert (found["ours"], found["pex"]) == ([], [])


@pytest.mark.parametrize(
    ("candidates", "path"),
    [
        ("", "/usr/local/bin:/bin"),
        ("/opt/py/bin/python3.12:/usr/bin/python3", "/opt/py/bin:/usr/bin:/usr/local/bin:/bin"),
        ("python3:python:/usr/bin/python3", "/usr/local/bin:/bin:/usr/bin"),  # an image's own, before those of nodes
        ("python3.12", "/usr/local/bin:/bin"),
    ],
)
def test_where_a_pex_looks_for_a_python(candidates: str, path: str) -> None:
    assert interpreter_path(candidates, "/usr/local/bin:/bin") == path


async def test_an_environment_is_made_once_for_all_starts(launch: Launch, tmp_path: Path) -> None:
    deliver(tmp_path, *wheels().values())
    command = 'stat -c "made %i" "$(dirname "$(dirname "$(command -v python)")")/pyvenv.cfg"'
    running = await launch(job(command, python_env="x.whl"))
    for generation in (1, 2):
        await running.begin(generation)
        await running.master.all_of("exited", generation)
    lines = (running.container.log_dir / "task.out").read_text().splitlines()
    made = [line for line in lines if line.startswith("made ")]
    assert len(made) == 2
    assert len(set(made)) == 1


async def test_wheels_for_another_python(launch: Launch, tmp_path: Path) -> None:
    compiled = wheels()[COMPILED]
    other = compiled.name.replace(f"cp3{sys.version_info.minor}", "cp37")
    deliver(tmp_path, compiled, names=(other,))
    said = await failed(launch, other)
    assert f"python_env {other} needs a Python that suits {other}, but this node (" in said
    assert f"({sys.version_info.major}.{sys.version_info.minor})" in said


async def test_what_is_no_wheel(launch: Launch, tmp_path: Path) -> None:
    file = tmp_path / wheels()[PURE].name
    file.write_text("not a zip")
    deliver(tmp_path, file)
    assert f"{file.name} cannot be used on this node: " in await failed(launch, file.name)


async def test_a_pex_that_finds_no_python(launch: Launch, tmp_path: Path) -> None:
    """It says by itself what it wants."""
    changed = tmp_path / "other.pex"
    shutil.copy(pex(), changed)
    with zipfile.ZipFile(pex()) as opened:
        info = json.loads(opened.read("PEX-INFO"))
    info["interpreter_constraints"] = ["==3.7.*"]
    with zipfile.ZipFile(changed, "a") as opened, pytest.warns(UserWarning, match="Duplicate name"):
        opened.writestr("PEX-INFO", json.dumps(info))
    deliver(tmp_path, changed)
    said = await failed(launch, changed.name)
    assert "the PEX other.pex cannot be used on this node" in said
    assert "3.7" in said


async def test_what_is_no_pex(launch: Launch, tmp_path: Path) -> None:
    (tmp_path / "no.pex").write_text("print('hello')\n")
    deliver(tmp_path, tmp_path / "no.pex")
    assert "no.pex is not a PEX" in await failed(launch, "no.pex")


async def test_packages_that_were_built_for_another_python(launch: Launch, tmp_path: Path) -> None:
    record = tmp_path / "tony-environment.json"
    record.write_text('{"python":"3.99","machine":"x86_64","packages":{},"built_by":"uv 1","built_ms":1}')
    deliver(tmp_path, record)
    said = await failed(launch, "hdfs:///envs/tony-env-1.tar.gz")
    assert "needs Python 3.99, but this node (" in said


def test_a_program_that_hangs_is_ended(tmp_path: Path) -> None:
    cancelled = threading.Event()
    runner = ProgramRunner({"PATH": "/usr/bin:/bin"}, cancelled)
    threading.Timer(0.2, cancelled.set).start()
    with pytest.raises(Cancelled, match="sh was cancelled"):
        runner.output(["sh", "-c", f"sleep 1000 & echo $! > {tmp_path}/pid; wait"], "a sleep")
    pid = int((tmp_path / "pid").read_text())
    until(lambda: not Path(f"/proc/{pid}").exists(), "what it has started has ended, too")


def test_what_a_program_says_before_it_fails() -> None:
    runner = ProgramRunner({"PATH": "/usr/bin:/bin"}, threading.Event())
    with pytest.raises(PythonEnvError, match="it cannot be used on this node: no room"):
        runner.output(["sh", "-c", "echo no room >&2; exit 3"], "it")
    assert runner.output(["sh", "-c", "echo $MORE"], "it", MORE="said") == "said\n"
