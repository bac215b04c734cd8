"""TorchX: app definitions, and calls of its usual components, become jobs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.importers.jobs import imported, imported_text, why
from tony_provider.importers.key_table import ImportedJob, NotImportable
from tony_provider.runtime.jobspec.model import Role
from tony_provider.runtime.parsing.parse import parse_job

TORCHRUN = (
    "torchrun --rdzv_backend c10d --rdzv_endpoint \"$${TORCHX_RANK0_HOST:=localhost}:29500\" --rdzv_id '${app_id}' "
    "--nnodes 2 --nproc_per_node 4 --tee 3 --role '' main.py --lr 0.1"
)


def app(**role: Any) -> dict[str, Any]:
    """As ``json.dumps(dataclasses.asdict(app))`` writes one."""
    whole = {
        "name": "main",
        "image": "ghcr.io/example/train:1",
        "min_replicas": None,
        "base_image": None,
        "entrypoint": "bash",
        "args": ["-c", TORCHRUN],
        "env": {"LOGLEVEL": "INFO", "TORCHX_TRACKING_EXPERIMENT_NAME": "x"},
        "num_replicas": 2,
        "max_retries": 3,
        "retry_policy": "APPLICATION",
        "resource": {"cpu": 2, "gpu": 4, "memMB": 1024, "capabilities": {}, "devices": {}},
        "port_map": {"c10d": 29500},
        "metadata": {},
        "mounts": [{"src_path": "/data", "dst_path": "/in", "read_only": True, "type": "bind"}],
    }
    return {"name": "trainer", "roles": [{**whole, **role}], "metadata": {}}


def read(folder: Path, plain: dict[str, Any]) -> ImportedJob:
    return imported_text(folder, "app.json", json.dumps(plain))


def test_an_app_that_torchrun_starts_is_of_pytorch(tmp_path: Path) -> None:
    found = read(tmp_path, app())
    assert found.job == {
        "framework": "pytorch",
        "name": "trainer",
        "restart": {"budget": 3},
        "tasks": {
            "main": {
                "instances": 2,
                "memory": 1024,
                "vcores": 2,
                "gpus": 4,
                "docker": {"image": "ghcr.io/example/train:1", "mounts": ["/data:/in:ro"]},
                "env": {"LOGLEVEL": "INFO"},
                "processes": "4",
                "command": "python main.py --lr 0.1",
            }
        },
    }
    assert "TONY_PORT" in why(found, "role.main.port_map")
    assert "TorchX itself" in why(found, "role.main.env.TORCHX_TRACKING_EXPERIMENT_NAME")


@pytest.mark.parametrize(
    ("args", "command"),
    [
        (["--nproc_per_node", "2", "-m", "pkg.train", "--lr", "0.1"], "python -m pkg.train --lr 0.1"),
        (["--module", "--nproc-per-node=2", "pkg.train", "-x"], "python -m pkg.train -x"),
        (["--standalone", "--nproc_per_node=2", "train.py", "-m", "small"], "python train.py -m small"),
        (["--nproc_per_node=2", "--no_python", "./train", "--lr", "0.1"], "./train --lr 0.1"),
    ],
)
def test_what_torchrun_is_given_to_run(tmp_path: Path, args: list[str], command: str) -> None:
    task = read(tmp_path, app(entrypoint="torchrun", args=args)).job["tasks"]["main"]
    assert (task["command"], task["processes"]) == (command, "2")


def test_macros_are_our_variables_and_what_has_none_is_named(tmp_path: Path) -> None:
    args = ["--app", "${app_id}", "--me", "$$HOME", "--at", "${img_root}/x y", "--to", "${rank0_env}", "it's"]
    plain = app(entrypoint="./go", args=args, num_replicas=1, resource=None, max_retries=0)
    found = read(tmp_path, plain)
    assert found.job["framework"] == "standalone"
    command = found.job["tasks"]["main"]["command"]
    assert command == "./go --app $TONY_APPLICATION_ID --me '$HOME' --at \"./x y\" --to \"${rank0_env}\" 'it'\"'\"'s'"
    assert "${rank0_env}" in why(found, "role.main.args")
    assert "budget: 0" in why(found, "role.main.max_retries")


@pytest.mark.parametrize(("policy", "framework"), [("APPLICATION", "generic"), ("REPLICA", "standalone")])
def test_several_roles_start_again_as_their_policy_says(tmp_path: Path, policy: str, framework: str) -> None:
    first = app(name="ps", entrypoint="./serve", args=[], retry_policy=policy)["roles"][0]
    second = app(name="trainer", entrypoint="./train", args=["-x"], retry_policy=policy, min_replicas=1)["roles"][0]
    found = read(tmp_path, {"name": "two", "roles": [first, second]})
    job = parse_job(found.job)
    assert job.framework == framework
    assert job.roles == {"ps": Role.WORKER, "trainer": Role.WORKER}


def test_a_call_of_dist_ddp_becomes_a_job() -> None:
    run = ["torchx", "run", "-s", "kubernetes", "-cfg", "queue=ml", "--wait", "dist.ddp"]
    given = ["-j", "1:2x4", "--script", "src/main.py", "--gpu=4", "--memMB", "4096", "--env", "A=1,B=2"]
    found = imported(*run, *given, "--rdzv_port", "29501", "--max_retries", "2", "--", "--lr", "0.1")
    assert found.job == {
        "framework": "pytorch",
        "name": "main",
        "restart": {"budget": 2},
        "files": ["src/main.py"],
        "tasks": {
            "main": {
                "instances": 2,
                "memory": 4096,
                "vcores": 2,
                "gpus": 4,
                "min_instances": 1,
                "processes": 4,
                "env": {"A": "1", "B": "2"},
                "command": "python main.py --lr 0.1",
            }
        },
    }
    assert "connection says where" in why(found, "torchx run -s")
    assert imported(*run, "--debug", "True", *given, "--max_retries", "2", "--", "--lr", "0.1").job == found.job
    assert "docker" in why(found, "--image")


def test_calls_of_other_components() -> None:
    module = imported(
        "torchx", "run", "dist.spmd", "-m", "pkg.train", "-j", "2x8", "-h", "gpu.xlarge", "--image", "i:1"
    )
    (task,) = module.job["tasks"].values()
    assert (task["command"], task["gpus"], task["memory"], task["vcores"]) == ("python -m pkg.train", 8, 262144, 64)
    echo = imported("torchx", "run", "utils.echo", "--msg", "hello world")
    assert echo.job["tasks"]["echo"]["command"] == "echo 'hello world'"
    assert imported("torchx", "run", "torchx.components.utils.echo", "--msg", "hello world").job == echo.job
    shell = imported("torchx", "run", "utils.sh", "--num_replicas", "3", "ls", "-l")
    assert (shell.job["tasks"]["sh"]["instances"], shell.job["tasks"]["sh"]["command"]) == (3, "ls -l")
    python = imported("torchx", "run", "utils.python", "--script", "a/b.py", "--", "--x")
    assert (python.job["files"], python.job["tasks"]["python"]["command"]) == (["a/b.py"], "python b.py --x")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run"], "names no component"),
        (["run", "dist.ddp"], "one of --script and -m"),
        (["run", "dist.ddp", "--script", "x.py", "-j", "many"], "NODESxPROCESSES"),
        (["run", "serve.torchserve", "--model_path", "x"], "dataclasses.asdict"),
    ],
)
def test_bad_calls_are_refused(words: list[str], said: str) -> None:
    with pytest.raises(NotImportable, match=said):
        imported("torchx", *words)


def test_what_torchx_leaves_to_the_image_is_told(tmp_path: Path) -> None:
    """A program by its name alone, and devices, which look like directories."""
    device = {"src_path": "/dev/fuse", "dst_path": "/dev/fuse", "permissions": "rwm"}
    found = read(tmp_path, app(mounts=[device]))
    assert "main.py is expected in the image" in why(found, "role.main.args")
    assert "nothing else" in why(found, "role.main.mounts")
    assert "mounts" not in found.job["tasks"]["main"]["docker"]


def test_each_role_has_its_image(tmp_path: Path) -> None:
    first = app(name="ps", image="small:1", entrypoint="./serve", args=[], mounts=[])["roles"][0]
    second = app(name="trainer", entrypoint="./train", args=[])["roles"][0]
    found = read(tmp_path, {"name": "two", "roles": [first, second]})
    assert found.job["tasks"]["ps"]["docker"] == {"image": "small:1"}
    assert found.job["tasks"]["trainer"]["docker"]["image"] == "ghcr.io/example/train:1"


def test_mounts_of_a_call_are_the_images() -> None:
    mounts = "type=bind,src=/data,dst=/in,readonly,type=bind,source=/out,target=/out,type=volume,src=v,dst=/v"
    given = ["dist.ddp", "--script", "main.py", "--image", "x/y:1", "--mounts", mounts]
    found = imported("torchx", "run", *given)
    assert found.job["tasks"]["main"]["docker"]["mounts"] == ["/data:/in:ro", "/out:/out:rw"]
    assert "nothing else" in why(found, "role.main.mounts")
