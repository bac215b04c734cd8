from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from tony_provider.cluster.errors import SourceMissing
from tony_provider.cluster.settings import FileRoots
from tony_provider.cluster.sources import SourceFinder, Sources
from tony_provider.runtime.application import ResourceKind
from tony_provider.runtime.jobspec.model import JobSpec, PythonEnv, Resource, TaskSpec
from tony_provider.runtime.storage.base import FileStatus
from tony_provider.runtime.storage.local import LocalStorage

ANYWHERE = FileRoots("c", [Path("/")])


def job(**changes: Any) -> JobSpec:
    return JobSpec(**{"framework": "standalone", "tasks": {"worker": TaskSpec("true")}, **changes})


@pytest.fixture
def dag_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "dags"
    (folder / "src" / "deep").mkdir(parents=True)
    (folder / "src" / "__pycache__").mkdir()
    (folder / "train.py").write_text("train")
    (folder / "src" / "model.py").write_text("model")
    (folder / "src" / "deep" / "layer.py").write_text("layer")
    (folder / "src" / "__pycache__" / "model.pyc").write_text("compiled")
    (folder / "data.tar.gz").write_bytes(b"archive")
    return folder


def find(spec: JobSpec, *search_path: Path, store: str = "file:///staging") -> Sources:
    return SourceFinder(LocalStorage(), store, search_path, ANYWHERE).find(spec)


def test_files_are_found_beside_the_dag_and_hashed(dag_folder: Path) -> None:
    found = find(job(files=[Resource("train.py"), Resource("src/model.py", "m.py")]), dag_folder)
    assert [(source.name, source.path) for source in found.local] == [
        ("train.py", dag_folder / "train.py"),
        ("m.py", dag_folder / "src/model.py"),
    ]
    assert found.local[0].sha256 == hashlib.sha256(b"train").hexdigest()
    assert found.local[0].size == 5


def test_a_directory_is_taken_with_all_below_it_but_caches(dag_folder: Path) -> None:
    found = find(job(files=[Resource("src")]), dag_folder)
    assert [source.name for source in found.local] == ["src/deep/layer.py", "src/model.py"]


def test_the_dag_folder_comes_before_the_template_search_path(dag_folder: Path, tmp_path: Path) -> None:
    templates = tmp_path / "templates"
    templates.mkdir()
    (templates / "train.py").write_text("another")
    (templates / "only_here.py").write_text("here")
    found = find(job(files=[Resource("train.py"), Resource("only_here.py")]), dag_folder, templates)
    assert [source.path.parent for source in found.local] == [dag_folder, templates]


