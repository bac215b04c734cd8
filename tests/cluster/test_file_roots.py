"""Where a job's files may lie on the machine that submits it, with a real storage and real links."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tony_provider.cluster.errors import JobNotAllowed
from tony_provider.cluster.settings import Policy
from tony_provider.cluster.sources import SourceFinder, Sources
from tony_provider.runtime.parsing.parse import parse_job
from tony_provider.runtime.storage.local import LocalStorage

OTHER = "lies outside the directories whose files this job may use"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "dags" / "lib").mkdir(parents=True)
    (tmp_path / "etc").mkdir()
    (tmp_path / "staging").mkdir()
    for name in ("dags/train.py", "dags/lib/model.py", "etc/krb5.keytab", "etc/env.zip", "etc/a-1-py3-none-any.whl"):
        (tmp_path / name).write_text(name)
    (tmp_path / "dags" / "innocent.py").symlink_to(tmp_path / "etc" / "krb5.keytab")
    (tmp_path / "dags" / "data").symlink_to(tmp_path / "etc", target_is_directory=True)
    return tmp_path


def find(folder: Path, policy: Policy, *files: str, made: tuple[Path, ...] = (), **keys: Any) -> Sources:
    """As for a task whose DAG's bundle is the directory ``dags``."""
    spec = {"framework": "standalone", "tasks": {"worker": {"command": "true"}}, "files": list(files), **keys}
    dags = folder / "dags"
    roots = policy.roots([dags], made)
    return SourceFinder(LocalStorage(), f"file://{folder}/staging", [dags], roots).find(parse_job(spec))


def refused(folder: Path, policy: Policy, *files: str, **keys: Any) -> list[str]:
    with pytest.raises(JobNotAllowed) as raised:
        find(folder, policy, *files, **keys)
    return raised.value.problems


def test_by_default_files_are_the_bundle_s(folder: Path) -> None:
    found = find(folder, Policy("c"), "train.py", "lib", f"{folder}/dags/lib/model.py::again.py")
    assert {each.name for each in found.local} == {"train.py", "lib/model.py", "again.py"}
    ways = [f"{folder}/etc/krb5.keytab::a", "innocent.py::b", "../etc/krb5.keytab::c", f"{folder}/etc::d", "data::e"]
    problems = refused(folder, Policy("c"), "train.py", *ways)
    assert [each.partition(":")[0] for each in problems] == [f"files[{index}]" for index in range(1, 6)]
    assert all(OTHER in each and "connection 'c' add its directory to `file_roots`" in each for each in problems)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("python_env", "{}/etc/env.zip"),
        ("python_env", "{}/etc/a-1-py3-none-any.whl"),
        ("python_env", "../etc"),
        ("archives", ["{}/etc/env.zip"]),
        ("docker", {"image": "ml/tf", "client_config": "{}/etc/krb5.keytab"}),
    ],
)
def test_other_keys_that_name_files_of_this_machine(folder: Path, key: str, value: Any) -> None:
    given: Any = parse_value(value, folder)
    (problem,) = refused(folder, Policy("c"), **{key: given})
    assert problem.startswith(key)
    assert OTHER in problem
    assert find(folder, Policy("c", file_roots=[folder / "etc"]), **{key: given})


def parse_value(value: object, folder: Path) -> object:
    if isinstance(value, dict):
        return {name: parse_value(each, folder) for name, each in value.items()}
    if isinstance(value, list):
        return [parse_value(each, folder) for each in value]
    return str(value).format(folder)


def test_a_directory_of_the_nodes_is_no_file_of_this_machine(folder: Path) -> None:
    assert find(folder, Policy("c"), python_env=f"{folder}/etc/envs/tf").all == []


def test_the_connection_s_roots_replace_the_default(folder: Path) -> None:
    policy = Policy("c", file_roots=[folder / "etc"])
    assert len(find(folder, policy, f"{folder}/etc/krb5.keytab", "innocent.py").local) == 2
    (problem,) = refused(folder, policy, "train.py")
    assert f"{folder}/dags/train.py is not allowed by the connection 'c' (file_roots: {folder}/etc)" in problem
    assert refused(folder, Policy("c", file_roots=[]), "train.py")


def test_a_root_may_be_a_link_as_that_of_a_bundle_is(folder: Path) -> None:
    (folder / "current").symlink_to(folder / "dags")
    spec = parse_job({"framework": "standalone", "tasks": {"worker": {"command": "true"}}, "files": ["train.py"]})
    current = folder / "current"
    finder = SourceFinder(LocalStorage(), f"file://{folder}/staging", [current], Policy("c").roots([current]))
    assert [each.name for each in finder.find(spec).local] == ["train.py"]
    # The name of a root is no beginning of another directory's.
    (folder / "dags-of-others").mkdir()
    (folder / "dags-of-others" / "x").write_text("x")
    assert refused(folder, Policy("c"), "../dags-of-others/x")


def test_what_was_generated_for_the_submission_may_lie_anywhere(folder: Path) -> None:
    made = folder / "etc" / "krb5.keytab"
    assert find(folder, Policy("c", file_roots=[]), str(made), made=(made,)).local


def test_what_lies_outside_is_not_read(folder: Path) -> None:
    """A pipe, or all of a disk, would be read before it is refused."""
    os.mkfifo(folder / "etc" / "pipe")
    (problem,) = refused(folder, Policy("c"), f"{folder}/etc/pipe")
    assert OTHER in problem


def test_of_a_large_directory_some_are_named(folder: Path) -> None:
    for index in range(15):
        (folder / "dags" / "lib" / f"{index}.py").symlink_to(folder / "etc" / "krb5.keytab")
    found = refused(folder, Policy("c"), "lib")
    assert (len(found), found[-1]) == (11, "and 5 more files")


# -- of the store only -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mark", ["stored:{}::model", {"source": "{}", "name": "model", "stored": True}])
def test_what_is_marked_as_stored_is_never_a_file_of_this_machine(folder: Path, mark: object) -> None:
    """As ``model_dir`` of a job that means harm, which a DAG has put into ``files``."""
    model = folder / "staging" / "model"
    model.mkdir()
    (model / "weights").write_text("1")

    def given(uri: object) -> Sources:
        marked = {**mark, "source": uri} if isinstance(mark, dict) else str(mark).format(uri)
        return find(folder, Policy("c", file_roots=[Path("/")]), files=[marked])

    (found,) = given(f"file://{model}").all
    assert found.name == "model/weights"
    for uri in (
        f"file://{folder}/etc",
        f"FILE://{folder}/etc",
        f"file:{folder}/etc",
        f"file://{folder}/staging/../etc",
    ):
        with pytest.raises(Exception, match=r"stored|cannot hold") as raised:
            given(uri)
        assert "krb5" not in str(raised.value)
    with pytest.raises(Exception, match="is marked as stored, so it must be a URI of the job's store"):
        given(f"{folder}/etc/krb5.keytab")


def test_environments_are_marked_too(folder: Path) -> None:
    policy = Policy("c", file_roots=[Path("/")])
    assert find(folder, policy, python_env=f"{folder}/etc/env.zip").local
    with pytest.raises(Exception, match=r"python_env: 'file:///.*/etc/env.zip' is marked as stored, so it must be in"):
        find(folder, policy, python_env=f"stored:file://{folder}/etc/env.zip")
    with pytest.raises(Exception, match="is marked as stored, so it must be a URI"):
        find(folder, policy, python_env="stored:/opt/envs/tf")
    (folder / "staging" / "env.zip").write_text("env")
    (found,) = find(folder, policy, python_env=f"stored:file://{folder}/staging/env.zip").all
    assert found.key == "python_env"
