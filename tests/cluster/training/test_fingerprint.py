from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tony_provider.cluster.settings import FileRoots
from tony_provider.cluster.sources import SourceFinder
from tony_provider.cluster.training.plan import differing, fingerprint
from tony_provider.runtime.parsing.parse import parse_job
from tony_provider.runtime.storage.local import LocalStorage

Job = dict[str, Any]
Change = Callable[[Job, Path], None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "dags"
    (folder / "library").mkdir(parents=True)
    (folder / "train.py").write_text("train")
    (folder / "library" / "a.py").write_text("a")
    (folder / "library" / "b.py").write_text("b")
    (folder / "words.tar.gz").write_text("no archive, and nobody unpacks it")
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "data.npz").write_text("data")
    return folder


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return {
        "framework": "tensorflow",
        "files": ["train.py", "library", f"file://{tmp_path}/store/data.npz"],
        "archives": ["words.tar.gz::words"],
        "env": {"RATE": "0.1"},
        "python_env": "/opt/envs/tf",
        "tasks": {
            "worker": {"command": "python train.py", "env": {"SEED": "1"}},
            "tensorboard": {"command": "tensorboard"},
        },
    }


def of(job: Job, folder: Path) -> dict[str, str]:
    store = f"file://{folder.parent}/store"
    parsed = parse_job(job)
    return fingerprint(parsed, SourceFinder(LocalStorage(), store, [folder], FileRoots("c", [folder])).find(parsed))


@pytest.mark.parametrize(
    ("change", "keys"),
    [
        (lambda job, _: job["tasks"]["worker"].update(command="python other.py"), ["tasks.worker.command"]),
        (lambda job, _: job["tasks"]["worker"]["env"].update(SEED="2"), ["tasks.worker.env.SEED"]),
        (lambda job, _: job["env"].clear(), ["env.RATE"]),
        (lambda job, _: job.update(framework="standalone"), ["framework"]),
        (lambda job, _: job.update(python_env="/opt/envs/tf2"), ["python_env"]),
        (lambda job, _: job.update(docker={"image": "tf:2"}), ["docker.image", "docker.mounts"]),
        (
            lambda job, _: job["tasks"]["worker"].update(docker={"image": "tf:2"}),
            ["tasks.worker.docker.image", "tasks.worker.docker.mounts"],
        ),
        (lambda job, _: job["tasks"].update(ps={"command": "python ps.py"}), ["tasks.ps.command"]),
        (lambda _, folder: (folder / "train.py").write_text("Train"), ["files.train.py"]),
        (lambda _, folder: (folder / "library" / "b.py").write_text("B"), ["files.library"]),
        (lambda _, folder: (folder / "library" / "b.py").rename(folder / "library" / "c.py"), ["files.library"]),
        (lambda _, folder: (folder / "words.tar.gz").write_text("other words"), ["archives.words"]),
        (lambda _, folder: (folder.parent / "store" / "data.npz").write_text("more data"), ["files.data.npz"]),
        (
            lambda job, _: job.update(files=["train.py::main.py", *job["files"][1:]]),
            ["files.main.py", "files.train.py"],
        ),
        (lambda job, _: job["tasks"]["worker"].update(python_env="/opt/envs/3"), ["tasks.worker.python_env"]),
        (lambda job, _: job["tasks"]["worker"].update(files=["train.py::t.py"]), ["tasks.worker.files.t.py"]),
        (
            lambda job, _: job["tasks"]["worker"].update(archives=["words.tar.gz"]),
            ["tasks.worker.archives.words.tar.gz"],
        ),
    ],
)
def test_what_makes_another_training(job: Job, folder: Path, change: Change, keys: list[str]) -> None:
    before = of(job, folder)
    change(job, folder)
    assert differing(before, of(job, folder)) == keys


