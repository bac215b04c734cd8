"""Checks of what keeps users of a shared cluster apart. None of them keeps jobs from running."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from tony_provider.cluster.diagnosis.finding import Finding, ok, skipped, warning
from tony_provider.cluster.diagnosis.hardening import OF_NAMENODE, OF_RESOURCE_MANAGER, Hardening
from tony_provider.cluster.diagnosis.http import Unanswered, Way, json_of
from tony_provider.runtime.spec.model import Network
from tony_provider.runtime.storage.base import Storage
from tony_provider.runtime.storage.errors import StorageError

HARDENING = "Hardening"
_OTHERS = 0o077  # rights of group and others


@attrs.frozen
class HardeningChecks:
    """Checks by the configuration that one daemon of each kind shows."""

    managers: Way
    namenodes: Way

    def of_resource_manager(self, address: str) -> Iterator[Finding]:
        yield from _judged("ResourceManager", address, self.managers, OF_RESOURCE_MANAGER)

    def of_namenode(self, address: str) -> Iterator[Finding]:
        yield from _judged("NameNode", address, self.namenodes, OF_NAMENODE)


def _judged(kind: str, address: str, way: Way, wanted: Sequence[Hardening]) -> Iterator[Finding]:
    try:
        answer = json_of(way.send("GET", f"{address}/conf?format=json"))
    except Unanswered as error:
        answer, why = {}, error.detail
    else:
        why = "it is shown to administrators only"
    properties = answer.get("properties")
    if not isinstance(properties, list) or not properties:
        yield skipped(HARDENING, f"the configuration of the {kind} cannot be looked at: {why}")
        return
    settings = {str(each.get("key")): str(each.get("value")) for each in properties if isinstance(each, dict)}
    for each in wanted:
        yield _judge(each, settings)


def _judge(wanted: Hardening, settings: dict[str, str]) -> Finding:
    what = f"{HARDENING} {wanted.name}"
    value = settings.get(wanted.name)
    if value is None:
        return skipped(what, "it is not in the configuration that was shown")
    if wanted.fits(value, settings):
        return ok(what, value or "empty")
    return warning(what, f"is {value!r}, so {wanted.otherwise}", wanted.advice)


def check_rights(storage: Storage, staging_dir: str, user: str) -> Iterator[Finding]:
    """Check whose the staging directory is, and who else may look into it."""
    what = f"{HARDENING} of {staging_dir}"
    try:
        found = storage.status(staging_dir)
    except StorageError:
        yield skipped(what, "it is not there yet; the first job makes it, for its owner alone (0700)")
        return
    if found.owner and user and found.owner != user:
        advice = f"give it to {user}, or name another `staging_dir`"
        yield warning(what, f"it belongs to {found.owner}, who can change what the jobs of {user} run", advice)
    elif found.permission is not None and found.permission & _OTHERS:
        yield warning(what, f"its rights are {found.permission:04o}: others may look into it", "set them to 0700")
    else:
        yield ok(what, "its owner's alone")


def check_network(network: Network | None) -> Iterator[Finding]:
    """Check that somebody has said who can reach the ports of jobs."""
    what = f"{HARDENING} network"
    if network is None:
        yield warning(
            what,
            "nobody has said who can reach the ports of jobs' processes, which frameworks mostly open to everybody",
            "see docs/security.md, then set `network` to isolated or trusted",
        )
    else:
        yield ok(what, network.value)
