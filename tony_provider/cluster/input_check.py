"""Whether the inputs of a job are there, as far as can be seen from here and with little reading.

The application master lists them whole, and what this side cannot look at: the disks of nodes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tony_provider.cluster.errors import SourceMissing
from tony_provider.runtime.inputs.finding import BadInputError, find_at
from tony_provider.runtime.inputs.stores import InputStores
from tony_provider.runtime.inputs.too_few import too_few, wanted
from tony_provider.runtime.spec.model import JobSpec
from tony_provider.runtime.storage import Storage, uris


def check_inputs(job: JobSpec, storage: Storage, store_uri: str) -> None:
    """Look for the first files of each input: as many as its tasks need.

    ``storage`` is the job's own store, which ``store_uri`` is in. Raises SourceMissing with all that is wrong,
    StorageError.
    """
    stores = InputStores(storage, store_uri)
    try:
        problems = [problem for name in job.inputs for problem in _problems(job, name, store_uri, stores)]
    finally:
        stores.close()
    if problems:
        raise SourceMissing("; ".join(problems))


def _problems(job: JobSpec, name: str, store_uri: str, stores: InputStores) -> Iterator[str]:
    spec, least, found = job.inputs[name], wanted(job, name), 0
    for index, path in enumerate(spec.paths):
        if uris.scheme(path) == "file" != uris.scheme(store_uri):
            found += least  # a file of the nodes
            continue
        try:
            found += sum(1 for _ in itertools.islice(find_at(name, spec, index, stores), least))
        except BadInputError as error:
            yield str(error)
            found += least  # how many there are is not the matter
    if problem := too_few(job, name, found):
        yield problem
