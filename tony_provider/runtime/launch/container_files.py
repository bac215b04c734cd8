"""Generate the names under which a NodeManager links a job's files into a container's directory.

NodeManagers write the names between double quotes into a shell script. So YARN gets generated names, and the executor
links each file to the name that the job specifies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tony_provider.runtime import contract
from tony_provider.runtime.application import LocalizedResource


def generated_names(resources: Iterable[LocalizedResource]) -> Mapping[str, str]:
    """Return the generated name of each file by its URI. A file to which a job gives several names has only one."""
    uris = dict.fromkeys(resource.uri for resource in resources)
    return {uri: f"{contract.FILES_DIR}/{number}" for number, uri in enumerate(uris)}


def container_files(
    runtime: LocalizedResource, description: LocalizedResource, resources: Iterable[LocalizedResource]
) -> dict[str, LocalizedResource]:
    """Return all files of a container by their names in its directory."""
    resources = list(resources)
    names = generated_names(resources)
    own = {contract.RUNTIME_FILE: runtime, contract.APPLICATION_FILE: description}
    return {**own, **{names[resource.uri]: resource for resource in resources}}
