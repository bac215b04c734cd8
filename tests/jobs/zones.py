"""A training whose staging directory is in an encryption zone, and that uses another nameservice beside its own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.config import key_server
from tests.hadoop.distribution import lay_out
from tests.jobs.job import Job
from tests.jobs.left import assert_nothing_left
from tests.jobs.places import USER, YarnPlace
from tests.jobs.renewals import short_tokens, until_first_is_over, until_newer
from tests.jobs.waiters import deferred
from tests.waiting import until
from tony_provider.runtime.protocol.status import JobState
from tony_provider.runtime.storage.base import read_text, write_atomically

# Its looks at the two files go by Hadoop's own program, which speaks with the NameNodes and the key server itself.
_READ = """set -e
if [ ! -e "$HERE/looked" ]; then echo zoned words | "$HADOOP_HOME"/bin/hdfs dfs -put - "$ZONED"; fi
look() { "$HADOOP_HOME"/bin/hdfs dfs -cat "$ZONED" && "$HADOOP_HOME"/bin/hdfs dfs -cat "$OTHER"; }
look
touch "$HERE/looked"
until [ -e "$HERE/end" ]; do sleep 0.2; done
look
echo result > "$TONY_OUTPUT_RESULTS/x"
echo weights > "$TONY_MODEL_DIR/model"
"""


def short_keys(life_ms: int, interval_ms: int) -> dict[str, dict[str, str]]:
    """Properties of a cluster whose tokens, those of its key server too, live for seconds, and go by hosts' names."""
    properties = short_tokens(life_ms, interval_ms)
    properties["core-site"]["hadoop.security.token.service.use_ip"] = "false"
    of_keys = "hadoop.kms.authentication.delegation-token"
    properties["kms-site"] = {
        f"{of_keys}.max-lifetime.sec": str(life_ms // 1000),
        f"{of_keys}.renew-interval.sec": str(interval_ms // 1000),
    }
    return properties


def beside(cluster: HadoopCluster, staging: str) -> dict[str, str]:
    """What a connection says of the two."""
    return {"staging_dir": staging, "other_hdfs": f"{cluster.state.other_name}={cluster.state.other_webhdfs}"}


def spec_of(place: YarnPlace, here: Path, private: str) -> dict[str, Any]:
    """A job that reads a file of each zone and one of the other HDFS by Hadoop's own program, and writes to both.

    ``here``: a folder that its processes may write to; ``private``: a directory in a zone.
    """
    cluster = place.cluster
    other = f"hdfs://{cluster.state.other_name}/user/{USER}/{here.name}"
    data = {"ZONED": f"{cluster.fs_default}{private}/{here.name}", "OTHER": f"{other}/in/words"}
    write_atomically(place.hook().storage(), data["OTHER"], b"other words\n")
    env = {**data, "HERE": str(here), "HADOOP_HOME": str(lay_out(here / "hadoop", cluster.settings.version))}
    env["HADOOP_OPTS"] = f"-Djava.security.krb5.conf={cluster.layout.krb5_conf}"
    if cluster.settings.https:  # as the ssl-client.xml of a node would name it
        trusted, password = cluster.layout.truststore, cluster.layout.tls_password.read_text()
        env["HADOOP_OPTS"] += f" -Djavax.net.ssl.trustStore={trusted} -Djavax.net.ssl.trustStorePassword={password}"
    return {
        "hadoop": True,
        "env": env,
        "inputs": {"read": {"paths": [f"{other}/in"]}},
        "outputs": {"results": f"{other}/out"},
        "files": [f"{other}/in/words"],
        "restart": {"budget": 0},
        "tasks": {"worker": {"memory": "600MiB", "command": _READ}},
    }


def outlives_every_token(place: YarnPlace, here: Path, private: str) -> Job:
    """Submit it, and let it end once its first tokens have ended and newer ones came twice; all of it must be right."""
    spec = spec_of(place, here, private)
    job = place.submit(spec)
    with deferred(job, place):
        job.until(JobState.RUNNING)
        until(lambda: (here / "looked").exists(), job.describe)
        until_first_is_over(job)
        until_newer(job)
        (here / "end").touch()
        job.end()
    job.succeeded()
    cluster, log = place.cluster, job.log("worker:0")
    services = {"ha-hdfs:tony-hdfs", cluster.state.other_name, key_server(cluster.settings, cluster.state.addresses)}
    [told] = re.findall(r"hadoop: tokens for (.*); configuration", log)
    assert set(told.split(", ")) == services
    assert_looked_twice(job)
    assert read_text(place.hook().storage(), f"{spec['outputs']['results']}/worker-0/x") == "result\n"
    assert job.read("model/model") == "weights\n"
    assert_nothing_left(place, job)
    return job


def assert_looked_twice(job: Job) -> None:
    log = job.log("worker:0")
    assert (log.count("zoned words\n"), log.count("other words\n")) == (2, 2)
