"""Notebooks as people have them: the command, real jobs, a real JupyterLab, and a tunnel to it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests

from tests.jobs.job import Job
from tests.jobs.left import assert_nothing_left
from tests.jobs.opened_notebook import OpenedNotebook, job_file
from tests.jobs.places import LocalPlace, Place
from tests.kinds.environments import JUPYTER, notebook_environment
from tests.waiting import until
from tony_provider.cluster.environments.built_environments import BuildTarget, build_environment
from tony_provider.cluster.environments.requirements import read_requirements
from tony_provider.cluster.training.results import ApplicationRef
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.storage.base import read_text, walk
from tony_provider.runtime.storage.uris import parse

SMALL = ("--set", "am.memory=256MiB")
# What jsonschema wants for an extra of Jupyter's, which pex leaves out and then misses.
FORMATS = ("isoduration", "jsonpointer", "rfc3987-syntax", "uri-template", "webcolors", "fqdn", "rfc3986-validator")
TRAINER = """
import pathlib
import tony_sdk
directory = pathlib.Path(tony_sdk.checkpoint_dir())
(directory / "weights-5").write_text("trained")
tony_sdk.commit_checkpoint(5, "weights-5")
"""


def job_of(place: Place, hook: TonyHook, application_id: str) -> Job:
    found = hook.application_ref(application_id=application_id)
    assert isinstance(found, ApplicationRef)
    assert found.identity is not None
    job = Job(hook, found.identity, application_id, place.log_folders)
    place._jobs.append(job)
    return job


@pytest.mark.long
def test_it_has_what_the_task_has(place: Place, tmp_path: Path) -> None:
    hook = place.hook()
    file = str(job_file(tmp_path, notebook_environment()))
    with OpenedNotebook(hook.tony_conn_id, file, "--name", uuid.uuid4().hex, *SMALL) as opened:
        job = job_of(place, hook, opened.application_id)
        assert "/lab?token=" in opened.url
        opened.save("first.txt", "saved by hand")
        code = "import os; print(os.environ['MODE'], open('job/words.txt').read(), 'TONY_CHECKPOINT_DIR' in os.environ)"
        assert opened.run(code).split() == ["fast", "of", "the", "job", "False"]
        assert requests.get(f"{opened.address}/api/contents", timeout=60).status_code == 403  # without the token
        shut_down(opened)
    job.succeeded()
    assert opened.token not in everything(job)
    assert_nothing_left(place, job)


@pytest.mark.long
def test_it_is_found_again_after_ctrl_c(local: LocalPlace, tmp_path: Path) -> None:
    hook = local.hook()
    file = str(job_file(tmp_path, notebook_environment()))
    with OpenedNotebook(hook.tony_conn_id, file, *SMALL) as opened:
        job = job_of(local, hook, opened.application_id)
        opened.save("first.txt", "saved by hand")
        assert opened.interrupt() == 0
        assert "The notebook continues to run." in opened.said
        assert f"--name clicks --local-port {urlsplit(opened.url).port} " in opened.said
    assert not job.application().is_final
    with OpenedNotebook(hook.tony_conn_id, "--name", "clicks") as back:
        assert (back.application_id, back.token) == (job.id, opened.token)
        assert back.content("first.txt") == "saved by hand"
        shut_down(back)
    job.succeeded()


@pytest.mark.long
def test_what_was_kept_is_there_when_it_is_opened_again(place: Place, tmp_path: Path) -> None:
    hook = place.hook()
    file = str(job_file(tmp_path, notebook_environment()))
    words = (file, "--name", f"clicks {uuid.uuid4().hex[:8]}", *SMALL)
    with OpenedNotebook(hook.tony_conn_id, *words, "--idle", "4s") as opened:
        first = job_of(place, hook, opened.application_id)
        opened.save("first.txt", "saved by hand")
        assert opened.end() == 0
        assert "The notebook has ended: no activity for" in opened.said
    first.succeeded()
    assert hook.job(first.id, first.identity).returned()["ended"].startswith("ended: no activity")
    assert hook.job(first.id, first.identity).notebook_token() is None
    with OpenedNotebook(hook.tony_conn_id, *words, "--idle", "1h") as again:
        second = job_of(place, hook, again.application_id)
        assert second.id != first.id
        assert again.token != opened.token
        assert again.content("first.txt") == "saved by hand"
        shut_down(again)
    second.succeeded()


def shut_down(opened: OpenedNotebook) -> None:
    """As JupyterLab's menu does it."""
    opened.session.post(f"{opened.address}/api/shutdown", timeout=60).raise_for_status()
    assert opened.end() == 0
    assert "The notebook has ended by the user. Its work is kept" in opened.said


def everything(job: Job) -> str:
    """All that is kept of it on the store, but models; and what its containers have printed."""
    storage = job.hook.storage()
    kept = [read_text(storage, each.path) for each in walk(storage, job.directory) if not each.is_directory]
    printed = [path.read_text(errors="replace") for folder in job.log_folders(job.id) for path in folder.glob("*")]
    return "\n".join([*kept, *printed])


@pytest.mark.long
def test_a_training_is_opened_at_its_newest_checkpoint(place: Place, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINER)
    hook = place.hook()
    spec = {
        "python_env": str(notebook_environment()),
        "files": [str(tmp_path / "train.py")],
        "checkpoint": {"format": "manifest"},
        "tasks": {"worker": {"memory": "300MiB", "command": "python train.py"}},
    }
    training = place.submit(spec, hook=hook)
    training.succeeded()
    (tmp_path / "train.py").unlink()  # what the store has counts
    before = [each.path for each in walk(hook.storage(), hook.layout.job_dir(training.identity))]
    words = ("--of", training.id, "--name", "looked at", "--set", "tasks.notebook.memory=700MiB", *SMALL)
    with OpenedNotebook(hook.tony_conn_id, *words) as opened:
        job = job_of(place, hook, opened.application_id)
        assert "The newest checkpoint of" in opened.said
        assert opened.content("checkpoint/weights-5") == "trained"
        assert "commit_checkpoint" in opened.content("job/train.py")
        shut_down(opened)
    job.succeeded()
    after = [each.path for each in walk(hook.storage(), hook.layout.job_dir(training.identity))]
    assert [path for path in after if not path.endswith("/pins")] == before  # the pins' directory stays, empty


