"""JAX: rank 1 raises an exception in the first generation, while the others wait for it in a collective operation."""

from __future__ import annotations

import os

import jax
import numpy as np
from jax.experimental import multihost_utils

jax.distributed.initialize()
multihost_utils.process_allgather(np.ones(1))
if os.environ["TONY_GENERATION"] == "1" and jax.process_index() == 1:
    raise ValueError("a bad sample")
multihost_utils.process_allgather(np.ones(1))
