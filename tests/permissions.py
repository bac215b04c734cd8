"""Permissions of files on HDFS and on this machine, for tests that lock or open something."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from tests.hadoop.cluster import HadoopCluster


def set_permission(hadoop: HadoopCluster, owner: str, uri: str, permission: int) -> None:
    """As the file's ``owner``."""
    url = f"{hadoop.webhdfs[0]}/webhdfs/v1{urlsplit(uri).path}"
    hadoop.client(owner).request("PUT", url, query={"op": "SETPERMISSION", "permission": f"{permission:o}"})


def open_to_all(folder: Path) -> None:
    """Let containers of other users read the folder. Directories above it that are closed to them are opened, too."""
    for each in (folder, *folder.parents):
        if each.stat().st_mode & 0o005 != 0o005:
            each.chmod(0o755)
