"""The event files of jobs, copied to this machine in a thread beside the command, again and again."""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping
from pathlib import Path

from tony_provider.cluster.errors import ClusterError
from tony_provider.cluster.identity import Identity
from tony_provider.hooks.tony import TonyHook
from tony_provider.runtime.event_files.event_file_mirror import MOST_FILES, EventFileMirror, MirrorRound, is_event_file
from tony_provider.runtime.quantities import count, size
from tony_provider.runtime.storage.errors import StorageError

_SELDOM = 10  # times as long between two looks once no training runs
_END_SECONDS = 10.0  # for the thread to notice its end
_PROFILES = "plugins/profile/"  # what TensorBoard's profiler shows


def is_copied(name: str) -> bool:
    """Whether a file of a task is copied: event files and profiles.

    Nothing else, since some name files of this machine for TensorBoard to show, as a projector's configuration does.
    """
    return is_event_file(name) or _PROFILES in f"/{name}"


class EventFileCopy:
    """Copies what is new in its thread, from ``start`` to ``stop``. What people should know is in ``news``.

    :param sources: the directory here for each URI of a directory of event files.
    :param trainings: whose they are: as long as none of them runs, it looks more seldom.
    :param refresh: seconds between two looks.
    """

    def __init__(
        self,
        hook: TonyHook,
        sources: Mapping[str, Path],
        trainings: list[Identity],
        *,
        refresh: float,
        most_bytes: int,
    ) -> None:
        self._hook = hook
        self._trainings = trainings
        self._refresh = refresh
        self._most_bytes = most_bytes
        self._mirror = EventFileMirror(hook.storage(), sources, most_bytes, is_copied)
        self._given_up = threading.Event()
        self._thread = threading.Thread(target=self._work, name="event-files", daemon=True)
        self._said_left_out = self._said_cut = False
        self.looked = threading.Event()  # once at least
        self.news: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.trouble: Exception | None = None  # that the last look met with
        self.fault: Exception | None = None  # a mistake in here, which has ended the thread
        self.runs = True  # one of the trainings does, as far as is known

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the copying, also where the store does not answer; closes the hook."""
        self._given_up.set()
        self._hook.close()
        if self._thread.ident is not None:
            self._thread.join(_END_SECONDS)

    def held(self, directory: Path) -> tuple[int, int]:
        """How many files were copied to below that directory, and their bytes. Before ``start``, or after a look."""
        return self._mirror.held(directory)

    def _work(self) -> None:
        try:
            while not self._given_up.is_set():
                self._look()
                self.looked.set()
                self._given_up.wait(self._refresh if self.runs else _SELDOM * self._refresh)
        except Exception as fault:  # noqa: BLE001 - raised by the command
            self.fault = fault
            self.looked.set()

    def _look(self) -> None:
        trouble: Exception | None = None
        try:
            self.runs = any(self._hook.find(training) for training in self._trainings)
        except (ClusterError, StorageError) as error:  # the copies may go well all the same
            trouble = error
        try:
            done = self._mirror.round(self._given_up)
        except (StorageError, OSError) as error:
            self._tell_trouble(error)
            return
        self._tell_trouble(done.trouble or trouble)
        self._tell_left_out(done)

    def _tell_trouble(self, trouble: Exception | None) -> None:
        """When it begins, and when it is over; none of it once the end was asked for."""
        if self._given_up.is_set():
            return
        if trouble is not None and self.trouble is None:
            self.news.put(f"Not everything can be looked at for the moment; what is here is drawn on: {trouble}")
        elif trouble is None and self.trouble is not None:
            self.news.put("Everything can be looked at again")
        self.trouble = trouble

    def _tell_left_out(self, done: MirrorRound) -> None:
        if done.left_out and not self._said_left_out:
            self._said_left_out = True
            self.news.put(
                f"{count(done.left_out, 'file')} left out: more than {size(self._most_bytes)} would be copied; name "
                "fewer jobs, or give --most"
            )
        if done.is_cut and not self._said_cut:
            self._said_cut = True
            self.news.put(f"A job has more than {MOST_FILES:,} files there: the rest is left out")
