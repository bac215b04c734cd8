"""Which HDFS the URIs of a job mean: the staging directory's, one that the connection names beside it, or neither."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

from tony_provider.cluster.open import OpenCluster
from tony_provider.runtime.spec.model import JobSpec, unmarked
from tony_provider.runtime.spec.named_resources import named_resources
from tony_provider.runtime.spec.python_env import named_environments, parts
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.errors import StorageInvalidPath
from tony_provider.runtime.storage.webhdfs.store import SCHEMES

log = logging.getLogger(__name__)

_VIEW = "viewfs"
_VIEW_NAME = f"{_VIEW}://"  # no HDFS has such a name


def hdfs_name_problems(job: JobSpec, opened: OpenCluster) -> list[str]:
    """What a job names of another HDFS than those that the connection knows: its files would be looked for here.

    One that nobody can tell is told in the log, since a cluster's NameNodes have several names. Raises ClusterError.
    """
    if opened.nodes_webhdfs is None:
        return []
    known = {uris.parse(opened.staging_dir).authority.lower(), *(each.name.lower() for each in opened.other_hdfs)}
    unknown = {key: name for key, name in _names(job) if name not in known}
    if not unknown:
        return []
    properties = opened.cluster.client_configuration()
    services = set(properties.get("dfs.nameservices", "").lower().replace(",", " ").split())
    addresses = _addresses(properties)
    problems = []
    for key, name in unknown.items():
        if name == _VIEW_NAME or name in services:
            problems.append(f"{key}: {_remedy(name)}")
        elif name not in addresses:
            log.warning(
                "%s: hdfs://%s is taken for the HDFS of %s; if it is another one, name it in the connection's "
                "`other_hdfs`",
                key,
                name,
                opened.staging_dir,
            )
    return problems


def _remedy(name: str) -> str:
    if name == _VIEW_NAME:
        return f"{name}… is no HDFS but a client's view of some: write the hdfs:// URI that it leads to"
    return (
        f"hdfs://{name} is another HDFS than the staging directory's; name it in the connection's `other_hdfs`, such "
        f"as {name}=http://<its NameNode>:9870"
    )


def _addresses(properties: Mapping[str, str]) -> set[str]:
    """Where the cluster's NameNodes are, and by what name it is the default: names of one and the same HDFS, mostly."""
    found = {value.lower() for name, value in properties.items() if name.startswith("dfs.namenode.rpc-address")}
    default = properties.get("fs.defaultFS", "")
    return {*found, uris.parse(default).authority.lower()} if "://" in default else found


def _names(job: JobSpec) -> Iterator[tuple[str, str]]:
    """Where in the job an HDFS is named, and by what; of a view its scheme."""
    for key, uri in _uris(job):
        try:
            parsed = uris.parse(uri)
        except StorageInvalidPath:
            continue  # relative to the DAG's folder, or told where it is read
        if parsed.scheme in SCHEMES and parsed.authority:
            yield key, parsed.authority.lower()
        elif parsed.scheme == _VIEW:
            yield key, _VIEW_NAME


def _uris(job: JobSpec) -> Iterator[tuple[str, str]]:
    for named in named_resources(job):
        yield named.path, named.resource.source
    for key, _, environment in named_environments(job):
        for part in parts(environment):
            yield key, unmarked(part)[0]
    if job.docker is not None and job.docker.client_config is not None:
        yield "docker.client_config", unmarked(job.docker.client_config)[0]
    for name, read in job.inputs.items():
        for index, path in enumerate(read.paths):
            yield f"inputs.{name}.paths[{index}]", path
    for name, written in job.outputs.items():
        yield f"outputs.{name}.path", written.path