@pytest.mark.parametrize(
    "change",
    [
        lambda job, _: job["tasks"]["worker"].update(memory="64GiB", instances=9, gpus=1, node_label="big", vcores=2),
        lambda job, _: job.update(queue="ml", priority=3, name="other", tags=["x"], am={"memory": "1GiB"}),
        lambda job, _: job.update(acls={"view": {"users": ["bob"]}, "modify": {"groups": ["ops"]}}),
        lambda job, _: job.update(timeouts={"queue": "1h"}, restart={"budget": 9}, checkpoint={"keep": 9}),
        lambda job, _: job["tasks"]["tensorboard"].update(command="tensorboard --reload_interval 5"),
        lambda job, _: job["tasks"].pop("tensorboard"),
        lambda job, _: job["tasks"]["tensorboard"].update(python_env="/opt/envs/tb", files=["train.py::t.py"]),
        lambda job, _: job["files"].reverse(),
        lambda _, folder: (folder / "train.py").touch(),
        lambda _, folder: (folder / "library" / "__pycache__").mkdir(),
    ],
)
def test_what_does_not(job: Job, folder: Path, change: Change) -> None:
    before = of(job, folder)
    change(job, folder)
    assert of(job, folder) == before


IMAGE = {"image": "tf:2", "mounts": ["/data:/data:ro"]}


@pytest.mark.parametrize(
    ("own", "keys"),
    [
        ({"image": "tf:3"}, ["tasks.worker.docker.image", "tasks.worker.docker.mounts"]),
        ({"mounts": []}, ["tasks.worker.docker.image", "tasks.worker.docker.mounts"]),
        (False, ["tasks.worker.docker.image"]),
        ({"image": "tf:2"}, []),
        ({"network": "ml", "tmpfs": ["/dev/shm"], "oci_runtime": "nvidia", "delayed_removal": True}, []),
    ],
)
def test_a_types_own_image_counts_where_it_is_another(job: Job, folder: Path, own: Any, keys: list[str]) -> None:
    job["docker"] = IMAGE
    before = of(job, folder)
    job["tasks"]["worker"]["docker"] = own
    assert differing(before, of(job, folder)) == keys


def test_an_image_for_the_whole_job_has_the_hashes_that_it_had_before_types_had_their_own(
    job: Job, folder: Path
) -> None:
    plain = of(job, folder)
    job["docker"] = IMAGE
    with_image = of(job, folder)
    assert differing(plain, with_image) == ["docker.image", "docker.mounts"]
    assert (with_image["docker.image"], with_image["docker.mounts"]) == ("90c35bde2298ff28", "38f8b495bf88c6e9")
    job["docker"] = {"image": "tf:2"}
    assert of(job, folder)["docker.mounts"] == "4f53cda18c2baa0c"
    job["docker"] = False
    assert of(job, folder) == plain


def test_an_environment_in_an_archive_counts_by_its_content(job: Job, folder: Path) -> None:
    (folder / "tf.tar.gz").write_text("an environment")
    (folder / "other").mkdir()
    (folder / "other" / "tf.tar.gz").write_text("an environment")
    job["python_env"] = str(folder / "tf.tar.gz")
    before = of(job, folder)
    job["python_env"] = str(folder / "other" / "tf.tar.gz")
    assert of(job, folder) == before
    (folder / "other" / "tf.tar.gz").write_text("another environment")
    assert differing(before, of(job, folder)) == ["python_env"]


def test_one_task_types_own_environment_leaves_the_jobs_as_it_is(job: Job, folder: Path) -> None:
    (folder / "tf.tar.gz").write_text("an environment")
    job["python_env"] = str(folder / "tf.tar.gz")
    job["tasks"] |= {"ps": {"command": "python ps.py"}, "chief": {"command": "python train.py"}}
    before = of(job, folder)
    job["tasks"]["ps"]["python_env"] = "/opt/envs/ps"
    assert differing(before, of(job, folder)) == ["tasks.ps.python_env"]


def test_it_is_that_of_former_releases(job: Job, folder: Path) -> None:
    """Trainings go on after an update: what a release before task types had files of their own has written."""
    job["files"] = job["files"][:2]
    assert of(job, folder) == {
        "archives.words": "ce50dd0399dcd08e",
        "env.RATE": "5a4747fcdafec66d",
        "files.library": "3cc366082377f5b6",
        "files.train.py": "d9179e31b411d962",
        "framework": "c47fcdabd49ded3e",
        "python_env": "dd752304e5db3fac",
        "tasks.worker.command": "cdf128a22128821c",
        "tasks.worker.env.SEED": "391552c099c101b1",
    }
    job |= {"python_env": "words.tar.gz", "archives": []}
    assert of(job, folder)["python_env"] == "1c0de1b9df177594"


def test_no_value_is_to_be_read_from_it(job: Job, folder: Path) -> None:
    job["env"]["ENDPOINT"] = "http://store.internal/very-private"
    assert "private" not in str(of(job, folder))
