"""How much the inputs of a job hold, and what a static deal makes of it, as far as can be seen from here in time."""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Sequence

import attrs

from tony_provider.runtime.inputs.balanced_deal import BalancedDeal
from tony_provider.runtime.inputs.finding import find
from tony_provider.runtime.inputs.stores import InputStores
from tony_provider.runtime.inputs.too_few import wanted
from tony_provider.runtime.spec.model import InputDeal, JobSpec
from tony_provider.runtime.storage import Storage, uris


@attrs.frozen
class Amount:
    """So many shards of so many bytes."""

    shards: int
    size: int


@attrs.frozen
class InputFigures:
    """What one input holds."""

    total: Amount
    smallest: Amount | None = None  # part of a static deal, by bytes
    largest: Amount | None = None


class _TooLongError(Exception):
    pass


class InputLook:
    """A look at all inputs of a job, in a thread of its own: a store may not answer."""

    def __init__(self, job: JobSpec, storage: Storage, store_uri: str, seconds: float) -> None:
        """``storage`` is the job's own store, which ``store_uri`` is in."""
        self._job = job
        self._storage = storage
        self._store_uri = store_uri
        self._seconds = seconds
        self._until = time.monotonic() + seconds
        self._found: dict[str, InputFigures | str] = {}

    def figures(self) -> dict[str, InputFigures | str]:
        """By input: what it holds, or why that cannot be said."""
        thread = threading.Thread(target=self._look, name="tony-inputs", daemon=True)
        thread.start()
        thread.join(self._seconds)
        found = dict(self._found)
        return {name: found.get(name, self._too_long) for name in self._job.inputs}

    @property
    def _too_long(self) -> str:
        return f"its store was not read within {self._seconds:g} s"

    def _look(self) -> None:
        stores = InputStores(self._storage, self._store_uri)
        try:
            for name in self._job.inputs:
                self._found[name] = self._figures(name, stores)
        finally:
            stores.close()

    def _figures(self, name: str, stores: InputStores) -> InputFigures | str:
        spec = self._job.inputs[name]
        if any(uris.scheme(path) == "file" != uris.scheme(self._store_uri) for path in spec.paths):
            return "it is on the disks of the nodes"
        try:
            sizes = array("Q", (shard.bytes_to_read for shard in find(name, spec, stores, self._check_time)))
        except _TooLongError:
            return self._too_long
        except Exception as error:  # noqa: BLE001 - whatever the drivers of other stores raise
            return str(error) or type(error).__name__
        total = Amount(len(sizes), sum(sizes))
        if spec.deal is InputDeal.QUEUE:
            return InputFigures(total)
        parts = _parts(sizes, wanted(self._job, name))
        return InputFigures(total, parts[0], parts[-1])

    def _check_time(self) -> None:
        if time.monotonic() > self._until:
            raise _TooLongError


def _parts(sizes: Sequence[int], number: int) -> list[Amount]:
    """The parts of a static deal, the smallest first."""
    deal = BalancedDeal.of(sizes, number)
    parts = [Amount(len(part), sum(sizes[shard] for shard in part)) for part in map(deal.part, range(number))]
    return sorted(parts, key=lambda part: part.size)
