"""Several tries of one training, in every order of their steps, on a real store of this machine."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tony_provider.cluster.errors import StagingFailed
from tony_provider.cluster.training.checkpoint_chains import TakenOverError, TrainingOwners
from tony_provider.runtime.checkpoint.stored_checkpoint import Epoch, Owner, Stop, WaitingTry, epoch_number, owner_file
from tony_provider.runtime.common.codec import dump_json
from tony_provider.runtime.storage import uris
from tony_provider.runtime.storage.base import FileStatus
from tony_provider.runtime.storage.local import LocalStorage

NONE = Epoch()
STEPS = ("begin", "look", "take", "end_others", "submit")


def waiting(number: int, run: str, created: int) -> WaitingTry:
    """Return a try with an id as Airflow gives it, created at this time."""
    return WaitingTry(f"try {number}", number, run, f"01a21e31-{created:04}-7000-8000-000000000000")


@attrs.define
class World:
    """A store, and what runs on a cluster."""

    owners: TrainingOwners
    living: set[str] = attrs.field(factory=set)
    began: list[Try] = attrs.field(factory=list)

    def working(self) -> set[str]:
        """Applications that are not fenced."""
        return self.living & {self.owners.newest().owner.application_id}


@attrs.define(eq=False)
class Try:
    """A try that does a step whenever it is told to, as a worker does that freezes in between."""

    world: World
    number: int
    step: int = 0
    began: Epoch = NONE
    taken: Epoch = NONE
    waits_for: str = ""
    lost: bool = False

    @property
    def name(self) -> str:
        return f"try {self.number}"

    @property
    def waiting(self) -> WaitingTry:
        return waiting(self.number, "run 1", self.number)

    @property
    def application(self) -> str:
        return f"application_1_{self.number:04}"

    def go_on(self) -> None:
        if self.step < len(STEPS) and not self.lost:
            try:
                getattr(self, STEPS[self.step])()
            except TakenOverError:
                self.lost = True
        self.step += 1

    def begin(self) -> None:
        self.began = self.world.owners.begin(self.waiting)
        self.world.began.append(self)

    def look(self) -> None:
        owner = self.world.owners.newest().owner
        if owner.application_id in self.world.living and owner.stop is None:
            self.waits_for = owner.application_id

    def take(self) -> None:
        if not self.waits_for:
            self.taken = self.world.owners.add(self.began.number, Owner(self.application, "chain-0001", self.waiting))

    def end_others(self) -> None:
        if not self.waits_for and self.world.owners.newest() == self.taken:
            self.world.living.clear()

    def submit(self) -> None:
        if not self.waits_for:
            if self.world.owners.newest() != self.taken:
                raise TakenOverError("before its submission")
            self.world.living.add(self.application)
            self.waits_for = self.application

    def kill(self) -> None:
        """Its supervisor sends SIGTERM."""
        if self.waits_for:
            try:
                self.world.owners.stop(self.waits_for, Stop("ended"), self.name)
            except TakenOverError:
                return
            self.world.living.discard(self.waits_for)


def run(folder: Path, order: Sequence[int]) -> tuple[World, list[Try]]:
    """Let the tries with these numbers do a step each, in this order."""
    world = World(TrainingOwners(LocalStorage(), folder.as_uri()))
    tries = {number: Try(world, number) for number in sorted(set(order))}
    for number in order:
        tries[number].go_on()
    return world, list(tries.values())


def check(world: World, order: Sequence[int]) -> None:
    """The last of the tries that began has an application, which works, and no other one does."""
    last = max(world.began, key=lambda each: each.number)
    assert not last.lost, order
    assert world.working() == {last.waits_for}, order
    for other in world.began:
        if other is not last:
            other.kill()
    assert world.working() == {last.waits_for}, f"a zombie ended it: {order}"
    last.kill()
    assert not world.working(), order


def test_two_tries_in_every_order(tmp_path: Path) -> None:
    for number, order in enumerate(interleavings()):
        folder = tmp_path / str(number)
        folder.mkdir()
        world, _ = run(folder, order)
        check(world, order)


def interleavings() -> list[tuple[int, ...]]:
    """Return every order in which two tries can do their steps."""
    both = 2 * len(STEPS)
    return [
        tuple(1 if place in first else 2 for place in range(both))
        for first in itertools.combinations(range(both), len(STEPS))
    ]


@settings(max_examples=200, deadline=None)
@given(st.permutations([1] * len(STEPS) + [2] * len(STEPS) + [3] * len(STEPS)))
def test_three_tries(tmp_path_factory: pytest.TempPathFactory, order: list[int]) -> None:
    world, _ = run(tmp_path_factory.mktemp("store"), order)
    check(world, order)


def test_the_next_try_finds_an_order_to_stop(tmp_path: Path) -> None:
    world, (first,) = run(tmp_path, [1] * len(STEPS))
    world.owners.stop(first.application, Stop("marked as failed"), first.name)  # no server of the cluster answers
    second = Try(world, 2)
    second.begin()
    assert second.began.owner.stop == Stop("marked as failed")
    assert second.began.owner.application_id == first.application


def test_somebody_else_may_stop_any_application(tmp_path: Path) -> None:
    world, (first, second) = run(tmp_path, [1] * len(STEPS) + [2] * len(STEPS))
    assert second.waits_for == first.application
    world.owners.stop("application_9_0001", Stop("not the owner"), None)
    assert world.owners.newest().owner.stop is None
    world.owners.stop(first.application, Stop("by hand"), None)
    assert world.owners.newest().owner.stop == Stop("by hand")


def test_a_try_that_wakes_up_before_it_has_begun_loses_as_well(tmp_path: Path) -> None:
    world, (second,) = run(tmp_path, [2] * len(STEPS))
    first = Try(world, 1)
    first.go_on()
    assert first.lost
    assert world.working() == {second.application}


def test_tries_of_a_run_that_was_made_anew_begin_in_their_order(tmp_path: Path) -> None:
    owners = TrainingOwners(LocalStorage(), tmp_path.as_uri())
    owners.begin(waiting(3, "run 1", 3))
    assert owners.begin(waiting(1, "run 1", 4)).owner.whose.number == 1
    owners.begin(waiting(9, "run 1", 9))
    assert owners.begin(waiting(2, "run 2", 2)).owner.whose.run == "run 2"


def test_a_write_whose_answer_was_lost_is_recognised(tmp_path: Path) -> None:
    owners = TrainingOwners(LocalStorage(), tmp_path.as_uri())
    owner = Owner("application_1_0001", "chain-0001")
    assert owners.add(0, owner) == owners.add(0, owner)
    with pytest.raises(TakenOverError):
        owners.add(0, attrs.evolve(owner, application_id="application_1_0002"))


class Crowded(LocalStorage):
    """A storage on which another try adds an owner whenever somebody looks for the newest."""

    def list(self, uri: str) -> list[FileStatus]:
        found = super().list(uri)
        newest = max(epoch_number(file.name) or 0 for file in found)
        self.write(owner_file(uris.parent(uri), newest + 1), dump_json(Owner("application_1_0001")))
        return found


def test_an_order_to_stop_that_cannot_be_recorded_is_no_silence(tmp_path: Path) -> None:
    TrainingOwners(LocalStorage(), tmp_path.as_uri()).add(0, Owner("application_1_0001"))
    owners = TrainingOwners(Crowded(), tmp_path.as_uri())
    with pytest.raises(StagingFailed, match="other tries of this training keep writing to "):
        owners.stop("application_1_0001", Stop("by hand"), None)


def test_all_owners_of_a_training_are_removed(tmp_path: Path) -> None:
    owners = TrainingOwners(LocalStorage(), tmp_path.as_uri())
    owners.add(0, Owner("application_1_0001"))
    owners.remove()
    assert list(tmp_path.iterdir()) == []
