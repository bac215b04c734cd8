"""The inputs of one start of the user process: its parts in files, and the socket where it takes shards."""

from __future__ import annotations

import asyncio
import logging
import shutil
from pathlib import Path

import attrs

from tony_provider.runtime import contract
from tony_provider.runtime.cancellation import Cancelled
from tony_provider.runtime.executor.executor_context import ExecutorContext
from tony_provider.runtime.executor.fetched_shards import FetchedShards, ShardChangedError
from tony_provider.runtime.executor.input_parts import fetch_part
from tony_provider.runtime.executor.input_requests import InputRequests
from tony_provider.runtime.executor.preparation import PreparationError
from tony_provider.runtime.executor.run_outputs import RunOutputs
from tony_provider.runtime.executor.shard_server import NotFetchedError, ShardServer, TakenShard
from tony_provider.runtime.inputs.shard import InputShard
from tony_provider.runtime.inputs.stores import InputStores
from tony_provider.runtime.protocol import tony_pb2
from tony_provider.runtime.spec.model import InputDeal
from tony_provider.runtime.storage import StorageNotFound

log = logging.getLogger(__name__)


class RunInputs:
    """What one start finds of the job's inputs. ``open`` it at most once, and ``close`` it."""

    def __init__(self, context: ExecutorContext, start: int, requests: InputRequests, outputs: RunOutputs) -> None:
        container = context.container
        job = container.job
        read = [name for name in job.inputs if container.task_type in job.readers(name)]
        self._queued = [name for name in read if job.inputs[name].deal is InputDeal.QUEUE]
        self._static = [name for name in read if name not in self._queued]
        self._workspace = context.workspace
        self._requests = requests
        self._stores = InputStores(context.storage, container.description.application_dir)
        self._socket = Path(context.workspace.tmpdir, f"inputs-{start}")
        self._copies = FetchedShards(self._stores, context.workspace.inputs)
        self._copied = frozenset(name for name in read if job.inputs[name].fetch)
        shards = NodeShards(self._stores, self._copies, self._copied)
        self._server = ShardServer(
            self._socket, requests, start, shards, outputs.copy, list(container.user_secrets.values())
        )

    @property
    def held(self) -> list[tony_pb2.HeldShards]:
        """The shards that the process has taken, and is not done with."""
        return self._server.held

    async def open(self) -> dict[str, str]:
        """Fetch the parts and open the socket; returns the variables that say where they are.

        Raises PreparationError, OSError.
        """
        environ = {}
        directory = self._workspace.inputs
        for name in self._queued:  # what a former start has left
            await asyncio.to_thread(shutil.rmtree, directory / name, ignore_errors=True)
        for name in self._static:
            await asyncio.to_thread(directory.mkdir, mode=0o700, exist_ok=True)
            path = directory / f"{name}.jsonl"
            await fetch_part(self._requests, name, path)
            if name in self._copied:
                await self._copy_part(name, path)
            environ[contract.ENV_INPUT_PREFIX + name.upper()] = str(path)
        if self._queued:
            await self._server.open()
            environ[contract.ENV_INPUT_QUEUES] = ",".join(self._queued)
            environ[contract.ENV_INPUT_SOCKET] = str(self._socket)
        return environ

    async def close(self) -> None:
        """Hear the process no more: it has ended."""
        self._copies.cancel()
        await self._server.close()
        self._stores.close()

    async def _copy_part(self, name: str, part: Path) -> None:
        try:
            await asyncio.to_thread(self._copies.copy_part, name, part)
        except asyncio.CancelledError:
            self._copies.cancel()
            raise
        except Cancelled:
            raise
        except Exception as error:  # the drivers of other stores raise whatever they like
            raise PreparationError(f"its part of the input {name} could not be copied: {error}") from error


@attrs.frozen
class NodeShards:
    """Looks at the shards that are taken, and copies those that are wanted here."""

    stores: InputStores
    copies: FetchedShards
    copied: frozenset[str]  # names of inputs

    def take(self, name: str, number: int, line: bytes) -> TakenShard:
        problem = shard_problem(self.stores, line)
        if problem or name not in self.copied:
            return TakenShard(problem)
        try:
            return TakenShard(path=str(self.copies.copy(name, number, InputShard.of_line(line))))
        except ShardChangedError as error:
            return TakenShard(str(error))
        except Exception as error:  # the drivers of other stores raise whatever they like
            raise NotFetchedError(f"shard {number} could not be copied: {error}") from error

    def settle(self, name: str, number: int) -> None:
        if name in self.copied:
            self.copies.remove(name, number)


def shard_problem(stores: InputStores, line: bytes) -> str:
    """Why a shard is not what was listed. Blocks. What only the store's state says, the program is left to find."""
    shard = InputShard.of_line(line)
    try:
        now = InputShard.of_status(stores.of(shard.uri).status(shard.uri))
    except StorageNotFound:
        return f"{shard.uri} was listed, and is not there any more"
    except Exception:  # the drivers of other stores raise whatever they like
        log.warning("whether %s is as it was listed cannot be seen", shard.uri, exc_info=True)
        return ""
    if now.size != shard.size or (now.modified_ms and now.modified_ms != shard.modified_ms):
        return f"{shard.uri} has changed since it was listed"
    return ""
