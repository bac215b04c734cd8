"""Whether the outputs of a job may be written, as far as can be seen from here.

The application master looks once more, also at what this side cannot see: the disks of nodes.
"""

from __future__ import annotations

from collections.abc import Iterator

from tony_provider.cluster.errors import JobRejected
from tony_provider.cluster.layout import Layout
from tony_provider.runtime.inputs.stores import InputStores
from tony_provider.runtime.outputs.target_check import target_problem
from tony_provider.runtime.spec.model import JobSpec
from tony_provider.runtime.spec.problems import child
from tony_provider.runtime.storage import Storage, StorageUnsupported, uris


def check_outputs(job: JobSpec, storage: Storage, staging_dir: str, training: str) -> None:
    """Look whether something is at the path of an output that is not the training's own.

    ``storage`` is the job's own store, which ``staging_dir`` is in; ``training`` is the name of its identity. Raises
    JobRejected with all that is wrong, StorageError.
    """
    stores = InputStores(storage, staging_dir)
    try:
        problems = [problem for name in job.outputs for problem in _problems(job, name, staging_dir, training, stores)]
    finally:
        stores.close()
    if problems:
        raise JobRejected(problems)


def _problems(job: JobSpec, name: str, staging_dir: str, training: str, stores: InputStores) -> Iterator[str]:
    spec = job.outputs[name]
    where = child(child("outputs", name), "path")
    layout = Layout(staging_dir)
    ours = next((each for each in (layout.jobs_dir, layout.cache_dir) if _overlap(spec.path, each)), None)
    if ours:
        yield f"{where}: {spec.path} is mixed up with {ours} of the connection's staging directory; name another"
        return
    if uris.scheme(spec.path) == "file" != uris.scheme(staging_dir):
        return  # a directory of the nodes
    try:
        problem = target_problem(stores.of(spec.path), name, spec, training)
    except StorageUnsupported as error:
        yield f"{where}: {error}"
        return
    if problem:
        yield problem


def _overlap(path: str, ours: str) -> bool:
    """Whether one is the other, or lies in it."""
    mine, theirs = uris.parse(path), uris.parse(ours)
    if mine.scheme != theirs.scheme:
        return False
    one, other = (f"{each.path.rstrip('/')}/" for each in (mine, theirs))
    return one.startswith(other) or other.startswith(one)
