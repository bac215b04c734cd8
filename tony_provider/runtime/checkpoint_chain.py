"""The file by which a checkpoint chain describes itself. Airflow's side writes it."""

from __future__ import annotations

from typing import Optional

import attrs


@attrs.frozen
class CheckpointChain:
    """``chain.json``: what is trained in the chain. There before anything else, by exclusive creation."""

    fingerprint: dict[str, str]  # a hash by the key of each thing that makes another training of it
    continues: Optional[str] = None  # URI of another chain, or of one of its checkpoints, with which this chain begins
    warm_start: Optional[str] = None  # URI of the model that initial weights were taken from
    created_ms: int = 0  # epoch
    version: int = 1
