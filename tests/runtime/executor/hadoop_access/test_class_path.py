"""The class path, as a stand-in for the node's ``hadoop`` tells it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tony_provider.runtime.executor.hadoop_access import ClassPathError, hadoop_program, node_class_path


def program(home: Path, text: str) -> str:
    path = home / "bin" / "hadoop"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def test_where_it_is_looked_for(tmp_path: Path) -> None:
    on_path, at_home = program(tmp_path / "usr", ""), program(tmp_path / "home", "")
    environ = {"PATH": os.pathsep.join([os.defpath, str(tmp_path / "usr" / "bin")])}
    assert hadoop_program(environ) == on_path
    assert hadoop_program({**environ, "HADOOP_HOME": str(tmp_path / "home")}) == at_home
    assert hadoop_program({**environ, "HADOOP_COMMON_HOME": str(tmp_path / "nothing-there")}) == on_path
    assert hadoop_program({"PATH": str(tmp_path)}) is None


def test_what_it_says(tmp_path: Path) -> None:
    said = program(tmp_path, '#!/bin/sh\necho careful >&2\necho "$*,$HADOOP_CONF_DIR:/a.jar:/b.jar"\n')
    assert node_class_path(said, {"HADOOP_CONF_DIR": "/conf"}) == "classpath --glob,/conf:/a.jar:/b.jar"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("#!/bin/sh\necho JAVA_HOME is not set >&2; exit 1\n", "exit code 1: JAVA_HOME is not set"),
        ("#!/bin/sh\n", "exit code 0"),
        ("#!/no/such/shell\n", "cannot be run: No such file"),
    ],
)
def test_why_there_is_none(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(ClassPathError, match=what):
        node_class_path(program(tmp_path, text), {})
