"""Which HDFS a job's URIs may name: the staging directory's, those of the connection, and no unknown one in silence."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from tony_provider.cluster.checks.job_checks import check_hdfs_names, job_uris
from tony_provider.cluster.findings import Finding, Severity
from tony_provider.cluster.open_cluster import OpenCluster
from tony_provider.runtime.application import OtherHdfs
from tony_provider.runtime.parsing.parse import parse_job
from tony_provider.runtime.storage.webhdfs.transport import WebHdfsConfig

WEBHDFS = WebHdfsConfig(["http://nn1:9870"])
PROPERTIES = {
    "fs.defaultFS": "hdfs://prod",
    "dfs.nameservices": "prod,archive",
    "dfs.namenode.rpc-address.prod.nn1": "nn1.example.com:8020",
}


def findings(*paths: str, **more: Any) -> list[Finding | str]:
    job: dict[str, Any] = {"framework": "standalone", "tasks": {"worker": {"command": "true"}}, **more}
    job["inputs"] = {"data": {"paths": list(paths)}} if paths else {}
    opened = SimpleNamespace(
        staging_dir="hdfs://prod/user/alice/.tony",
        nodes_webhdfs=WEBHDFS,
        other_hdfs=[OtherHdfs("backup", WEBHDFS)],
        cluster=SimpleNamespace(client_configuration=lambda: PROPERTIES),
    )
    return list(check_hdfs_names(job_uris(parse_job(job)), cast(OpenCluster, opened)))


def problems(*paths: str, **more: Any) -> list[str]:
    found = findings(*paths, **more)
    return [each for each in found if isinstance(each, str)]


def test_what_is_known_is_fine() -> None:
    known = ["hdfs:///data", "hdfs://prod/data", "hdfs://PROD/data", "hdfs://nn1.example.com:8020/data"]
    assert findings(*known, "hdfs://backup/data", "/mnt/data") == []


def test_another_nameservice_of_the_cluster_is_refused_with_what_to_do() -> None:
    [file, data] = problems("hdfs://archive/data", files=["hdfs://archive/words"])
    assert file.startswith("files[0]: hdfs://archive is not the HDFS of the staging directory; add it to")
    assert data.startswith("inputs.data.paths[0]: hdfs://archive is not the HDFS")
    assert "`other_hdfs`, such as archive=http://" in file


def test_so_is_one_that_credentials_of_registries_are_on() -> None:
    [problem] = problems(docker={"image": "tf", "client_config": "hdfs://archive/config.json"})
    assert problem.startswith("docker.client_config: hdfs://archive is not the HDFS")


def test_a_view_is_refused() -> None:
    [problem] = problems("viewfs://all/data")
    assert "inputs.data.paths[0]: viewfs://… is not an HDFS but a client-side view" in problem


def test_what_nobody_can_tell_is_told() -> None:
    [finding] = findings("hdfs://elsewhere.example.com:8020/data")
    assert isinstance(finding, Finding)
    assert finding.outcome is Severity.WARNING
    assert "hdfs://elsewhere.example.com:8020 is assumed to be the HDFS of hdfs://prod/user/alice/.tony" in str(finding)
