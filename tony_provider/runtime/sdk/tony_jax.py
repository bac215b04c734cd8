"""Make a tony job known to JAX as a cluster, so that ``jax.distributed.initialize()`` needs no arguments.

``initialize`` tries all subclasses of JAX's ClusterEnv. Ours is defined right after JAX has defined its own:
``watch_for_jax`` waits for that import, and imports nothing itself.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Optional

_MODULE = "jax._src.clusters"


def watch_for_jax() -> None:
    """Run ``define`` once JAX has been imported."""
    sys.meta_path.insert(0, _Watch())


class _Watch(importlib.abc.MetaPathFinder):
    """Finds JAX's module by the normal path search, once."""

    def find_spec(
        self, name: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    """Loads JAX's module, then defines our class."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Optional[ModuleType]:
        module: Optional[ModuleType] = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        _bind_coordinator()
        try:
            define(module.ClusterEnv)
        except Exception as error:  # noqa: BLE001 - a JAX of another kind: its own complaint is no reason to fail here
            sys.stderr.write(f"tony_jax: cannot set arguments of jax.distributed.initialize(), pass them: {error!r}\n")


def _bind_coordinator() -> None:
    """Bind rank 0's coordinator to the address by which other nodes know this node, instead of all addresses."""
    address = os.environ.get("TONY_LISTEN_ADDRESS")
    if address and os.environ.get("TONY_RANK") == "0":
        host = f"[{address}]" if ":" in address else address
        port = os.environ["TONY_RENDEZVOUS"].rpartition(":")[2]
        os.environ.setdefault("JAX_COORDINATOR_BIND_ADDRESS", f"{host}:{port}")


def define(base: Any) -> Any:
    """Define and return the class by which JAX knows the job.

    JAX tries it before its own classes, because a node may also belong to a Slurm cluster.
    """

    class TonyCluster(base):  # type: ignore[misc]
        name = "tony"

        @classmethod
        def is_env_present(cls) -> bool:
            return "TONY_RENDEZVOUS" in os.environ and "TONY_RANK" in os.environ

        @classmethod
        def get_coordinator_address(cls, *_: Any, **__: Any) -> str:
            return os.environ["TONY_RENDEZVOUS"]

        @classmethod
        def get_process_count(cls) -> int:
            return int(os.environ["TONY_WORLD_SIZE"])

        @classmethod
        def get_process_id(cls) -> int:
            return int(os.environ["TONY_RANK"])

        @classmethod
        def get_local_process_id(cls) -> None:
            return None  # all devices of the container belong to this process

    known = base._cluster_types
    known.insert(0, known.pop(known.index(TonyCluster)))
    return TonyCluster
