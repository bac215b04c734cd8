"""What is known of environments before anything is started, and what is refused for it."""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import tarfile
import zipfile
from pathlib import Path

import attrs
import pytest

from tests.environments import COMPILED, PURE, pex, wheels
from tony_provider.cluster.environments import inspection
from tony_provider.cluster.environments.inspection import (
    InspectedEnvironments,
    NodePythons,
    StoredFile,
    inspect_environments,
)
from tony_provider.cluster.environments.runtime_archive import worker_archive
from tony_provider.cluster.settings import FileRoots
from tony_provider.cluster.sources import SourceFinder
from tony_provider.runtime.common.codec import dump_json
from tony_provider.runtime.common.python_packages import EnvironmentRecord
from tony_provider.runtime.jobspec.container_content import EnvironmentKind
from tony_provider.runtime.parsing.parse import parse_job
from tony_provider.runtime.storage.local import LocalStorage

OWN = inspection.pythons_of_this_host()
ELSEWHERE = NodePythons(frozenset({(3, 7)}), frozenset({"ppc64le"}))
RECORD = EnvironmentRecord(
    python="3.12",
    machine="x86_64",
    packages={"numpy": "2.3.1"},
    built_by="uv 1",
    built_ms=1,
)
ARCHIVE = f"tony-env-cp312-{hashlib.sha256(b'packages').hexdigest()[:32]}.tar.gz"


def look(
    folder: Path, python_env: str | list[str], nodes: NodePythons = OWN, store: Path = Path("/no"), **more: object
) -> InspectedEnvironments:
    job = parse_job(
        {"framework": "standalone", "tasks": {"worker": {"command": "x"}}, "python_env": python_env, **more}
    )
    found = SourceFinder(LocalStorage(), f"file://{store}", [folder], FileRoots("c", [Path("/")])).find(job)
    return inspect_environments(job, found, LocalStorage(), nodes)


def built(store: Path, record: EnvironmentRecord = RECORD, content: bytes = b"packages") -> str:
    store.mkdir(exist_ok=True)
    (store / ARCHIVE).write_bytes(content)
    sha256 = hashlib.sha256(content).hexdigest()
    whole = attrs.evolve(record, archive=ARCHIVE, sha256=sha256, size=len(content))
    (store / "tony-environment.json").write_bytes(dump_json(whole))
    return f"file://{store}/{ARCHIVE}"


def test_wheels(tmp_path: Path) -> None:
    names = [str(each) for each in wheels().values()]
    found = look(tmp_path, names)
    assert found.problems == []
    content = found.contents["python_env"]
    assert content.packages == {PURE: "6.1", COMPILED: "3.0.4"}
    assert content.machines == [os.uname().machine]
    (problem,) = look(tmp_path, names, ELSEWHERE).problems  # the pure one suits everybody
    assert problem == (f"python_env: {wheels()[COMPILED].name} is not for the nodes, which have Python 3.7 on ppc64le")
    other = NodePythons(frozenset({(3, 7)}), OWN.machines)
    assert len(look(tmp_path, names, other).problems) == 1
    assert look(tmp_path, names, NodePythons()).problems == []


def test_wheels_that_are_none_or_twice(tmp_path: Path) -> None:
    for name in ("a-1-py3-none-any.whl", "A-2-py3-none-any.whl", "what.whl"):
        (tmp_path / name).touch()
    found = look(tmp_path, ["a-1-py3-none-any.whl", "A-2-py3-none-any.whl", "what.whl"])
    assert found.problems == [
        "python_env: what.whl is not a valid name of a wheel",
        "python_env: there are 2 wheels of a (1, 2); keep only one",
    ]


def test_wheels_that_no_one_python_suits(tmp_path: Path) -> None:
    for python in ("cp311", "cp312"):
        (tmp_path / f"for_{python}-1-{python}-{python}-linux_x86_64.whl").touch()
    names = [path.name for path in tmp_path.iterdir()]
    nodes = NodePythons(frozenset({(3, 11), (3, 12)}), frozenset({"x86_64"}))
    (problem,) = look(tmp_path, names, nodes).problems
    assert problem == ("python_env: no Python suits all of these wheels; the nodes have Python 3.11 or 3.12 on x86_64")


def test_a_pex(tmp_path: Path) -> None:
    found = look(tmp_path, str(pex()))
    assert found.problems == []
    content = found.contents["python_env"]
    assert {name.lower(): version for name, version in (content.packages or {}).items()} == {
        PURE: "6.1",
        COMPILED: "3.0.4",
    }
    assert content.sha256 == hashlib.sha256(pex().read_bytes()).hexdigest()
    (problem,) = look(tmp_path, str(pex()), ELSEWHERE).problems
    assert problem.startswith(f"python_env: {pex().name} has {COMPILED} for manylinux")
    assert problem.endswith("but the nodes have Python 3.7 on ppc64le")


def test_a_pex_of_the_store_is_read_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "both.pex").write_bytes(pex().read_bytes())
    found = look(tmp_path, f"file://{tmp_path}/both.pex", store=tmp_path)
    assert found.problems == []
    assert found.contents["python_env"].packages


@pytest.mark.parametrize("content", [b"", b"print('x')", b"PK\x05\x06" + bytes(18)])
def test_what_is_no_pex(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "no.pex").write_bytes(content)
    (problem,) = look(tmp_path, "no.pex").problems
    assert problem.startswith("python_env: no.pex: it is not a PEX file")


