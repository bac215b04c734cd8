"""YARN's names of resources that a specification has fields of its own for.

See org.apache.hadoop.yarn.api.records.ResourceInformation.
"""

from __future__ import annotations

MEMORY = "memory-mb"  # MiB
VCORES = "vcores"
GPU = "yarn.io/gpu"
