"""Programs of alice's own jobs that rewrite what her next jobs would run: on the store, and on their node."""

from __future__ import annotations

import io
import shutil
import sys
import tarfile
from pathlib import Path
from typing import Any

from tests.jobs.job import Job
from tests.secure.field import PROGRAMS, Field
from tests.secure.row import row
from tests.secure.victim import SECONDS
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import read_bytes, write_atomically

SCRIPT = "train.sh"
_LENGTH = 100  # of both, since a size is looked at first
_HONEST = 'echo honest; test $TONY_RANK != 0 || echo honest > "$TONY_MODEL_DIR/model"\n'.ljust(_LENGTH, "#")
_POISON = 'echo POISONED; test $TONY_RANK != 0 || echo POISONED > "$TONY_MODEL_DIR/model"\n'.ljust(_LENGTH, "#")
_BY = "a job of alice's"


def _spec(field: Field, **changes: Any) -> dict[str, Any]:
    """A training that runs a cached file."""
    script = field.folder / SCRIPT
    script.write_text(_HONEST)
    return {
        "files": [str(script)],
        "tasks": {"worker": {"memory": "128MiB", "command": f"sh {SCRIPT}"}},
        **changes,
    }


def _run(field: Field, spec: dict[str, Any]) -> Job:
    job = field.place.submit(spec)
    job.end(SECONDS)
    return job


def _rewrite(field: Field, targets: list[str], text: str, **changes: Any) -> Job:
    """By a job of hers, as its code can; it has the honest file, too."""
    script = field.folder / SCRIPT
    script.write_text(_HONEST)
    spec = {
        "hadoop": True,
        "files": [str(PROGRAMS / "rewriter.py"), str(script)],
        "env": {"TARGETS": "\n".join(targets), "TEXT": text, **changes.pop("env", {})},
        "tasks": {"worker": {"memory": "128MiB", "command": f"{sys.executable} rewriter.py"}},
    }
    job = _run(field, spec | changes)
    job.succeeded()
    said = job.log("worker:0")
    field.expect(said.count("rewritten ") == len(targets), f"nothing was rewritten: {said[-500:]}")
    return job


def _cached(field: Field, job: Job, ending: str) -> str:
    """The WebHDFS address and path of a file in her cache."""
    storage, root = job.hook.storage(), job.hook.layout.root
    folders = [entry.path for entry in storage.list(f"{root}/cache") if entry.is_directory]
    found = [each for folder in folders for each in storage.list(folder) if each.path.endswith(ending)]
    assert found, f"no {ending} in {folders}"
    path = uris.parse(max(found, key=lambda each: each.modified_ms).path).path
    base = field.hadoop.services.active_namenode()
    return f"store {base}/webhdfs/v1{path} {field.hadoop.layout.ca_file}"


def _honest(field: Field, job: Job) -> None:
    job.succeeded()
    model = job.read("model/model")
    field.expect(model == "honest\n", f"the next job made {model!r}")


@row("poisoned-cache", "rewrite a file in the staging directory's cache, which the next job has too", by=_BY)
def poisoned_file(field: Field) -> str:
    first = _run(field, _spec(field))
    _honest(field, first)
    _rewrite(field, [_cached(field, first, SCRIPT)], _POISON)
    _honest(field, _run(field, _spec(field)))
    return "rewritten with the job's HDFS token; the next submission stages it anew and runs what was submitted"


@row("poisoned-runtime", "rewrite the runtime archive in the cache, which every master and executor is made of", by=_BY)
def poisoned_runtime(field: Field) -> str:
    _rewrite(field, [_cached(field, field.victim().job, ".zip")], "no archive")
    _honest(field, _run(field, _spec(field)))
    return "rewritten with the job's HDFS token; the next submission stages it anew and runs"


@row(
    "poisoned-description",
    "rewrite tony-application.json of a running job",
    by=_BY,
)
def poisoned_description(field: Field) -> str:
    victim = field.victim()
    uri, storage = f"{victim.job.directory}/launch/tony-application.json", victim.job.hook.storage()
    honest = read_bytes(storage, uri)

    def restore() -> None:
        write_atomically(storage, uri, honest)

    field.at_end(restore)
    _rewrite(field, [f"store {victim.webhdfs(uri)} {field.hadoop.layout.ca_file}"], "{}")
    # Containers have it in their credentials: those that run go on, and those that are started later are the same.
    return "the running job goes on with what was submitted"


@row("poisoned-node", "rewrite on the node the cached copies of a file that the next job there has too", by=_BY)
def poisoned_node(field: Field) -> str:
    # Both nodes, since nobody says where the next job will be; each keeps the file for all jobs of hers.
    both = {"tasks": {"worker": {"instances": 2, "memory": "2200MiB", "command": f"{sys.executable} rewriter.py"}}}
    _rewrite(field, [f"node {SCRIPT}"], _POISON, **both)
    field.at_end(lambda: _restore(field))
    job = field.place.submit(_spec(field))
    application = job.end(SECONDS)
    # An attempt that finds the poisoned file runs nothing, and may leave no log.
    logs = [log.read(0, log.size) for log in job.handle.stored_logs("worker:0")]
    field.expect(not any(b"POISONED" in log for log in logs), f"the poisoned file was run: {logs}")
    why = next(iter(application.diagnostics.strip().splitlines()), "")
    return f"it was not run: {why[:200] or 'the job ran what was submitted'}"


