"""Files that describe a training and its owner: the chain file, written by the Airflow side, and the owner's epochs."""

from __future__ import annotations

import re
from typing import Optional

import attrs

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
