"""A job each of whose task types has a Python environment of another kind, and files of its own."""

from __future__ import annotations

import json
import shutil
import tarfile
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.environments import LOOK, PINNED, conda_packed, pex, venv_packed, wheels
from tests.jobs.job import Job
from tests.jobs.places import Place, YarnPlace
from tony_provider.cluster.environments.built_environments import BuildTarget, build_environment
from tony_provider.cluster.environments.requirements import read_requirements
from tony_provider.cluster.errors import JobRejected
from tony_provider.hooks.tony import TonyHook

COMMAND = "python look.py && cowsay -t moo"
SMALL = {"memory": "256MiB", "command": COMMAND}


def seen(job: Job, task: str) -> dict[str, Any]:
    log = job.log(task)
    assert "| moo |" in log
    found: dict[str, Any] = json.loads(next(line[5:] for line in log.splitlines() if line.startswith("seen ")))
    return found


def packed(folder: Path) -> Path:
    """Enough of what venv-pack makes: whose `bin/python` says that it is another one."""
    python = folder / "environment" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nWHOSE=packed exec "{shutil.which("python3", path="/usr/bin")}" "$@"\n')
    python.chmod(0o755)
    with tarfile.open(folder / "environment.tar.gz", "w:gz") as tar:
        tar.add(folder / "environment", ".")
    return folder / "environment.tar.gz"


def test_each_task_type_has_its_own(place: Place, tmp_path: Path) -> None:
    (tmp_path / "look.py").write_text(LOOK)
    (tmp_path / "words.txt").write_text("of one type\n")
    (tmp_path / "requirements.txt").write_text("".join(f"{each}\n" for each in PINNED))
    hook = place.hook()
    requirements = read_requirements(tmp_path / "requirements.txt")
    built = build_environment(hook.built_environments(), requirements, BuildTarget.of(None, None))
    tasks = {
        "wheels": {
            **SMALL,
            "command": f"{COMMAND} && cat words.txt",
            "files": ["words.txt"],
            "python_env": [str(each) for each in wheels().values()],
        },
        "pex": {**SMALL, "python_env": str(pex())},
        "built": {**SMALL, "python_env": built.uri},
        "packed": {
            "memory": "128MiB",
            "python_env": str(packed(tmp_path)),
            "command": "python -c 'import os; print(os.environ[\"WHOSE\"])' && test ! -e words.txt",
        },
    }

    job = place.run({"files": ["look.py"], "start": "first-come", "tasks": tasks}, search_path=[tmp_path])

    job.succeeded()
    for task in ("wheels:0", "pex:0", "built:0"):
        found = seen(job, task)
        assert found["child"] == found["cowsay"], task
        assert "tony-work" in found["prefix"], task
        assert found["pex"] == [], task
    assert seen(job, "pex:0")["ours"] == seen(job, "built:0")["ours"] == []
    assert "of one type" in job.log("wheels:0").splitlines()
    assert "packed" in job.log("packed:0").splitlines()
    specification = hook.job(job.id, job.identity).history().specification
    assert specification is not None
    told = {key: each.packages for key, each in specification.environments.items()}
    assert told.pop("tasks.packed.python_env") is None
    versions = [{name.lower(): version for name, version in (packages or {}).items()} for packages in told.values()]
    assert versions == [{"cowsay": "6.1", "markupsafe": "3.0.4"}] * 3


@pytest.mark.long
def test_archives_of_venv_pack_and_of_conda_pack_whose_prefix_conda_has_not_made(yarn: YarnPlace) -> None:
    archives = {"venv": venv_packed(), "conda": conda_packed()}
    tasks = {name: {**SMALL, "python_env": str(archive)} for name, archive in archives.items()}
    (archives["venv"].parent / "look.py").write_text(LOOK)

    job = yarn.run({"files": [str(archives["venv"].parent / "look.py")], "start": "first-come", "tasks": tasks})

    job.succeeded()
    for task in ("venv:0", "conda:0"):
        found = seen(job, task)
        assert found["child"] == found["cowsay"], task
        assert found["cowsay"].startswith(found["prefix"]), task
        assert found["prefix"].startswith(str(yarn.cluster.layout.data)), task
        assert found["ours"] == [], task


def test_one_for_other_nodes_starts_nothing(place: Place, tmp_path: Path) -> None:
    other = tmp_path / "fast-1.0-cp37-cp37m-manylinux_2_17_ppc64le.whl"
    other.touch()
    hook = place.hook()
    before = trainings(hook)
    said = f"tasks.worker.python_env: {other.name} is not for the nodes, which have Python 3."
    with pytest.raises(JobRejected, match=said):
        place.submit({"tasks": {"worker": {**SMALL, "python_env": str(other)}}}, hook=hook)
    assert trainings(hook) == before


def trainings(hook: TonyHook) -> set[str]:
    """The names of those that have a directory."""
    storage, directory = hook.storage(), hook.layout.jobs_dir
    return {each.name for each in storage.list(directory)} if storage.exists(directory) else set()


@pytest.mark.long
def test_one_that_another_user_keeps_for_all(yarn: YarnPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bob is the administrator here, and alice trains."""
    (tmp_path / "requirements.txt").write_text(f"{PINNED[0]}\n")
    shared = f"{yarn.cluster.fs_default}/tmp/shared-{uuid.uuid4().hex}"
    yarn.extra["shared_cache"] = shared
    extra = {**yarn.connection["extra"], "shared_cache": shared}
    monkeypatch.setenv("AIRFLOW_CONN_TONY_BOB", json.dumps({**yarn.connection, "login": "bob", "extra": extra}))
    requirements, target = read_requirements(tmp_path / "requirements.txt"), BuildTarget.of(None, None)
    with TonyHook("tony_bob") as bob:
        kept = bob.shared_environments()
        assert kept is not None
        bob.storage().make_directories(shared, permission=0o755)
        built = build_environment(kept, requirements, target)
        hook = yarn.hook()
        found = hook.shared_environments()
        assert found is not None
        again = build_environment(hook.built_environments(), requirements, target, others=[found])
        assert (again.uri, again.was_there) == (built.uri, True)
        job = {"python_env": built.uri, "tasks": {"worker": {"memory": "128MiB", "command": "cowsay -t moo"}}}

        done = yarn.run(job, hook=hook)

        done.succeeded()
        assert "| moo |" in done.log("worker:0")
        with pytest.raises(JobRejected, match="must be an administrator's, but belongs to the job's user, bob"):
            yarn.submit(job, hook=bob)
        bob.storage().remove(shared, recursive=True)
