"""What comes back from a job of alice's, made to bring down whoever reads it on Airflow's side."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.jobs.places import LocalPlace
from tests.runtime.checkpoint import hostile
from tests.runtime.checkpoint.conftest import SAMPLES
from tests.secure import archives
from tests.secure.field import Field
from tests.secure.row import row
from tests.secure.victim import Victim, peak_bytes
from tony_provider.runtime.checkpoint.catalog import read_stored
from tony_provider.runtime.storage.base import read_bytes, write_atomically

_BY = "a job of alice's"
READ_SECONDS = 120.0  # that a worker may need; then it hangs
MOST_ON_DISK = 500  # MiB; others write to it, too
MOST_GROWTH = 150  # MiB that a worker may need more for one record
GOOD = SAMPLES / "torch" / "checkpoint.pt"
HUGE = 287 << 20  # bytes of status.json


@row("huge-status", f"leave a status.json of {HUGE >> 20} MiB where Airflow reads the job's status", by=_BY)
def huge_status(field: Field) -> str:
    victim = field.ended_victim()
    head, tail = b'{"state": "RUNNING", "tasks": [', b"]}"
    task = b'{"name": "worker:0", "state": "RUNNING"},'
    body = head + task * ((HUGE - len(head) - len(tail)) // len(task))
    storage, result = victim.job.hook.storage(), f"{victim.job.directory}/result.json"
    as_written = read_bytes(storage, result)
    storage.remove(result)  # it would be read instead
    try:
        _overwrite(field, victim, "status.json", body[:-1] + tail)
        return _read(field, victim, "status")
    finally:
        write_atomically(storage, result, as_written)  # for the next rows


@row("huge-return-value", "leave a return_value.json of 100 MiB, and one of 100,000 levels", by=_BY)
def huge_return_value(field: Field) -> str:
    victim = field.ended_victim()
    told = []
    for body in (b'"' + b"x" * (100 << 20) + b'"', b"[" * 100_000 + b"]" * 100_000):
        _overwrite(field, victim, "return_value.json", body)
        told.append(_read(field, victim, "returned"))
    return "; ".join(told)


@row("checkpoint-bombs", "write the files that froze or filled an executor beside a good checkpoint", by=_BY)
def checkpoint_bombs(field: Field) -> str:
    folder = field.folder / "bombs"
    folder.mkdir()
    names = [name for name in hostile.FILES if not name.endswith(".tony.json")]  # those would be all that counts
    for name in names:
        (folder / name).write_bytes(hostile.FILES[name]())
    shutil.copy(GOOD, folder / "good.pt")
    victim = field.submit_victim(files=[str(folder)], prelude='cp bombs/* "$TONY_CHECKPOINT_DIR"')
    victim.until_running()
    uri = victim.until(lambda: victim.job.status().checkpoint_dir, "the good checkpoint to be committed")
    trees = read_stored(victim.job.hook.storage(), uri).manifest.trees
    kept = {entry.path for each in trees for entry in each.tree.entries}
    field.expect("good.pt" in kept, f"committed was {kept}")
    field.expect("keys.index" not in kept, "a save whose files nobody writes was committed as well")
    executor = victim.executor("worker:0")
    peak = peak_bytes(executor) >> 20
    field.expect(peak < MOST_GROWTH * 2, f"the executor has taken {peak} MiB")
    field.expect(victim.job.task("worker:0").attempt == 1, "its executor was lost")
    field.cost = f"executor's peak {peak} MiB"
    return f"{len(names)} files; good.pt beside them was committed, and the executor went on"


@row(
    "archive-bombs",
    "have the embedded local cluster unpack bombs of zip and tar, and archives that lead out of their directory",
    by="a job's files",
)
def archive_bombs(field: Field) -> str:
    """On YARN the NodeManagers unpack archives, as the job's user."""
    outside = field.folder / "outside"
    outside.mkdir()
    place = LocalPlace(root=field.folder / "local")
    field.at_end(place.close)
    told = {}
    for name, make in archives.HOSTILE.items():
        path = field.folder / name
        make(path, outside)
        size, free = path.stat().st_size, shutil.disk_usage(field.folder).free
        job = place.submit(
            {
                "archives": [f"{path}::data"],
                "restart": {"budget": 0},
                "tasks": {"worker": {"memory": "128MiB", "command": "ls data"}},
            }
        )
        said = job.failed()
        field.expect("cannot unpack" in said, f"{name}: {said[-500:]}")
        gone = (free - shutil.disk_usage(field.folder).free - size) >> 20
        field.expect(gone < MOST_ON_DISK, f"{name}: {gone} MiB of the disk are gone")
        told[name] = f"{size >> 10} KiB"
        path.unlink()
    field.expect(not any(outside.iterdir()), f"outside of them is {list(outside.iterdir())}")
    left = [path for name in archives.INSIDE for path in place.root.rglob(name)]
    field.expect(not left, f"unpacked is {left}")
    field.cost = ", ".join(f"{name} {size}" for name, size in told.items())
    return f"{len(told)} jobs, each ended with what was wrong with its archive; nothing of them was unpacked"


def _overwrite(field: Field, victim: Victim, name: str, body: bytes) -> None:
    """As the job's own code can, with its HDFS token or with its user's ticket."""
    layout = field.hadoop.layout
    with tempfile.NamedTemporaryFile(dir=field.folder) as file:
        file.write(body)
        file.flush()
        done = subprocess.run(
            [
                *("curl", "--silent", "--show-error", "--fail", "--noproxy", "*", "--location", "--negotiate"),
                *("--user", ":", "--cacert", str(layout.ca_file), "--upload-file", file.name, "--max-time", "300"),
                f"{victim.webhdfs()}/{name}?op=CREATE&overwrite=true",
            ],
            env=layout.kerberos_environment("alice"),
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr


def _read(field: Field, victim: Victim, act: str) -> str:
    """By a process that stands for a worker's; how it went."""
    connection = json.dumps(field.place.connection)
    identity = victim.job.identity
    command = [sys.executable, "-m", "tests.secure.reader", connection, identity.slug, identity.digest, victim.id, act]
    try:
        done = subprocess.run(
            command,
            cwd=Path(__file__).parents[3],
            capture_output=True,
            text=True,
            timeout=READ_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        field.problems.append(f"a worker reads for more than {READ_SECONDS:g} s")
        return "the worker hangs"
    if done.returncode != 0:
        field.problems.append(f"the worker died: {done.returncode} {done.stderr[-300:]}")
        return "the worker died"
    facts: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    field.expect(facts["grown"] < MOST_GROWTH, f"the worker grew by {facts['grown']} MiB")
    field.cost = f"{facts['grown']} MiB, {facts['seconds']:.1f} s in a worker"
    return f"the worker: {facts['outcome'][:120]}"
