"""A Submission in the form that YARN's REST interface wants."""

from __future__ import annotations

import base64
from typing import Any

from tony_provider.cluster.base import Submission
from tony_provider.runtime.application import LocalizedResource
from tony_provider.runtime.hadoop.access_list import MODIFY_APP, VIEW_APP, AccessList
from tony_provider.runtime.hadoop.tokens import Credentials
from tony_provider.runtime.launch.command_line import environment
from tony_provider.runtime.launch.script_values import script_values
from tony_provider.runtime.spec.model import JobSpec
from tony_provider.runtime.storage import uris
from tony_provider.runtime.text import MASK

APPLICATION_TYPE = "TONY"


def submission_context(submission: Submission) -> dict[str, Any]:
    """The body of ``POST /ws/v1/cluster/apps``."""
    description = submission.description
    job = description.job
    values = script_values(submission.am_command, environment(description), submission.am_files)
    context: dict[str, Any] = {
        "application-id": description.application_id,
        "application-name": job.name,
        "application-type": APPLICATION_TYPE,
        "am-container-spec": {
            "local-resources": _entries({name: _local(resource) for name, resource in values.files.items()}),
            "commands": {"command": values.command},
            "environment": _entries(values.variables),
            "credentials": _credentials(submission.credentials),
            **_access_lists(job),
        },
        "unmanaged-AM": False,
        "max-app-attempts": job.am.attempts,  # YARN takes its own limit where that is lower
        "attempt-failures-validity-interval": int(job.am.attempts_window * 1000),
        "keep-containers-across-application-attempts": True,
        "resource": {"memory": int(job.am_memory), "vCores": job.am.vcores},
        "application-tags": {"tag": submission.tags},
    }
    if job.queue is not None:
        context["queue"] = job.queue
    if job.priority is not None:
        context["priority"] = job.priority
    if job.node_label is not None:
        context["app-node-label-expression"] = job.node_label
    if (am_label := job.am.node_label or job.node_label) is not None:
        context["am-container-node-label-expression"] = am_label
    return context


def _access_lists(job: JobSpec) -> dict[str, Any]:
    """None where nobody is named: YARN's default is the same, and Hadoop 2.10's JSON reader fails at empty lists."""
    who = {VIEW_APP: job.acls.viewers, MODIFY_APP: job.acls.modify}
    lists = {each: AccessList.of(names.users, names.groups) for each, names in who.items()}
    texts = {name: found.text for name, found in lists.items() if found != AccessList()}
    return {"application-acls": _entries(texts)} if texts else {}


def masked(context: dict[str, Any]) -> dict[str, Any]:
    """The submission context for people to read: of its credentials only the names, and Java's maps as plain ones."""
    container = {key: _plain(value) for key, value in context["am-container-spec"].items()}
    credentials = context["am-container-spec"]["credentials"].items()
    container["credentials"] = {kind: dict.fromkeys(_plain(values), MASK) for kind, values in credentials}
    return {**context, "am-container-spec": container}


def _plain(value: dict[str, Any]) -> Any:
    entries = value.get("entry")
    return {each["key"]: each["value"] for each in entries} if isinstance(entries, list) else value


def _local(resource: LocalizedResource) -> dict[str, Any]:
    return {
        "resource": uris.encoded(resource.uri),
        "type": "FILE",  # also for an archive: only a file that is not unpacked can be verified
        "visibility": "PRIVATE" if resource.is_verified else "APPLICATION",
        "size": resource.size,
        "timestamp": resource.modified_ms,
    }


def _credentials(credentials: Credentials) -> dict[str, Any]:
    tokens = {alias: token.to_url_string() for alias, token in credentials.tokens.items()}
    secrets = {name: base64.b64encode(secret).decode() for name, secret in credentials.secrets.items()}
    # No empty ones: Hadoop 2.10's JSON reader fails at an empty list.
    return {key: _entries(values) for key, values in (("tokens", tokens), ("secrets", secrets)) if values}


def _entries(mapping: dict[str, Any]) -> dict[str, Any]:
    """A Java map, as JAXB writes it."""
    return {"entry": [{"key": key, "value": value} for key, value in mapping.items()]}
