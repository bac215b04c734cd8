"""Whom a master takes for YARN's proxy when the ResourceManager says that its web address is 0.0.0.0."""

from __future__ import annotations

import http.client
import json
from pathlib import Path

import pytest

from tests.hadoop.fixtures import StartHadoop
from tests.hadoop.settings import Settings
from tests.jobs.places import USER, YarnPlace, transport
from tests.secure.victim import Victim
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.protocol.status import JobState

ORDER = json.dumps({"reason": "by a stranger on the master's node"})


@pytest.mark.long
def test_a_process_of_the_master_s_node_is_no_proxy(
    start_hadoop: StartHadoop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Airflow reaches the ResourceManager at its own loopback here, as beside it, or through an SSH tunnel."""
    cluster = start_hadoop(Settings(web_everywhere=True))
    port = cluster.rm_webapp[0].rpartition(":")[2]
    extra = {"webhdfs": ",".join(cluster.webhdfs), **transport(cluster)}
    connection = {"conn_type": "tony", "login": USER, "host": f"http://127.0.0.1:{port}", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_TONY_LOOPBACK", json.dumps(connection))
    place = YarnPlace(cluster=cluster)
    tasks = {"worker": {"memory": "128MiB", "command": "sleep 600"}}
    with TonyHook("tony_loopback") as hook:
        job = place.submit({"tasks": tasks}, hook=hook)
        job.until(JobState.RUNNING)
        host, web = Victim(place, job, tmp_path / "none").ports()["web"]
        for method, path, body in (("GET", "/status", None), ("PUT", "/control/stop", ORDER)):
            asking = http.client.HTTPConnection(host, web, timeout=20, source_address=("127.0.0.1", 0))
            headers = {"Cookie": f"proxy-user={USER}", "Content-Type": "application/json"}
            asking.request(method, path, body, headers)
            answer = asking.getresponse()
            assert answer.status == 403, f"{method} {path}: {answer.status} {answer.read(300)!r}"
            assert b"web proxy only" in answer.read()
            asking.close()
        assert hook.job(job.id, job.identity).master_status().state is JobState.RUNNING, "by YARN's own proxy"
        place.close()
