"""What the DAG has published, read from the store as anybody would."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tony_provider.runtime.storage.base import Storage, read_bytes
from tony_provider.runtime.storage.uris import join

MINIMUM_ACCURACY = 0.95


@dataclass(frozen=True)
class Published:
    version: int
    accuracy: float
    model_dir: str
    application_id: str

    @classmethod
    def current(cls, storage: Storage, staging_dir: str) -> Published:
        """Raises StorageNotFound when nothing was published yet."""
        version: dict[str, Any] = json.loads(read_bytes(storage, join(staging_dir, "digits/models/current.json")))
        storage.status(join(version["model_dir"], "digits.keras"))
        return cls(version["version"], version["metrics"]["accuracy"], version["model_dir"], version["application_id"])

    def __str__(self) -> str:
        return f"held-out accuracy {self.accuracy:.4f}\nmodel: {self.model_dir}"