def test_never_the_working_directory(dag_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(dag_folder)
    with pytest.raises(SourceMissing, match=r"files\[0\]: 'train.py' does not exist; searched .*elsewhere/train.py"):
        find(job(files=[Resource("train.py")]), tmp_path / "elsewhere")
    with pytest.raises(SourceMissing, match="use an absolute path"):
        find(job(files=[Resource("train.py")]))


def test_everything_missing_is_named_at_once(dag_folder: Path) -> None:
    spec = job(
        files=[Resource("train.py"), Resource("no.py"), Resource("/no/such.py")],
        archives=[Resource("gone.zip"), Resource("train.py")],
        python_env="env.tar.gz",
    )
    with pytest.raises(SourceMissing) as raised:
        find(spec, dag_folder)
    text = str(raised.value)
    for key in ("files[1]", "files[2]", "archives[0]", "archives[1]: 'train.py' is not an archive", "python_env"):
        assert key in text
    assert "files[0]" not in text


def test_archives_and_environments_are_unpacked(dag_folder: Path) -> None:
    found = find(job(archives=[Resource("data.tar.gz", "data")], python_env="data.tar.gz"), dag_folder)
    assert [(source.name, source.kind) for source in found.local] == [
        ("data", ResourceKind.ARCHIVE),
        ("python_env", ResourceKind.ARCHIVE),
    ]


def test_an_environment_on_the_nodes_is_left_alone(dag_folder: Path) -> None:
    for environment in ("/opt/envs/tf", "file:///opt/envs/tf"):
        assert find(job(python_env=environment), dag_folder) == Sources([], [])


def test_two_things_of_one_name_and_reserved_names_are_refused(dag_folder: Path) -> None:
    spec = job(files=[Resource("train.py"), Resource("src/model.py", "train.py"), Resource("src", "tony")])
    with pytest.raises(SourceMissing) as raised:
        find(spec, dag_folder)
    assert "two files or archives would both be 'train.py'" in str(raised.value)
    assert "the name 'tony/model.py' is reserved for the runtime" in str(raised.value)


def test_a_source_in_another_store_is_refused(dag_folder: Path) -> None:
    with pytest.raises(SourceMissing, match=r"python_env: 's3://b/e.zip' is in another store .*file://"):
        find(job(python_env="s3://b/e.zip"), dag_folder)


def test_files_of_the_store_on_this_machine_are_used_where_they_are(dag_folder: Path, tmp_path: Path) -> None:
    store = tmp_path / "staging"
    (store / "shards").mkdir(parents=True)
    (store / "shards" / "00000.npz").write_bytes(b"numbers")
    (store / "env.zip").write_bytes(b"archive")
    spec = job(
        files=[Resource(f"file://{store}/shards", "data"), Resource(f"file://{dag_folder}/train.py")],
        archives=[Resource(f"{store}/env.zip", "copied")],
        python_env=f"file://{store}/env.zip",
    )
    found = find(spec, store=f"file://{store}")
    stored = [each.resource for each in found.stored]
    assert [(each.name, each.uri, each.size, each.kind) for each in stored] == [
        ("data/00000.npz", f"file://{store}/shards/00000.npz", 7, ResourceKind.FILE),
        ("python_env", f"file://{store}/env.zip", 7, ResourceKind.ARCHIVE),
    ]
    # A URI of another place, and a path, which a user may change at any time, are copied.
    assert [(source.name, source.path) for source in found.local] == [
        ("train.py", dag_folder / "train.py"),
        ("copied", store / "env.zip"),
    ]


def test_what_is_not_in_the_store_on_this_machine_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SourceMissing, match=r"files\[0\]: file://.*/staging/gone.npz does not exist"):
        find(job(files=[Resource(f"file://{tmp_path}/staging/gone.npz")]), store=f"file://{tmp_path}/staging")


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_reported(dag_folder: Path) -> None:
    (dag_folder / "train.py").chmod(0)
    with pytest.raises(SourceMissing, match="cannot be read by this user"):
        find(job(files=[Resource("train.py")]), dag_folder)


def test_a_stored_file_may_have_several_names() -> None:
    class Store(LocalStorage):
        def status(self, uri: str) -> FileStatus:
            return FileStatus(uri, 1, 1, False, "alice", 0o600)

    spec = job(files=[Resource("hdfs://nn/data.txt"), Resource("hdfs://nn/data.txt", "other.txt")])
    found = SourceFinder(Store(), "hdfs://nn/staging", [], ANYWHERE).find(spec)
    assert [(each.name, each.resource.uri) for each in found.stored] == [
        ("data.txt", "hdfs://nn/data.txt"),
        ("other.txt", "hdfs://nn/data.txt"),
    ]


@pytest.mark.parametrize("environment", ["envs/tf", "src", "hdfs:///envs/tf"])
def test_an_environment_that_is_nowhere(dag_folder: Path, environment: str) -> None:
    with pytest.raises(SourceMissing, match=r"python_env: .*; a python_env is a directory on the nodes"):
        find(job(python_env=environment), dag_folder)


def test_what_cannot_be_a_file_of_a_job(dag_folder: Path) -> None:
    src = dag_folder / "src"
    os.mkfifo(src / "fifo")
    (src / "dangling").symlink_to("/nowhere")
    (src / "deep" / "up").symlink_to("..")
    (src / "deep" / "self").symlink_to(".")
    Path(os.fsdecode(os.fsencode(src) + b"/latin\xfc")).touch()
    with pytest.raises(SourceMissing) as raised:
        find(job(files=[Resource("src"), Resource("src/fifo", "again")]), dag_folder)
    problems = str(raised.value).split("; ")
    assert [problem.partition(":")[0] for problem in problems] == ["files[0]"] * 5 + ["files[1]"]
    for name in ("fifo", "dangling", "deep/up", "deep/self", "latin"):
        assert f"src/{name}" in str(raised.value)