def test_a_pex_that_says_nonsense(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "no.pex", "w") as opened:
        opened.writestr("PEX-INFO", json.dumps({"distributions": None}))
    (problem,) = look(tmp_path, "no.pex").problems
    assert "its PEX-INFO cannot be read" in problem


def test_a_built_environment(tmp_path: Path) -> None:
    uri = built(tmp_path / "store")
    nodes = NodePythons(frozenset({(3, 12)}), frozenset({"x86_64"}))
    found = look(tmp_path, uri, nodes, tmp_path)
    assert found.problems == []
    content = found.contents["python_env"]
    assert (content.built, content.python, content.packages) == (True, "3.12", {"numpy": "2.3.1"})
    assert not content.brings_python
    problems = look(tmp_path, uri, ELSEWHERE, tmp_path).problems
    assert problems[0] == f"python_env: {ARCHIVE} is for x86_64, but the nodes have Python 3.7 on ppc64le"
    assert problems[1].startswith(f"python_env: {ARCHIVE} was built for Python 3.12, but the nodes have Python 3.7")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda store: (store / ARCHIVE).write_bytes(b"PACKAGES"), "has changed since it was built"),
        (lambda store: (store / ARCHIVE).write_bytes(b"more packages"), "has changed since it was built"),
        (lambda store: built(store, content=b"POISONED"), "has changed since it was built"),  # the record as well
        (lambda store: (store / "tony-environment.json").unlink(), "the environment has no record file:"),
        (lambda store: (store / "tony-environment.json").write_text("{}"), "is not the record of an environment"),
        (lambda store: (store / "tony-environment.json").write_text('{"python": "3"}'), "is not the record"),
    ],
)
def test_a_built_environment_that_was_changed(tmp_path: Path, spoil: object, said: str) -> None:
    uri = built(tmp_path / "store")
    assert callable(spoil)
    spoil(tmp_path / "store")
    (problem,) = look(tmp_path, uri, OWN, tmp_path).problems
    assert said in problem
    assert problem.endswith("build it again")


@pytest.mark.parametrize("form", ["env.tar.gz", "env.tar", "env.zip"])
def test_an_archive_for_another_machine(tmp_path: Path, form: str) -> None:
    name = "lib/python3.12/site-packages/numpy/_core/_multiarray.cpython-312-aarch64-linux-gnu.so"
    if form.endswith("zip"):
        with zipfile.ZipFile(tmp_path / form, "w") as zipped:
            zipped.writestr(name, b"elf")
    else:
        with tarfile.open(tmp_path / form, "w:gz" if form.endswith("gz") else "w") as tar:
            tar.addfile(tarfile.TarInfo(name), io.BytesIO())
    nodes = NodePythons(frozenset({(3, 9)}), frozenset({"x86_64"}))
    (problem,) = look(tmp_path, form, nodes).problems
    assert problem == f"python_env: {form} is for aarch64, but the nodes have Python 3.9 on x86_64"
    assert look(tmp_path, form, NodePythons(frozenset({(3, 9)}), frozenset({"aarch64"}))).problems == []


@pytest.mark.parametrize(
    ("name", "system"),
    [
        ("lib/python3.12/lib-dynload/_ctypes.cpython-312-darwin.so", "darwin"),
        ("Lib/site-packages/numpy/_core/_multiarray.cp312-win_amd64.pyd", "win_amd64"),
    ],
)
def test_an_archive_for_another_system(tmp_path: Path, name: str, system: str) -> None:
    with tarfile.open(tmp_path / "env.tar.gz", "w:gz") as tar:
        tar.addfile(tarfile.TarInfo(name), io.BytesIO())
    (problem,) = look(tmp_path, "env.tar.gz").problems
    assert problem.startswith(f"python_env: env.tar.gz is for {system}, but the nodes have")
    with tarfile.open(tmp_path / "env.tar.gz", "w:gz") as tar:  # a package that has them for all
        for each in (name, f"lib/x.cpython-312-{os.uname().machine}-linux-gnu.so"):
            tar.addfile(tarfile.TarInfo(each), io.BytesIO())
    assert look(tmp_path, "env.tar.gz").problems == []


def test_an_archive_that_says_nothing(tmp_path: Path) -> None:
    for name, content in (("a.tar.gz", b"\x1f\x8bnothing"), ("b.zip", b"PK"), ("c.tar", b"")):
        (tmp_path / name).write_bytes(content)
        found = look(tmp_path, name)
        assert found.problems == []
        assert found.contents["python_env"].machines is None
        assert found.contents["python_env"].kind is EnvironmentKind.ARCHIVE


def test_each_task_types_is_looked_at(tmp_path: Path) -> None:
    tasks = {"worker": {"command": "x", "python_env": "no.pex"}, "ps": {"command": "x"}}
    (tmp_path / "no.pex").touch()
    names = [str(each) for each in wheels().values()]
    found = look(tmp_path, names, tasks=tasks)
    assert set(found.contents) == {"python_env", "tasks.worker.python_env"}
    assert [problem.partition(":")[0] for problem in found.problems] == ["tasks.worker.python_env"]


def test_what_nodes_have_is_what_the_runtime_is_for() -> None:
    with worker_archive().open("rb") as file:
        assert inspection.pythons_of_runtime(file) == OWN
    assert str(OWN) == f"Python 3.{sys.version_info.minor} on {os.uname().machine}"
    status = LocalStorage().status(worker_archive().as_uri())
    with io.BufferedReader(StoredFile(LocalStorage(), status)) as stored:
        assert inspection.pythons_of_runtime(stored) == OWN
