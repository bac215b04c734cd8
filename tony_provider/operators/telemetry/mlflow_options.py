"""The operator's argument ``mlflow``, and the connection that it names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook

from tony_provider.exceptions import TonySpecError
from tony_provider.runtime.spec.reader import suggestion

_KEYS = ["conn_id", "experiment", "run_name"]
# How the client of MLflow, here and in the job's tasks, is told what the connection says.
_USER, _PASSWORD, _TOKEN = "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN"


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
            raise TonySpecError(f"mlflow: should be the id of a connection, or a mapping with a conn_id, not {given!r}")
        if unknown := sorted(set(given) - set(_KEYS)):
            hint = suggestion(unknown[0], _KEYS)
            raise TonySpecError(f"mlflow: {unknown[0]!r} is not known{hint}; it may hold {', '.join(_KEYS)}")
        for key, value in given.items():
            if not (value is None or isinstance(value, str)):
                raise TonySpecError(f"mlflow.{key}: should be text, not {value!r}")
        if not given.get("conn_id"):
            raise TonySpecError("mlflow.conn_id: is needed: the id of a connection with the address of the server")
        return cls(given["conn_id"], given.get("experiment") or None, given.get("run_name") or None)


@attrs.frozen
class MlflowServer:
    """Where a tracking server is, and who asks it."""

    uri: str  # http://…, databricks://…, or a store of MLflow's that needs no server, such as sqlite:///…
    credentials: Mapping[str, str] = attrs.field(repr=False)  # by the environment variables that MLflow reads

    @classmethod
    def of_connection(cls, conn_id: str) -> MlflowServer:
        """Of Airflow's connection, whatever its type. Raises TonySpecError; else as Airflow does."""
        try:
            found = BaseHook.get_connection(conn_id)
        except AirflowNotFoundException as error:
            raise TonySpecError(
                f"mlflow: there is no connection {conn_id!r}. Add it with\n"
                f"  airflow connections add {conn_id} --conn-type http --conn-host http://mlflow.example.com:5000"
            ) from error
        uri = found.extra_dejson.get("tracking_uri") or _address(found.host, found.schema, found.port)
        if not uri:
            raise TonySpecError(
                f"mlflow: the connection {conn_id!r} has no host, such as http://mlflow.example.com:5000"
            )
        secret = found.password or ""
        if not secret:
            return cls(uri, {})
        return cls(uri, {_USER: found.login, _PASSWORD: secret} if found.login else {_TOKEN: secret})


def _address(host: str | None, scheme: str | None, port: int | None) -> str:
    if not host:
        return ""
    address = host if "://" in host else f"{scheme or 'http'}://{host}"
    return f"{address}:{port}" if port else address
