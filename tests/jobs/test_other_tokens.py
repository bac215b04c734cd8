"""Tokens beside the store's: of another nameservice, and of the key server of an encryption zone.

On a Kerberos cluster where tokens end within seconds and are looked up by host names. tests/cluster/test_hdfs_names.py,
tests/runtime/am/test_store_access.py and their like have what needs no such cluster.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hadoop.config import PRIVATE_KEY, PRIVATE_KEY_OWNER, key_server
from tests.hadoop.distribution import lay_out
from tests.hadoop.fixtures import StartHadoop
from tests.hadoop.settings import REALM, Settings
from tests.jobs.left import assert_nothing_left
from tests.jobs.places import USER, YarnPlace
from tests.jobs.test_token_renewal import (
    as_user,
    kill_master,
    short_tokens,
    until_ms,
    until_newer,
    until_over,
)
from tests.jobs.waiters import deferred
from tests.waiting import until
from tony_provider.cluster.errors import StagingFailed
from tony_provider.runtime.protocol.status import JobState
from tony_provider.runtime.storage.helpers import read_text, write_atomically

pytestmark = pytest.mark.long

LIFE_MS, INTERVAL_MS = 60_000, 40_000
ZONE = f"/user/{USER}/zone"
PRIVATE = f"/user/{USER}/private"  # DataNodes may not decrypt what lies there
READ = """set -e
if [ ! -e "$HERE/looked" ]; then echo zoned words | "$HADOOP_HOME"/bin/hdfs dfs -put - "$ZONED"; fi
look() { "$HADOOP_HOME"/bin/hdfs dfs -cat "$ZONED" && "$HADOOP_HOME"/bin/hdfs dfs -cat "$OTHER"; }
look
touch "$HERE/looked"
until [ -e "$HERE/end" ]; do sleep 0.2; done
look
echo result > "$TONY_OUTPUT_RESULTS/x"
echo weights > "$TONY_MODEL_DIR/model"
"""


@pytest.fixture(scope="module")
def zoned(start_hadoop: StartHadoop) -> Iterator[YarnPlace]:
    """Staging in an encryption zone of one nameservice, and another nameservice beside it."""
    properties = short_tokens(LIFE_MS, INTERVAL_MS)
    properties["core-site"]["hadoop.security.token.service.use_ip"] = "false"
    of_keys = "hadoop.kms.authentication.delegation-token"
    properties["kms-site"] = {
        f"{of_keys}.max-lifetime.sec": str(LIFE_MS // 1000),
        f"{of_keys}.renew-interval.sec": str(INTERVAL_MS // 1000),
    }
    cluster = start_hadoop(Settings(secure=True, namenodes=2, other_namenode=True, kms=True, properties=properties))
    cluster.make_zone(ZONE, USER, "open")
    cluster.make_zone(PRIVATE, PRIVATE_KEY_OWNER, PRIVATE_KEY)
    extra = {"staging_dir": f"{ZONE}/tony", "other_hdfs": f"{cluster.state.other_name}={cluster.state.other_webhdfs}"}
    with as_user(YarnPlace(extra, cluster=cluster)) as place:
        yield place


def spec_of(place: YarnPlace, here: Path) -> dict[str, Any]:
    """A job that reads a file of the zone and one of the other HDFS by Hadoop's own program, and writes to both."""
    cluster = place.cluster
    other = f"hdfs://{cluster.state.other_name}/user/{USER}/{here.name}"
    data = {"ZONED": f"{cluster.fs_default}{PRIVATE}/{here.name}", "OTHER": f"{other}/in/words"}
    write_atomically(place.hook().storage(), data["OTHER"], b"other words\n")
    env = {**data, "HERE": str(here), "HADOOP_HOME": str(lay_out(here / "hadoop", cluster.settings.version))}
    env["HADOOP_OPTS"] = f"-Djava.security.krb5.conf={cluster.layout.krb5_conf}"
    return {
        "hadoop": True,
        "env": env,
        "inputs": {"read": {"paths": [f"{other}/in"]}},
        "outputs": {"results": f"{other}/out"},
        "files": [f"{other}/in/words"],
        "restart": {"budget": 0},
        "tasks": {"worker": {"memory": "600MiB", "command": READ}},
    }


def test_a_training_in_a_zone_beside_another_nameservice_outlives_every_token(zoned: YarnPlace, tmp_path: Path) -> None:
    spec = spec_of(zoned, tmp_path)
    job = zoned.submit(spec)
    with deferred(job, zoned):
        job.until(JobState.RUNNING)
        until(lambda: (tmp_path / "looked").exists(), job.describe)
        first = until_ms(job)
        until_newer(job)
        until_over(job, first)
        until_newer(job)
        (tmp_path / "end").touch()
        job.end()
    job.succeeded()
    cluster, log = zoned.cluster, job.log("worker:0")
    services = {"ha-hdfs:tony-hdfs", cluster.state.other_name, key_server(cluster.state.addresses)}
    [told] = re.findall(r"hadoop: tokens for (.*); configuration as", log)
    assert set(told.split(", ")) == services
    assert (log.count("zoned words\n"), log.count("other words\n")) == (2, 2)
    assert read_text(zoned.hook().storage(), f"{spec['outputs']['results']}/worker-0/x") == "result\n"
    assert job.read("model/model") == "weights\n"
    assert_nothing_left(zoned, job)


def test_a_master_with_a_keytab_fetches_them_all(zoned: YarnPlace, tmp_path: Path) -> None:
    keytab = {"master_keytab": str(zoned.cluster.layout.keytab(USER)), "master_principal": f"{USER}@{REALM}"}
    place = YarnPlace({**zoned.extra, **keytab}, cluster=zoned.cluster)
    job = place.submit(spec_of(zoned, tmp_path), watched=False)
    job.until(JobState.RUNNING)
    first = until_ms(job)
    until_newer(job)
    until_over(job, first)
    kill_master(job)
    until_newer(job)
    (tmp_path / "end").touch()
    job.end()
    job.succeeded()
    log = job.log("worker:0")
    assert (log.count("zoned words\n"), log.count("other words\n")) == (2, 2)
    assert_nothing_left(place, job)


def test_a_zone_that_webhdfs_cannot_decrypt_is_refused_with_what_to_do(zoned: YarnPlace) -> None:
    place = YarnPlace({**zoned.extra, "staging_dir": f"{PRIVATE}/tony"}, cluster=zoned.cluster)
    with pytest.raises(StagingFailed, match=r"DECRYPT_EEK.*DataNodes decrypt as their own user.*HttpFS"):
        place.submit({"tasks": {"worker": {"memory": "128MiB", "command": "true"}}})


def test_the_doctor_looks_at_them(zoned: YarnPlace) -> None:
    report = str(zoned.hook().diagnose())
    state = zoned.cluster.state
    assert f"Key server {key_server(state.addresses)}: it gave a token" in report
    assert f"Other HDFS {state.other_name}: it answers" in report
