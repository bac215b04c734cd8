"""The owners of a training, as Airflow's side reads and adds them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import attrs

from tony_provider.cluster.errors import StagingFailed
from tony_provider.cluster.record_files import read_record
from tony_provider.runtime.codec import dump_json
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import Before, Storage, right_away
from tony_provider.runtime.storage.errors import StorageExists, StorageNotEmpty, StorageNotFound
from tony_provider.runtime.training_owner import OWNERS_DIR, Epoch, Owner, Stop, WaitingTry, epoch_number, owner_file

_ATTEMPTS = 5  # to add an owner while other tries add theirs
_WITHOUT = "the owner before it counts"


class TakenOverError(StagingFailed):
    """Another try of the training has become its owner."""


@attrs.frozen
class TrainingOwners:
    """The owners of the training with this directory. All methods raise StorageError, and RecordUnreadable."""

    storage: Storage
    training_dir: str  # URI

    def newest(self) -> Epoch:
        """Return the present owner; number 0 if the training never had one."""
        return next(self.every(), Epoch())

    def every(self) -> Iterator[Epoch]:
        """Yield all owners, the newest first."""
        for number in self._numbers():
            if epoch := self._read(number):
                yield epoch

    def of_chain(self, chain: str) -> Owner | None:
        """Return the last owner that works or worked in the chain with this name, or None."""
        return next((each.owner for each in self.every() if each.owner.chain == chain), None)

    def add(self, before: int, owner: Owner, before_it_appears: Before = right_away) -> Epoch:
        """Make ``owner`` the owner if epoch ``before`` is still the newest. Raises TakenOverError otherwise."""
        epoch = Epoch(before + 1, owner)
        try:
            uri = owner_file(self.training_dir, epoch.number)
            self.storage.write(uri, dump_json(owner), before_it_appears=before_it_appears)
        except StorageExists as error:
            if self._read(epoch.number) != epoch:  # some storages repeat a write whose answer was lost
                raise TakenOverError(f"another try of this training has taken over {self.training_dir}") from error
        return epoch

    def begin(self, whose: WaitingTry) -> Epoch:
        """Begin a try of the task. From here on, tries that began before can neither submit nor end an application.

        If the training has no owner, the first try writes no file: its submission does. Raises TakenOverError if a
        later try has begun.
        """
        for _ in range(_ATTEMPTS):
            newest = self.newest()
            if whose.precedes(newest.owner.whose):
                raise TakenOverError(f"{newest.owner.whose.name} of this task has begun before {whose.name}")
            if newest.owner.whose == whose or (newest.number == 0 and whose.number == 1):
                return newest
            try:
                return self.add(newest.number, attrs.evolve(newest.owner, whose=whose))
            except TakenOverError:
                continue
        raise TakenOverError(f"other tries of this training keep taking over {self.training_dir}")

    def still(self, whose: WaitingTry) -> Epoch:
        """Return the present owner. Raises TakenOverError if a later try than this one has begun."""
        newest = self.newest()
        if newest.owner.whose.name not in ("", whose.name):
            raise TakenOverError(f"{newest.owner.whose.name} of this task has taken over {self.training_dir}")
        return newest

    def stop(self, application_id: str, stop: Stop, whose: str | None) -> None:
        """Record the order to end the owner. An application that is not the owner gets no record.

        ``whose``: the name of the try on whose behalf; None if no try wants it. Raises TakenOverError if a later try
        waits for the application; StagingFailed if other tries keep adding owners.
        """
        for _ in range(_ATTEMPTS):
            newest = self.newest()
            owner = newest.owner
            if owner.application_id != application_id or owner.stop is not None:
                return
            if whose is not None and owner.whose.name not in ("", whose):
                raise TakenOverError(f"{owner.whose.name} of its task waits for {application_id}, which goes on")
            try:
                self.add(newest.number, attrs.evolve(owner, stop=stop))
            except TakenOverError:
                continue
            return
        raise StagingFailed(f"other tries of this training keep writing to {self.training_dir}")

    def remove(self) -> None:
        """Remove all owners, because nothing of the training is left. An owner that is added meanwhile stays."""
        for number in self._numbers():
            self.storage.remove(owner_file(self.training_dir, number))
        with contextlib.suppress(StorageNotEmpty):
            self.storage.remove(uris.join(self.training_dir, OWNERS_DIR))

    def give_back(self, taken: Epoch, former: Epoch) -> None:
        """Return the training to its former owner after a submission that failed, unless another try owns it now."""
        every = list(self.every())
        if every[0].number != taken.number:
            return
        if any(each.owner.application_id for each in every[1:]):
            self.add(taken.number, attrs.evolve(former.owner, whose=taken.owner.whose))
            return
        self.remove()  # no application exists that could look for the next epoch

    def _read(self, number: int) -> Epoch | None:
        owner = read_record(self.storage, owner_file(self.training_dir, number), Owner, without=_WITHOUT)
        return None if owner is None else Epoch(number, owner)

    def _numbers(self) -> list[int]:
        try:
            found = self.storage.list(uris.join(self.training_dir, OWNERS_DIR))
        except StorageNotFound:
            return []
        numbers = (epoch_number(file.name) for file in found)
        return sorted((number for number in numbers if number is not None), reverse=True)
