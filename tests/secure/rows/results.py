"""What a job of alice's writes into its own results on HDFS, to get at the Airflow worker that reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.secure.field import Field
from tests.secure.row import row
from tony_provider.cluster.errors import ClusterError
from tony_provider.cluster.findings import raise_problems
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.parsing.parse import parse_job
from tony_provider.runtime.storage.base import read_bytes, write_atomically
from tony_provider.runtime.storage.errors import StorageError
from tony_provider.runtime.storage.uris import join

_BY = "code of alice's"


@row(
    "forged-results",
    "name the worker's files as model, export, checkpoint and input; return objects of Airflow",
    by=_BY,
)
def forged_results(field: Field) -> str:
    job = field.ended_victim().job
    storage, uri = job.hook.storage(), join(job.directory, "result.json")
    as_written = read_bytes(storage, uri)
    keytab = str(field.hadoop.layout.keytab("airflow"))
    other = job.directory.replace("hdfs://", "hdfs://another.", 1)
    places = [
        keytab,
        f"file://{keytab}",
        f"{job.directory}/../../../../..{keytab}",
        f"{other}/model",
        f"{job.directory}/",
    ]
    forged: list[dict[str, Any]] = [{"model_dir": place} for place in places]
    forged += [{"export": {"step": 1, "uri": place}} for place in places]
    forged += [{"checkpoint": {"step": 1, "uri": place}} for place in (keytab, f"file://{keytab}", f"{other}/x")]
    listing = {"name": "clicks", "deal": "queue", "shards": 1, "size": 1, "listing": keytab}
    progress = {"metrics": {"__type": 1.0, "__var": 2.0}}
    forged += [{"inputs": [listing]}, {"tasks": [{"type": "w", "index": 0, "state": "FAILED", "progress": progress}]}]
    try:
        for changes in forged:
            write_atomically(storage, uri, json.dumps({**json.loads(as_written), **changes}).encode())
            try:
                field.expect(False, f"it was believed: {job.hook.job_status(job.identity, job.id)}, of {changes}")
            except ClusterError as error:
                said = str(error)
                field.expect(" does not lie below hdfs://" in said or "Airflow's serialization" in said, said)
    finally:
        write_atomically(storage, uri, as_written)
    returned = join(job.directory, "return_value.json")
    write_atomically(storage, returned, b'{"a": [{"__classname__": "airflow.sdk.Asset", "__version__": 1}]}')
    try:
        field.expect(False, f"it was believed: {job.handle.returned()}")
    except ClusterError as error:
        field.expect("a[0].__classname__" in str(error), str(error))
    finally:
        storage.remove(returned)
    return f"{len(forged) + 1} results, each refused by the name of its key"


@row("worker-files", "take along a keytab of the worker by what a template puts into files", by=_BY)
def worker_files(field: Field) -> str:
    hook = field.place.hook()  # whose connection allows all files of the worker
    keytab = field.hadoop.layout.keytab("airflow")
    for place in (str(keytab), f"file://{keytab}", f"hdfs:{keytab}"):
        _refused(field, hook, f"stored:{place}::model", keytab)
    field.place.extra["file_roots"] = None
    try:
        hook = field.place.hook()
    finally:
        del field.place.extra["file_roots"]
    for place in (str(keytab), f"file://{keytab}"):
        _refused(field, hook, place, keytab)
    return "5 ways to name it, each refused before anything was read"


def _refused(field: Field, hook: TonyHook, source: str, keytab: Path) -> None:
    spec = {"framework": "standalone", "files": [source], "tasks": {"worker": {"command": "true"}}}
    try:
        raise_problems(hook.job_findings(parse_job(spec)))
        field.expect(False, f"{source} was taken")
    except (ClusterError, StorageError, ValueError) as error:
        field.expect("stored" in str(error) or "`file_roots`" in str(error), f"{source}: {error}")
