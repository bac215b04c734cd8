"""A cluster that places containers by rules: four nodes on two racks, some of them with attributes."""

from __future__ import annotations

from tests.hadoop.settings import Settings

LEFT, RIGHT = "/left", "/right"
HANDLER = "yarn.resourcemanager.placement-constraints.handler"
PLACING = Settings(
    nodemanagers=4,
    node_memory_mb=2048,
    node_vcores=16,
    racks=(LEFT, LEFT, RIGHT, RIGHT),
    node_attributes=("disk,STRING,ssd", "disk,STRING,hdd", "disk,STRING,ssd", ""),
    properties={"yarn-site": {HANDLER: "scheduler"}},
)
