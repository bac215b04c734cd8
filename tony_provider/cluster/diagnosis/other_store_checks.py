"""Checks of what jobs may need beside the staging directory's HDFS: other HDFS, and the key server."""

from __future__ import annotations

from collections.abc import Iterator

from tony_provider.cluster.diagnosis.finding import Finding, ok, warning
from tony_provider.cluster.errors import ClusterError
from tony_provider.cluster.open import OpenCluster
from tony_provider.runtime.storage.errors import StorageError

OTHER_HDFS = "Other HDFS"
KEY_SERVER = "Key server"


def check_other_hdfs(opened: OpenCluster) -> Iterator[Finding]:
    """Whether each answers us. Jobs that name none of them run without."""
    for each in opened.other_hdfs:
        what = f"{OTHER_HDFS} {each.name}"
        try:
            opened.storage.status(f"hdfs://{each.name}/")
            yield ok(what, "it answers")
        except StorageError as error:
            yield warning(what, str(error), "check its part of the connection's `other_hdfs`")


def check_key_server(opened: OpenCluster) -> Iterator[Finding]:
    """Whether it gives a token, which is cancelled again. Jobs that need no encryption zone run without."""
    if opened.tokens is None:
        return
    try:
        if uri := opened.tokens.try_key_server():
            yield ok(f"{KEY_SERVER} {uri}", "it gave a token")
    except (StorageError, ClusterError) as error:
        yield warning(KEY_SERVER, str(error), "set `key_server` in the connection: its URI, or `none`")
