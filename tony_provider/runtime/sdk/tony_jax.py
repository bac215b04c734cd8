"""Make a tony job known to JAX as a cluster, so that ``jax.distributed.initialize()`` needs no arguments.

``initialize`` tries all subclasses of JAX's ClusterEnv. Our subclass is defined right after JAX has defined its own
subclasses: ``watch_for_jax`` waits until the program imports JAX, and imports nothing itself.
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
    """Import hook that finds JAX's module by the normal path search. Removes itself after the first use."""

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
    """Loads JAX's module, then defines our subclass."""

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
        except Exception as error:  # noqa: BLE001 - another version of JAX may differ; programs can pass arguments
            sys.stderr.write(
                f"tony_jax: cannot set the arguments of jax.distributed.initialize(); pass them yourself: {error!r}\n"
            )


def _bind_coordinator() -> None:
    """Make rank 0's coordinator listen only at the address that other nodes use for this node, not at all addresses."""
    address = os.environ.get("TONY_LISTEN_ADDRESS")
    if address and os.environ.get("TONY_RANK") == "0":
        host = f"[{address}]" if ":" in address else address
        port = os.environ["TONY_RENDEZVOUS"].rpartition(":")[2]
        os.environ.setdefault("JAX_COORDINATOR_BIND_ADDRESS", f"{host}:{port}")


def define(base: Any) -> Any:
    """Define and return the class that describes the job to JAX.

    JAX tries this class before its own classes, because a node may also belong to a Slurm cluster.
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
