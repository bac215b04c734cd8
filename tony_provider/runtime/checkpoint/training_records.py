"""Files that describe a training and its owner, and the identifier of a checkpoint to resume from.

The Airflow side writes the chain file and the owner's epochs.
"""

from __future__ import annotations

import re
from typing import Optional

import attrs

from tony_provider.runtime.common import clock, quantities
from tony_provider.runtime.storage import uris


@attrs.frozen
class ChainRecord:
    """Content of ``chain.json``, which identifies the training. Created exclusively, before all other files."""

    fingerprint: dict[str, str]  # hashes, by the key of each part whose change makes it another training
    continues: Optional[str] = None  # URI of another chain, or of one of its checkpoints, with which this chain begins
    warm_start: Optional[str] = None  # URI of the model that provided the initial weights
    created_ms: int = 0  # epoch
    version: int = 1


OWNERS_DIR = "owners"  # in the training's directory
_NAME = re.compile(r"(\d{8})\.json")


@attrs.frozen
class Stop:
    """A recorded order to end the application, which its master finds even if no server of YARN answers."""

    reason: str  # for the application's diagnostics
    grace: Optional[float] = None  # seconds for user processes to end; None: as the job specifies


@attrs.frozen
class WaitingTry:
    """Try of an Airflow task that waits for an application."""

    name: str = ""  # see TryInfo.name; empty: no try waits, such as after a submission from the command line
    number: int = 0
    run: str = ""  # names the run of the task within which the numbers of tries compare
    id: str = ""  # Airflow's UUID of the try; version 7 begins with the time of its creation

    def precedes(self, other: WaitingTry) -> bool:
        """Return whether the other try is a later one of the same run of the task.

        A run that was deleted and created again counts from 1 again, but its tries have later IDs.
        """
        is_earlier = self.id[14:15] == other.id[14:15] == "7" and self.id < other.id
        return self.run == other.run and self.number < other.number and is_earlier


NO_TRY = WaitingTry()


@attrs.frozen
class Owner:
    """The content of an owner's file."""

    application_id: str  # may commit checkpoints; empty: no application yet
    chain: str = ""  # name of its checkpoint chain's directory
    whose: WaitingTry = NO_TRY  # the newest try that has submitted or found the application
    stop: Optional[Stop] = None
    version: int = 1


@attrs.frozen
class Epoch:
    """An owner with its number; number 0 precedes the first owner."""

    number: int = 0
    owner: Owner = Owner("")


def owner_file(training_dir: str, number: int) -> str:
    """Return the URI of the file of an epoch."""
    return uris.join(training_dir, OWNERS_DIR, f"{number:08}.json")


def epoch_number(name: str) -> Optional[int]:
    """Return the number of the epoch whose file has this name, or None for other files."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


@attrs.frozen
class ResumePoint:
    """Identifies one checkpoint of a training, in messages, in the event log and in ``status.json``.

    The checkpoint with the highest ``save`` is the newest.
    """

    step: Optional[int]  # None if neither the program nor its files have a step
    uri: str  # in the storage; empty if the checkpoint is not stored
    save: int = 0  # number of the checkpoint in its training; 0 if unknown
    saved_ms: int = 0  # epoch, when the program saved it, by its node's clock; 0 if unknown
    checksum: str = ""  # of its manifest; empty if unknown
    reported: bool = False  # the files contain no step, so ``step`` is the one that the program reported last
    reported_step: Optional[int] = None  # that the program reported last before the snapshot
    files: int = 0  # 0 if unknown
    size: int = 0  # bytes of all its files
    sent: int = 0  # bytes that were uploaded for it; the other bytes were uploaded for older checkpoints

    @property
    def label(self) -> str:
        """The checkpoint's name for people, such as ``snapshot 12 (step 40, saved 14:03:12 UTC)``."""
        facts = [f"step {self.step}"] if self.step is not None else []
        if self.saved_ms:
            facts.append(f"saved {clock.time_of_day(self.saved_ms)}")
        stored = f"snapshot {self.save}" if self.save else "a snapshot"
        name = stored if self.uri else "its directory"
        return f"{name} ({', '.join(facts)})" if facts else name

    @property
    def extent(self) -> str:
        """Size for people: ``3.1 GiB in 42 files, 120 MiB new``; empty if unknown."""
        if not self.files:
            return ""
        return (
            f"{quantities.size(self.size)} in {quantities.count(self.files, 'file')}, {quantities.size(self.sent)} new"
        )

    @property
    def description(self) -> str:
        """Label and extent."""
        return f"{self.label}: {self.extent}" if self.extent else self.label

    def is_later_step(self, than: ResumePoint) -> Optional[bool]:
        """Return whether the step is later than that of ``than``, or None if the steps do not show this.

        They do not if a step is unknown, if both are equal, or if one is from a report and the other from files, which
        may count different things.
        """
        if self.step is None or than.step is None or self.step == than.step or self.reported != than.reported:
            return None
        return self.step > than.step

    def was_not_loaded(self, first_step: int) -> bool:
        """Return whether a program whose first reported step is ``first_step`` has not resumed from this checkpoint.

        The step in files may count other things than reports do, such as epochs. So it is compared only if the program
        had reported at least half of it before the snapshot.
        """
        if self.step is None:
            return False
        if self.reported:  # reports continue during the snapshot, so only a much earlier step counts
            return 2 * first_step < self.step
        return first_step < self.step and 2 * (self.reported_step or 0) >= self.step