@pytest.mark.long
@pytest.mark.parametrize("kind", ["built", "pex"])
def test_environments_that_are_made_in_the_container_have_all_of_jupyter(
    local: LocalPlace, tmp_path: Path, kind: str
) -> None:
    hook = local.hook()
    environment = built_environment(hook, tmp_path) if kind == "built" else pex_environment(tmp_path)
    with OpenedNotebook(hook.tony_conn_id, str(job_file(tmp_path, environment)), *SMALL) as opened:
        job = job_of(local, hook, opened.application_id)
        assert "/lab?token=" in opened.url
        page = opened.session.get(opened.url, timeout=60)
        page.raise_for_status()
        (script,) = re.findall(r'src="(/static/lab/main[^"]+)"', page.text)
        opened.session.get(f"{opened.address}{script}", timeout=60).raise_for_status()
        assert opened.run("print(6 * 7)") == "42\n"
        shut_down(opened)
    job.succeeded()


def built_environment(hook: TonyHook, folder: Path) -> str:
    (folder / "requirements.txt").write_text("\n".join(JUPYTER))
    requirements = read_requirements(folder / "requirements.txt")
    return build_environment(hook.built_environments(), requirements, BuildTarget.of(None, None)).uri


def pex_environment(folder: Path) -> str:
    file = folder / "jupyter.pex"
    command = [sys.executable, "-m", "pex", *JUPYTER, *FORMATS, "--no-compress", "--output-file", str(file)]
    subprocess.run(command, check=True, timeout=300)
    return str(file)


@pytest.mark.long
def test_a_kill_keeps_the_work_too(local: LocalPlace, tmp_path: Path) -> None:
    hook = local.hook()
    file = str(job_file(tmp_path, notebook_environment()))
    with OpenedNotebook(hook.tony_conn_id, file, *SMALL) as opened:
        job = job_of(local, hook, opened.application_id)
        opened.save("first.txt", "saved by hand")
        hook.control(job.id, "stop", {"reason": "enough", "grace": 60})
        assert opened.end() == 1
        assert "enough" in opened.said
    with OpenedNotebook(hook.tony_conn_id, file, *SMALL) as again:
        job_of(local, hook, again.application_id)
        assert again.content("first.txt") == "saved by hand"
        shut_down(again)


@pytest.mark.long
def test_a_lost_container_costs_no_work(local: LocalPlace, tmp_path: Path) -> None:
    hook = local.hook()
    file = str(job_file(tmp_path, notebook_environment()))
    with OpenedNotebook(hook.tony_conn_id, file, *SMALL) as opened:
        job = job_of(local, hook, opened.application_id)
        opened.save("first.txt", "saved by hand")
        until(lambda: job.status().checkpoint, "the work on the store")
        (executor,) = job.executors()
        os.kill(executor.pid, signal.SIGKILL)
        until(lambda: job.task("notebook:0").attempt == 2, job.describe)
        assert until(lambda: found_again(opened, "first.txt"), job.describe) == "saved by hand"
        shut_down(opened)
    job.succeeded()


@pytest.mark.long
def test_work_that_the_store_refuses_is_told_and_never_said_to_be_kept(local: LocalPlace, tmp_path: Path) -> None:
    hook = local.hook()
    file = str(job_file(tmp_path, notebook_environment()))
    with OpenedNotebook(hook.tony_conn_id, file, *SMALL, "--set", "timeouts.checkpoint=2s") as opened:
        job = job_of(local, hook, opened.application_id)
        opened.save("first.txt", "saved by hand")
        until(lambda: job.status().checkpoint, "the work on the store")
        chain = hook.job(job.id, job.identity).owned_chain()
        assert chain is not None
        full = Path(parse(chain.uri).path, "checkpoints")
        full.rename(full.with_name("aside"))
        full.touch()  # no directory can be made in it
        opened.save("second.txt", "saved by hand")
        warning = "Warning: no checkpoint can be stored: cannot make directory "
        until(lambda: warning in opened.said, job.describe)
        opened.session.post(f"{opened.address}/api/shutdown", timeout=60).raise_for_status()
        assert opened.end() == 0
        assert "The notebook has ended by the user. NOT all of its work is kept:" in opened.said
        assert "the newest checkpoint of notebook:0 (2 files) is not on the store: " in opened.said, opened.said


def found_again(opened: OpenedNotebook, name: str) -> str | None:
    """Once another server answers."""
    try:
        return str(opened.content(name))
    except requests.RequestException:
        return None


@pytest.mark.long
def test_what_the_container_finds_missing_fails_the_job_at_once(local: LocalPlace, tmp_path: Path) -> None:
    hook = local.hook()
    file = job_file(tmp_path, notebook_environment(), python_env=None)
    opened = OpenedNotebook(hook.tony_conn_id, str(file), *SMALL)
    assert opened.end() == 1
    assert "has no Jupyter server: use a python_env with jupyterlab and ipykernel" in opened.said
    job = job_of(local, hook, opened.application_id)
    assert job.status().restarts == 0
    assert json.loads(job.read("result.json"))["state"] == "FAILED"