def test_files_and_environments_of_task_types_are_theirs(dag_folder: Path) -> None:
    tasks = {
        "worker": TaskSpec("true", files=[Resource("src/model.py")], archives=[Resource("data.tar.gz", "data")]),
        "ps": TaskSpec("true", files=[Resource("train.py", "model.py")], python_env=PythonEnv("other.tar.gz")),
        "tool": TaskSpec("true"),
    }
    (dag_folder / "other.tar.gz").write_bytes(b"another")
    found = find(job(tasks=tasks, files=[Resource("train.py")], python_env="data.tar.gz"), dag_folder)
    assert [(each.name, each.key, each.task_type) for each in found.local] == [
        ("train.py", "files.train.py", None),
        ("model.py", "tasks.worker.files.model.py", "worker"),
        ("data", "tasks.worker.archives.data", "worker"),
        ("model.py", "tasks.ps.files.model.py", "ps"),
        ("python_env", "python_env", "worker"),
        ("python_env", "tasks.ps.python_env", "ps"),
        ("python_env", "python_env", "tool"),
    ]


def test_what_is_missing_of_a_task_type_is_named_by_its_path(dag_folder: Path) -> None:
    tasks = {"worker": TaskSpec("true", files=[Resource("no.py")], python_env=PythonEnv("no.pex"))}
    with pytest.raises(SourceMissing) as raised:
        find(job(tasks=tasks), dag_folder)
    assert "tasks.worker.files[0]: 'no.py' does not exist" in str(raised.value)
    assert "tasks.worker.python_env: 'no.pex' does not exist" in str(raised.value)


def test_a_pex_and_wheels_come_as_they_are(dag_folder: Path) -> None:
    (dag_folder / "tool.pex").write_bytes(b"pex")
    (dag_folder / "lib").mkdir()
    for name in ("b-1-py3-none-any.whl", "a-1-py3-none-any.whl", "notes.txt"):
        (dag_folder / "lib" / name).write_bytes(b"wheel")
    assert [(each.name, each.kind) for each in find(job(python_env="tool.pex"), dag_folder).local] == [
        ("python_env/tool.pex", ResourceKind.FILE)
    ]
    all_of_them = ["python_env/a-1-py3-none-any.whl", "python_env/b-1-py3-none-any.whl"]
    assert [each.name for each in find(job(python_env="lib"), dag_folder).local] == all_of_them
    both = "lib/a-1-py3-none-any.whl,lib/b-1-py3-none-any.whl"
    assert [each.name for each in find(job(python_env=both), dag_folder).local] == all_of_them


def test_wheels_of_the_store(dag_folder: Path, tmp_path: Path) -> None:
    store = tmp_path / "staging" / "wheels"
    store.mkdir(parents=True)
    (store / "a-1-py3-none-any.whl").write_bytes(b"wheel")
    found = find(job(python_env=f"file://{store}"), store=f"file://{tmp_path}/staging")
    assert found == Sources([], [])  # an absolute path is a directory of the nodes
    found = find(job(python_env=f"file://{store}/a-1-py3-none-any.whl"), store=f"file://{tmp_path}/staging")
    assert [each.name for each in found.stored] == ["python_env/a-1-py3-none-any.whl"]


def test_an_ignore_file_that_is_none_is_named(dag_folder: Path) -> None:
    (dag_folder / "src" / ".gitignore").write_text("!\n")
    with pytest.raises(SourceMissing, match=r"files\[0\]: .*src/.gitignore cannot be used: Invalid"):
        find(job(files=[Resource("src")]), dag_folder)


def test_what_stays_behind_is_told(dag_folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (dag_folder / "src" / ".gitignore").write_text("deep/\n/model.py\n")
    with caplog.at_level("INFO"):
        found = find(job(files=[Resource("src")]), dag_folder)
    assert [source.name for source in found.local] == ["src/.gitignore"]
    assert "files[0]: not staged from src because of its ignore files: deep, model.py" in caplog.text
