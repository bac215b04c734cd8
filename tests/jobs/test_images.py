"""Jobs whose containers are to run in images: what real NodeManagers receive, and make of it.

YARN's own Docker and runc code (Java) reads the variables of every container and writes the command that it would have
carried out. Neither Docker's engine nor runc is here: a stand-in of the tests keeps that command, and begins the
container as a plain process (tests/hadoop/container_executor.py).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from tests.hadoop.container_executor import IN_IMAGE
from tests.hadoop.fixtures import StartHadoop
from tests.hadoop.node_view import lacks_rights
from tests.hadoop.settings import Settings
from tests.jobs.job import Job
from tests.jobs.left import assert_nothing_left
from tests.jobs.places import USER, YarnPlace
from tony_provider.cluster.errors import JobRejected
from tony_provider.runtime.storage.errors import StorageNotFound


def other_users(test: Callable[..., None]) -> Callable[..., None]:
    marked: Callable[..., None] = pytest.mark.long(
        pytest.mark.skipif(bool(lacks_rights()), reason=lacks_rights())(test)
    )
    return marked


LINUX = "yarn.nodemanager.runtime.linux"
AUTHS = {"registry.test:5000": {"auth": "YWxpY2U6b3Blbi1zZXNhbWU="}}
RUNC_ROOT = "/tmp/runc-root"
# Tells what its container is: the variables of its launch, and whether it has an image's environment.
LOOK = "env | grep -e '^YARN_CONTAINER_RUNTIME' -e '^OF_THE_IMAGE' | sort"


def test_nodes_that_start_no_images_are_told_before_anything_is_started(yarn: YarnPlace) -> None:
    """They would have run it as a plain process, without a word."""
    with pytest.raises(JobRejected, match=r"docker: the NodeManager of 127.0.1.\d starts only plain processes"):
        yarn.submit({"docker": {"image": "tf:2"}, "tasks": {"worker": {"command": "true"}}})
    with pytest.raises(JobRejected, match="starts only plain processes"):
        yarn.submit({"tasks": {"worker": {"command": "true", "docker": {"image": "tf:2", "runtime": "runc"}}}})
    job = yarn.run({"docker": {"image": "tf:2"}, "am": {"memory": "256MiB", "docker": False}, **plain("worker")})
    job.succeeded()
    assert "YARN_CONTAINER_RUNTIME_TYPE=default\n" in job.log("worker:0")


def plain(task_type: str) -> dict[str, Any]:
    return {"tasks": {task_type: {"memory": "128MiB", "command": LOOK, "docker": False}}}


@pytest.fixture(scope="module")
def images(start_hadoop: StartHadoop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[YarnPlace]:
    """A cluster whose nodes start images, by Docker and by runc, and containers as their users."""
    hashes = tmp_path_factory.mktemp("runc") / "image-tag-to-hash"
    hashes.write_text(f"ml/tf:2:{'ab' * 32}#\n")
    allowed = {
        f"{LINUX}.allowed-runtimes": "default,docker,runc",
        f"{LINUX}.docker.allowed-container-networks": "host,bridge,tony-ml",
        f"{LINUX}.docker.allowed-container-runtimes": "runc,nvidia",
        f"{LINUX}.docker.privileged-containers.allowed": "true",
        f"{LINUX}.docker.privileged-containers.acl": USER,
        f"{LINUX}.docker.host-pid-namespace.allowed": "true",
        f"{LINUX}.runc.image-toplevel-dir": RUNC_ROOT,
        # A NodeManager looks there when it starts, which may be before HDFS does.
        f"{LINUX}.runc.image-tag-to-manifest-plugin.hdfs-hash-file": hashes.as_uri(),
    }
    settings = Settings(
        secure=True,
        https=True,
        container_executor=True,
        nodemanagers=1,
        node_vcores=8,
        properties={"yarn-site": allowed},
    )
    cluster = start_hadoop(settings)
    yield YarnPlace(cluster=cluster)
    cluster.stop()


@pytest.fixture
def place(images: YarnPlace, monkeypatch: pytest.MonkeyPatch) -> Iterator[YarnPlace]:
    for name, value in images.cluster.layout.kerberos_environment(USER).items():
        if name.startswith("KRB5"):
            monkeypatch.setenv(name, value)
    place = YarnPlace(cluster=images.cluster)
    yield place
    place.close()


def kept(job: Job, task: str = "") -> dict[str, Any]:
    """What Docker or runc would have been told of a task's container, by default of the master's; empty: nothing."""
    container = job.task(task).container_id if task else job.log_folders(job.id)[0].name
    [folder] = [each for each in job.log_folders(job.id) if each.name == container]
    file = folder / IN_IMAGE
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return found


def mounts(command: dict[str, str]) -> set[str]:
    """Those that are not YARN's own."""
    found = [each for each in command["mounts"].split(",") if "/yarn" not in each]
    return {each for each in found if "nodemanager-" not in each and "containers-" not in each}


