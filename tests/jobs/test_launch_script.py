"""The script by which a NodeManager starts a container: nothing that people name is interpreted by it."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.jobs.job import Job
from tests.jobs.places import YarnPlace
from tests.permissions import open_to_all
from tests.waiting import until
from tony_provider.cluster.errors import JobRejected
from tony_provider.runtime.jobspec.problems import SpecError
from tony_provider.runtime.launch.launch_context import UnsafeValue, job_launch_environment, script_values
from tony_provider.runtime.parsing.parse import parse_job
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import write_atomically

# What shells, XML, JSON, URLs and Hadoop's own replacements give a meaning to.
_PIECES = (
    *(
        "$(touch {0})",
        "`touch {0}`",
        '"; touch {0}; "',
        "'; touch {0}; '",
        "|touch {0}",
        "&& touch {0}",
        "%24(touch {0})",
    ),
    *(
        "\\",
        "\\\\",
        "$HOME",
        "${{PATH}}",
        "$$",
        "!",
        "{{{{HOME}}}}",
        "<LOG_DIR>",
        "<CPS>",
        "%(x)s",
        "&amp;",
        "</value>",
    ),
    *("]]>", '","x":"', "\n", "\t", "%0a", "?a=b", "#c", ";d", "*", "~", " ", "ü", "-rf", ">out", "name"),
)
_PLAIN = {"framework": "standalone", "tasks": {"worker": {"command": "true", "memory": "128MiB"}}}
_TEXTS = st.lists(st.sampled_from(_PIECES), min_size=1, max_size=5).map("".join)


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Path]:
    """A file that only an interpreted value can make."""
    path = Path("/tmp") / f"tony-canary-{uuid.uuid4().hex}"
    yield path
    path.unlink(missing_ok=True)


def _fields(text: str, file: Path) -> dict[str, dict[str, Any]]:
    """A job for each text field of the specification that a container's start could have to do with."""
    plain = {"memory": "128MiB", "command": "true"}

    def task(**more: Any) -> dict[str, Any]:
        return {"tasks": {"worker": {**plain, **more}}}

    return {
        "name": {"name": text},
        "queue": {"queue": text},
        "node_label": {"node_label": text},
        "tags": {"tags": [text]},
        "files": {"files": [str(file)]},
        "files' target": {"files": [f"{file}::{text}"]},
        "files' target with a folder": {"files": [f"{file}::a/{text}"]},
        "archives' target": {"archives": [f"{file}.zip::b{text}"]},
        "python_env": {"python_env": f"/opt/{text}"},
        "an archived python_env": {"python_env": f"{file}.zip"},
        "env": {"env": {"V": text}},
        "env's name": {"env": {text: "v"}},
        "secrets": {"secrets": [text]},
        "acls": {"acls": {"view": [text]}},
        "docker.image": {"docker": {"image": text}},
        "docker.mounts": {"docker": {"image": "x", "mounts": [f"{text}:/x:ro"]}},
        "docker.network": {"docker": {"image": "x", "network": text}},
        "docker.tmpfs": {"docker": {"image": "x", "tmpfs": [text]}},
        "docker.oci_runtime": {"docker": {"image": "x", "oci_runtime": text}},
        "a task type": {"tasks": {text: plain}},
        "a task's command": task(command=f"printf '%s' {text!r} > /dev/null"),
        "a task's env": task(env={"V": text}),
        "a task's python_env": task(python_env=f"/opt/{text}"),
        "a task's node_label": task(node_label=text),
        "inputs": {"inputs": {text: {"paths": [f"/data/{text}"]}}},
        "outputs": {"outputs": {text: f"/out/{text}"}},
    }


