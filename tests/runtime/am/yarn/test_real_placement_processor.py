"""The other way of YARN to place by rules, which gives up what it cannot place at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.hadoop.cluster import HadoopCluster
from tests.hadoop.fixtures import StartHadoop
from tests.hadoop.placing import HANDLER, PLACING
from tests.runtime.am.yarn.leading import Led
from tests.waiting import until

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def cluster(start_hadoop: StartHadoop) -> Iterator[HadoopCluster]:
    processor = {"yarn-site": {HANDLER: "placement-processor"}}
    cluster = start_hadoop(replace(PLACING, nodemanagers=2, properties=processor))
    yield cluster
    cluster.stop()


def test_what_found_no_place_is_told_and_asked_for_again(cluster: HadoopCluster, tmp_path: Path) -> None:
    led = Led.submit(cluster, tmp_path)
    try:
        apart = {"constraints": [{"anti_affinity": ["ps"]}]}
        placed = led.ask([1, 2], 256, placement=apart, tags=["ps"])
        assert len({container["node"] for container in placed}) == 2
        led.tell("request", keys=[3], memory=256, placement=apart, tags=["ps"])
        (told,) = led.event("NotPlaced")
        assert told["key"] == 3
        assert "YARN finds no node that satisfies its placement constraints" in told["reason"]
        led.tell("release", containers=[placed[0]["id"]])
        until(lambda: 3 in {event["key"] for event in led.events("Allocated")}, led.logs)
        assert len(led.events("NotPlaced")) == 1
        # Withdrawn, it is not asked for again.
        led.tell("request", keys=[4], memory=256, placement=apart, tags=["ps"])
        led.event("NotPlaced", 2)
        led.tell("cancel", keys=[4])
        led.tell("release", containers=[placed[1]["id"]])
        led.ask([5], 256, placement=apart, tags=["ps"])
        assert {event["key"] for event in led.events("Allocated")} == {1, 2, 3, 5}
    finally:
        led.kill()
