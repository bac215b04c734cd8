"""What is in a container's virtual environment, run for real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tony_provider.runtime.executor.user_environment import NodePython, VirtualEnvironment

PYTHON = NodePython(Path(os.path.realpath(sys.executable)), sys.version_info[:2], [])
ENTRY_POINTS = """
[console_scripts]
greet = hello:main
nested = hello:Deep.down
with-extra = hello:main [colour]
../outside = hello:main
no entry
[gui_scripts]
window = hello:main
"""
HELLO = """
import sys
def main():
    print("greetings", *sys.argv[1:])
    return 3
class Deep:
    @staticmethod
    def down():
        print("down")
"""


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    found = tmp_path / "it's here" / "packages"
    for name, text in {
        "hello.py": HELLO,
        "hello-1.dist-info/entry_points.txt": ENTRY_POINTS.replace("no entry\n", ""),
        "broken-1.dist-info/entry_points.txt": "no section\n",
        "bin/report": "#!/usr/bin/env python3\nimport hello, sys; print(hello.__file__, sys.argv[1:])\n",
        "bin/plain": '#!/bin/sh\necho plain "$@"\n',
        "bin/greet": "#!/bin/sh\necho not this one\n",
        "more.pth": "elsewhere\n",
        "elsewhere/found.py": "",
        "share/words.txt": "shared\n",
    }.items():
        (found / name).parent.mkdir(parents=True, exist_ok=True)
        (found / name).write_text(text)
    for script in (found / "bin").iterdir():
        script.chmod(0o755)
    return found


@pytest.fixture
def made(packages: Path, tmp_path: Path) -> VirtualEnvironment:
    # A path that no first line of a script has room for.
    environment = VirtualEnvironment(tmp_path / ("a deep container " * 10) / "it's")
    assert not environment.is_there
    environment.make(PYTHON, [packages])
    assert environment.is_there
    return environment


def run(made: VirtualEnvironment, *command: str, code: int = 0) -> str:
    environ = {"PATH": f"{made.bin}:/usr/bin:/bin"}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout


def test_commands_of_packages(made: VirtualEnvironment, packages: Path) -> None:
    assert run(made, "greet", "a b", code=3) == "greetings a b\n"
    assert run(made, "nested") == "down\n"
    assert run(made, "with-extra", code=3) == "greetings\n"
    assert run(made, "report", "x y") == f"{packages}/hello.py ['x y']\n"
    assert run(made, "plain", "x y") == "plain x y\n"
    own = {"python", "python3", PYTHON.name}
    assert {path.name for path in made.bin.iterdir()} - own == {"greet", "nested", "with-extra", "report", "plain"}


def test_its_python_is_one_of_its_own(made: VirtualEnvironment, packages: Path) -> None:
    look = "import json, sys, found; print(json.dumps([sys.prefix, sys.base_prefix, sys.executable]))"
    for python in ("python", "python3", PYTHON.name):
        prefix, base, executable = json.loads(run(made, python, "-I", "-c", look))
        assert (prefix, base) == (str(made.directory), sys.base_prefix)
        assert executable == str(made.bin / python)
    assert (made.directory / "share" / "words.txt").read_text() == "shared\n"


def test_own_packages_come_before_those_beneath(packages: Path, tmp_path: Path) -> None:
    below = tmp_path / "beneath"
    (below / "bin").mkdir(parents=True)
    (below / "bin" / "theirs").touch(0o755)
    (below / "hello.py").write_text("")
    (below / "only.py").write_text("")
    environment = VirtualEnvironment(tmp_path / "environment")
    environment.make(PYTHON, [packages], [below])
    said = run(environment, "python", "-c", "import hello, only; print(hello.__file__, only.__file__)")
    assert said == f"{packages}/hello.py {below}/only.py\n"
    assert not (environment.bin / "theirs").exists()