def _merged(found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """One job with as many of these fields as one can have."""
    job: dict[str, Any] = {}
    for each in found.values():
        for key, value in each.items():
            if key not in job:
                job[key] = value
            elif isinstance(value, list):
                job[key] = [*job[key], *(one for one in value if one not in job[key])]
    return job


def _accepted(fields: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Those that are not refused before anything is submitted."""
    accepted = {}
    for name, changes in fields.items():
        try:
            parse_job(
                {"framework": "standalone", "tasks": {"worker": {"command": "true", "memory": "1MiB"}}, **changes}
            )
        except SpecError:
            continue
        accepted[name] = changes
    return accepted


def _scripts(place: YarnPlace, job: Job) -> list[str]:
    return [
        path.read_text(errors="replace")
        for folder in place.work_folders(job.id)
        for path in folder.glob("*/launch_container.sh")
    ]


def _source(folder: Path, text: str) -> Path:
    """A file whose own name is hostile, and an archive beside it."""
    name = text.replace("/", "_").replace("\0", "")[:60]
    file = folder / f"f{name}"
    file.write_text("content\n")
    subprocess.run(["python3", "-m", "zipfile", "-c", f"{file}.zip", "/etc/hostname"], check=True)
    return file


_NOT_HERE = ("docker", "queue", "node_label", "inputs", "outputs", "python_env")  # no cluster of the tests has these


def _try(place: YarnPlace, folder: Path, canary: Path, piece: str) -> set[str]:
    """Run one job with the text in all fields that take it; returns their names."""
    text = piece.format(canary)
    folder = folder / uuid.uuid4().hex
    folder.mkdir()
    open_to_all(folder)
    fields = _accepted(_fields(text, _source(folder, text)))
    go = folder / "go"
    changes = _merged(fields)
    worker = {"memory": "128MiB", "command": f"until [ -e '{go}' ]; do sleep 0.1; done"}
    own = fields.get("a task's env", {}).get("tasks", {}).get("worker", {})
    spec = {name: value for name, value in changes.items() if name not in _NOT_HERE}
    job = place.submit(
        {**spec, "restart": {"budget": 0}, "tasks": {"worker": {**own, **worker}}},
        secrets=dict.fromkeys(changes.get("secrets", ()), "value"),
    )
    until(lambda: len(_scripts(place, job)) >= 2, job.describe)
    scripts = _scripts(place, job)
    go.touch()
    job.end()
    job.succeeded()
    assert not canary.exists(), f"{text!r} was interpreted"
    assert [line for script in scripts for line in script.splitlines() if canary.name in line] == []
    return set(fields)


@pytest.mark.parametrize("piece", ['$(touch {0})`touch {0}`";touch {0};"\'\\ <LOG_DIR>&amp;%24(touch {0})'])
def test_hostile_text_in_every_field_of_a_real_job(yarn: YarnPlace, tmp_path: Path, canary: Path, piece: str) -> None:
    tried = _try(yarn, tmp_path, canary, piece)
    assert {"name", "files", "files' target with a folder", "archives' target", "env", "a task's env"} <= tried


@pytest.mark.long
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(piece=_TEXTS)
def test_random_hostile_text_in_every_field_of_a_real_job(
    yarn: YarnPlace, tmp_path: Path, canary: Path, piece: str
) -> None:
    _try(yarn, tmp_path, canary, piece)


@pytest.mark.parametrize("name", ["$(touch pwned).py", "`id`.py", 'a"b.py', "a\\b.py"])
def test_a_hostile_name_on_the_store_is_refused_before_anything_is_started(yarn: YarnPlace, name: str) -> None:
    """In a directory that others may write, too: YARN's script has the name of the file on the store."""
    hook = yarn.hook()
    folder = uris.join(hook.layout.root, "shared")
    write_atomically(hook.storage(), uris.join(folder, name), b"x")
    with pytest.raises(JobRejected, match="YARN's launch script would interpret; change it"):
        yarn.submit(
            {**_PLAIN, "files": [f"{folder}::data"]}, hook=hook, before_submit=lambda _: pytest.fail("it was submitted")
        )


@settings(max_examples=60, deadline=None)
@given(piece=_TEXTS)
def test_what_a_script_would_interpret_is_refused_or_kept_out(piece: str) -> None:
    """Each field by itself, also those that no cluster here can run: with bash as NodeManagers use it."""
    text = piece.format("/nowhere/canary")
    for name, changes in _accepted(_fields(text, Path("/nowhere/file"))).items():
        _check(name, changes)


def _check(name: str, changes: dict[str, Any]) -> None:
    job = parse_job({**_PLAIN, **changes})
    for task_type in (None, *job.tasks):
        variables = job_launch_environment(job, [], task_type)
        try:
            values = script_values(["true"], variables, {})
        except UnsafeValue:
            continue
        lines = [f'export {key}="{value}"' for key, value in values.variables.items()]
        done = subprocess.run(
            ["/bin/bash", "-c", "\n".join([*lines, "exec env -0"])],
            env={"PATH": os.defpath},
            capture_output=True,
            check=True,
            text=True,
        )
        seen = dict(each.split("=", 1) for each in done.stdout.split("\0") if each)
        assert {key: seen[key] for key in values.variables} == values.variables, name
