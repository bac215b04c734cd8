"""Permissions of files on HDFS, for tests that lock something: nothing of the product changes them."""

from __future__ import annotations

from urllib.parse import urlsplit

from tests.hadoop.cluster import HadoopCluster


def set_permission(hadoop: HadoopCluster, owner: str, uri: str, permission: int) -> None:
    """As the file's ``owner``."""
    url = f"{hadoop.webhdfs[0]}/webhdfs/v1{urlsplit(uri).path}"
    hadoop.client(owner).request("PUT", url, query={"op": "SETPERMISSION", "permission": f"{permission:o}"})
