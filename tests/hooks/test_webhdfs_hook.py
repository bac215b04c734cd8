"""A connection of Airflow's own type ``webhdfs`` means to us what it means to Airflow's WebHDFSHook."""

from __future__ import annotations

import random
import uuid
from pathlib import Path
from urllib.parse import urlsplit

from airflow.providers.apache.hdfs.hooks.webhdfs import WebHDFSHook

from tests.hadoop.cluster import HadoopCluster
from tests.hooks.conftest import AddConnection
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.storage.base import read_bytes
from tony_provider.runtime.storage.uris import join


def test_both_hooks_see_the_same_files_as_the_same_user(
    add_connection: AddConnection, hadoop: HadoopCluster, tmp_path: Path
) -> None:
    address = urlsplit(hadoop.webhdfs[0])
    add_connection("nn", "webhdfs", host=address.hostname, port=address.port, login="alice")
    add_connection("tony_default", host=",".join(hadoop.rm_webapp), extra={"webhdfs_conn_id": "nn"})
    path = f"/user/alice/both-{uuid.uuid4().hex}"
    content = random.randbytes(1000)
    (tmp_path / "file").write_bytes(content)

    airflows = WebHDFSHook("nn")
    airflows.load_file(str(tmp_path / "file"), path)
    with TonyHook() as hook:
        uri = join(hadoop.fs_default, path)
        assert read_bytes(hook.storage(), uri) == content
        assert hook.storage().status(uri).owner == "alice"
        hook.storage().remove(uri)
    assert not airflows.check_for_path(path)