@row("poisoned-node-runtime", "rewrite on the nodes the runtime of the next job's master and executors", by=_BY)
def poisoned_node_runtime(field: Field) -> str:
    marker = field.folder / "ran"
    field.folder.chmod(0o777)
    both = {"tasks": {"worker": {"instances": 2, "memory": "2200MiB", "command": f"{sys.executable} rewriter.py"}}}
    _rewrite(field, [f"runtime {marker}"], "", **both)
    worker = {"instances": 2, "memory": "2200MiB", "command": f"sh {SCRIPT}"}  # again one on each node
    job = field.place.submit(_spec(field, am={"memory": "256MiB", "attempts": 3}, tasks={"worker": worker}))
    job.end(SECONDS)
    field.expect(not marker.exists(), "the rewritten runtime was run as alice's next job")
    _honest(field, job)
    return "it was not run; the node fetched it again, and the job ran what was submitted"


@row("poisoned-node-archive", "rewrite on the node what it has of an archive that the next job there has too", by=_BY)
def poisoned_node_archive(field: Field) -> str:
    tools = _tools(field, _HONEST)
    both = {"tasks": {"worker": {"instances": 2, "memory": "2200MiB", "command": f"{sys.executable} rewriter.py"}}}
    _rewrite(field, [f"node tools/{SCRIPT}"], _POISON, **both, archives=[f"{tools}::tools"])
    _honest(field, _run(field, _archived(field)))
    return "the next job ran what was submitted"


@row("poisoned-archive", "rewrite a large archive in the cache, with its size and time, for the next job", by=_BY)
def poisoned_archive(field: Field) -> str:
    tools = _tools(field, _HONEST, large=True)
    first = _run(field, _archived(field, large=True))
    _honest(field, first)
    _rewrite(
        field,
        [_cached(field, first, tools.name)],
        _POISON,
        files=[str(PROGRAMS / "rewriter.py"), str(tools)],
        tasks={"worker": {"memory": "1GiB", "command": f"{sys.executable} rewriter.py"}},  # it holds the archive
        env={"FROM": tools.name, "FROM_TEXT": _HONEST},
    )
    _honest(field, _run(field, _archived(field, large=True)))
    return "rewritten with the job's HDFS token; the next submission stages it anew and runs what was submitted"


def _archived(field: Field, *, large: bool = False) -> dict[str, Any]:
    """A training that runs a file of an archive."""
    tools = _tools(field, _HONEST, large=large)
    tasks = {"worker": {"memory": "128MiB", "command": f"sh tools/{SCRIPT}"}}
    return {"archives": [f"{tools}::tools"], "tasks": tasks}


def _tools(field: Field, text: str, *, large: bool = False) -> Path:
    """An archive of one script; the same each time."""
    archive = field.folder / ("large.tar" if large else "tools.tar")
    with tarfile.open(archive, "w") as packed:
        for name, content in ((SCRIPT, text.encode()), ("filler", bytes(70 << 20 if large else 1))):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            packed.addfile(entry, io.BytesIO(content))
    return archive


def _remove(field: Field, applications: list[str]) -> None:
    """Remove what was planted on both nodes for applications that YARN has not started."""
    for name in applications:
        for path in field.hadoop.layout.data.glob(f"nodemanager-*/usercache/alice/appcache/{name}"):
            shutil.rmtree(path, ignore_errors=True)


def _restore(field: Field) -> None:
    """What the node keeps for alice, as it was."""
    for path in field.hadoop.layout.data.glob(f"nodemanager-*/usercache/alice/filecache/*/{SCRIPT}"):
        Path(path).write_text(_HONEST)


@row("planted-container", "put code into the directories of containers that her next jobs will have there", by=_BY)
def planted_container(field: Field) -> str:
    marker = field.folder / "ran"
    field.folder.chmod(0o777)
    worker = {"instances": 2, "memory": "2200MiB", "command": f"{sys.executable} planter.py"}
    spec = {"files": [str(PROGRAMS / "planter.py")], "env": {"MARKER": str(marker)}}
    planted = _run(field, spec | {"tasks": {"worker": worker}})
    planted.succeeded()
    places = [line.partition(" ")[2] for line in planted.log("worker:0").splitlines() if line.startswith("planted ")]
    field.expect(places != [], f"nothing was planted: {planted.log('worker:0')[-500:]}")
    field.at_end(lambda: _remove(field, [Path(place).name for place in places]))
    command = f"{sys.executable} -c pass; sh tools/{SCRIPT}"  # Python imports sitecustomize
    job = field.place.submit(_archived(field) | {"tasks": {"worker": {"memory": "128MiB", "command": command}}})
    job.end(SECONDS)
    field.expect(not marker.exists(), "planted code ran in a container of alice's next job")
    _honest(field, job)
    return "it was not run, and the job ran what was submitted"