@other_users
def test_dockers_words_for_every_type(place: YarnPlace) -> None:
    store = place.hook().storage()
    config = f"{place.cluster.fs_default}/user/{USER}/config.json"
    store.write(config, json.dumps({"auths": AUTHS}).encode(), overwrite=True)
    common = {"memory": "128MiB", "command": LOOK}
    job = place.submit(
        {
            "docker": {
                "image": "registry.test:5000/ml/tf:2.21",
                "mounts": ["/etc/hosts:/etc/hosts:ro", "/var/tmp:/scratch"],
                "tmpfs": ["/dev/shm"],
                "client_config": config,
            },
            "am": {"memory": "256MiB", "docker": {"image": "small:1", "network": "host"}},
            "tasks": {
                "worker": common,
                "gpu": {**common, "docker": {"image": "gpu:1", "oci_runtime": "nvidia", "network": "tony-ml"}},
                "root": {**common, "docker": {"privileged": True, "pid_namespace": "host", "mounts": []}},
                "plain": {**common, "docker": False},
            },
        }
    )
    job.succeeded()
    master, worker, gpu, root = (kept(job, task) for task in ("", "worker:0", "gpu:0", "root:0"))
    assert kept(job, "plain:0") == {}
    assert [each["command"]["image"] for each in (master, worker, gpu, root)] == [
        "small:1",
        "registry.test:5000/ml/tf:2.21",
        "gpu:1",
        "registry.test:5000/ml/tf:2.21",
    ]
    for each in (master, worker, gpu, root):
        assert each["config"] == {"auths": AUTHS}
        assert each["config_is_private"]
        assert each["command"]["launch-command"].startswith("bash,")
        assert each["command"]["tmpfs"] == "/dev/shm"
        assert "environ" not in each["command"]
    assert [each["command"]["net"] for each in (master, worker, gpu, root)] == ["host", "host", "tony-ml", "host"]
    assert mounts(worker["command"]) == mounts(gpu["command"]) == {"/etc/hosts:/etc/hosts:ro", "/var/tmp:/scratch:rw"}
    assert mounts(root["command"]) == set()
    assert [each["command"].get("runtime") for each in (worker, gpu)] == [None, "nvidia"]
    assert [each["command"].get("privileged") for each in (worker, root)] == [None, "true"]
    assert [each["command"].get("pid") for each in (worker, root)] == [None, "host"]
    assert "OF_THE_IMAGE=yes" in job.log("worker:0")
    assert "OF_THE_IMAGE" not in job.log("plain:0")
    assert "YARN_CONTAINER_RUNTIME_TYPE=default" in job.log("plain:0")
    _nowhere_else(job, next(iter(AUTHS.values()))["auth"])
    store.remove(config)
    assert_nothing_left(place, job)


def _nowhere_else(job: Job, secret: str) -> None:
    """Neither in what the job has left on the store, nor in logs of its containers."""
    for name in job.files():
        with suppress(StorageNotFound):  # a temporary file that is a log by now
            assert secret.encode() not in job.read(name).encode(), name
    for log in job.handle.stored_logs():
        assert secret.encode() not in log.read(0, log.size), log.name
    for folder in job.log_folders(job.id):
        for path in folder.iterdir():
            assert path.name == IN_IMAGE or secret not in path.read_text(errors="replace"), path


@other_users
def test_runcs_words(place: YarnPlace) -> None:
    _put_image(place)
    image = {"image": "ml/tf:2", "runtime": "runc", "mounts": ["/etc/hosts:/etc/hosts:ro", "/var/tmp:/scratch:rw"]}
    job = place.run({"tasks": {"worker": {"memory": "128MiB", "command": LOOK, "docker": image}}})
    job.succeeded()
    told = kept(job, "worker:0")
    runtime = told["command"]["ociRuntimeConfig"]
    found = {each["source"]: (each["destination"], each["options"][0]) for each in runtime["mounts"]}
    assert (found["/etc/hosts"], found["/var/tmp"]) == (("/etc/hosts", "ro"), ("/scratch", "rw"))
    assert runtime["process"]["args"][0] == "bash"
    assert kept(job) == {}
    assert "OF_THE_IMAGE=yes" in job.log("worker:0")
    assert_nothing_left(place, job)


def _put_image(place: YarnPlace) -> None:
    """An image as NodeManagers find one on HDFS; nobody looks into its only layer."""
    layer, config = b"no file system", json.dumps({"config": {"Env": ["A=b"]}}).encode()
    kind = "application/vnd.docker"
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{kind}.distribution.manifest.v2+json",
        "config": _part(f"{kind}.container.image.v1+json", config),
        "layers": [_part(f"{kind}.image.rootfs.diff.tar.gzip", layer)],
    }
    files = {
        f"manifests/{'ab' * 32}": json.dumps(manifest).encode(),
        f"config/{hashlib.sha256(config).hexdigest()}": config,
        f"layers/{hashlib.sha256(layer).hexdigest()}.sqsh": layer,
    }
    store = place.hook().storage()
    for name, data in files.items():
        uri = f"{place.cluster.fs_default}{RUNC_ROOT}/{name}"
        store.make_directories(uri.rpartition("/")[0], permission=0o755)
        store.write(uri, data, permission=0o644)


def _part(media_type: str, data: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "size": len(data), "digest": f"sha256:{hashlib.sha256(data).hexdigest()}"}
