"""The operator's argument ``mlflow``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from tony_provider.exceptions import TonySpecError
from tony_provider.runtime.spec.problems import shown
from tony_provider.runtime.spec.reader import suggestion

_KEYS = ["conn_id", "experiment", "run_name"]


@attrs.frozen
class MlflowOptions:
    """Which MLflow server a training is told to, and how it is called there."""

    conn_id: str
    experiment: str | None = None
    run_name: str | None = None

    @classmethod
    def of(cls, given: Any) -> MlflowOptions | None:
        """The rendered argument; None for nothing. Raises TonySpecError."""
        if not given:
            return None
        if isinstance(given, str):
            return cls(given)
        if not isinstance(given, Mapping):
            raise TonySpecError(
                f"mlflow: should be the id of a connection, or a mapping with a conn_id, not {shown(given)}"
            )
        if unknown := sorted(set(given) - set(_KEYS)):
            hint = suggestion(unknown[0], _KEYS)
            raise TonySpecError(f"mlflow: {shown(unknown[0])} is not known{hint}; it may hold {', '.join(_KEYS)}")
        for key, value in given.items():
            if not (value is None or isinstance(value, str)):
                raise TonySpecError(f"mlflow.{key}: should be text, not {shown(value)}")
        if not given.get("conn_id"):
            raise TonySpecError("mlflow.conn_id: is needed: the id of a connection with the address of the server")
        return cls(given["conn_id"], given.get("experiment") or None, given.get("run_name") or None)
