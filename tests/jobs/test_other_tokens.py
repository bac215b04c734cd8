"""Tokens beside the store's: of another nameservice, and of the key server of an encryption zone.

On a Kerberos cluster where tokens end within seconds and are looked up by host names.
tests/cluster/checks/test_hdfs_names.py and tests/runtime/am/test_store_access.py have what needs no such cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hadoop.config import PRIVATE_KEY, PRIVATE_KEY_OWNER, key_server
from tests.hadoop.fixtures import StartHadoop
from tests.hadoop.settings import Settings
from tests.jobs.left import assert_nothing_left
from tests.jobs.places import USER, YarnPlace
from tests.jobs.renewals import as_user, kill_master, until_first_is_over, until_newer, with_keytab
from tests.jobs.zones import assert_looked_twice, beside, outlives_every_token, short_keys, spec_of
from tony_provider.cluster.errors import StagingFailed

pytestmark = pytest.mark.long

ZONE = f"/user/{USER}/zone"
PRIVATE = f"/user/{USER}/private"  # DataNodes may not decrypt what lies there


@pytest.fixture(scope="module")
def zoned(start_hadoop: StartHadoop) -> Iterator[YarnPlace]:
    """Staging in an encryption zone of one nameservice, and another nameservice beside it."""
    properties = short_keys(life_ms=60_000, interval_ms=40_000)
    cluster = start_hadoop(Settings(secure=True, namenodes=2, other_namenode=True, kms=True, properties=properties))
    cluster.make_zone(ZONE, USER, "open")
    cluster.make_zone(PRIVATE, PRIVATE_KEY_OWNER, PRIVATE_KEY)
    with as_user(YarnPlace(beside(cluster, f"{ZONE}/tony"), cluster=cluster)) as place:
        yield place


def test_a_training_in_a_zone_beside_another_nameservice_outlives_every_token(zoned: YarnPlace, tmp_path: Path) -> None:
    outlives_every_token(zoned, tmp_path, PRIVATE)


def test_a_master_with_a_keytab_fetches_them_all(zoned: YarnPlace, tmp_path: Path) -> None:
    place = with_keytab(zoned)
    job = place.submit(spec_of(zoned, tmp_path, PRIVATE), watched=False)
    until_first_is_over(job)
    kill_master(job)
    until_newer(job)
    (tmp_path / "end").touch()
    job.end()
    job.succeeded()
    assert_looked_twice(job)
    assert_nothing_left(place, job)


def test_a_zone_that_webhdfs_cannot_decrypt_is_refused_with_what_to_do(zoned: YarnPlace) -> None:
    place = YarnPlace({**zoned.extra, "staging_dir": f"{PRIVATE}/tony"}, cluster=zoned.cluster)
    with pytest.raises(StagingFailed, match=r"DECRYPT_EEK.*DataNodes decrypt as their own user.*outside the zone"):
        place.submit({"tasks": {"worker": {"memory": "128MiB", "command": "true"}}})


def test_the_doctor_looks_at_them(zoned: YarnPlace) -> None:
    report = str(zoned.hook().diagnose())
    cluster = zoned.cluster
    assert f"Key server {key_server(cluster.settings, cluster.state.addresses)}: it issued a token" in report
    assert f"Other HDFS {cluster.state.other_name}: it answers" in report
