"""Which checkpoints of a task are copied to the store: its own newest, or the one that every rank has."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Sequence
from typing import Callable, Optional

from tony_provider.runtime.checkpoint.checkpoint_model import LocalCheckpoint
from tony_provider.runtime.checkpoint.resume_point import label
from tony_provider.runtime.executor.checkpoint_directory import CheckpointDirectory
from tony_provider.runtime.executor.checkpoint_uploader import CheckpointUploader, UploadTarget, UploadTrouble
from tony_provider.runtime.executor.commit_requests import Send
from tony_provider.runtime.executor.order import Order
from tony_provider.runtime.protocol import tony_pb2

_NO_STEP = "with checkpoint.mirror: all every save must say its step, or it cannot be told which belong together"
_NOT_COMMON = "with checkpoint.mirror: all a step counts that every rank has saved, and not all have saved this one's"

ReportedStep = Callable[[], Awaitable[Optional[int]]]  # by the user process, last


class Copies(ABC):
    """Chooses what a mirror copies, and copies it. ``copy`` it again and again."""

    def __init__(self, directory: CheckpointDirectory, uploader: CheckpointUploader, reported: ReportedStep) -> None:
        self.activity = ""  # for people; empty while there is nothing to copy
        self._directory = directory
        self._uploader = uploader
        self._reported = reported

    async def copy(self, *, last: bool) -> Optional[UploadTrouble]:
        """Copy what there is to copy now; None: nothing is left of it. ``last``: the user process has ended.

        Raises OSError when the directory cannot be read.
        """
        try:
            return await self._copy(last)
        finally:
            self.activity = ""

    @abstractmethod
    def wanted(self, message: tony_pb2.CopyCheckpoint) -> None:
        """Choose the checkpoint that the application master names, for the next ``copy``."""

    @property
    def said(self) -> Sequence[tony_pb2.FromExecutor]:
        """The messages that an application master which missed them must hear."""
        return ()

    @abstractmethod
    async def _copy(self, last: bool) -> Optional[UploadTrouble]: ...

    async def _newer(self, last: bool) -> list[LocalCheckpoint]:
        return await self._uploader.in_thread(self._directory.newer, await self._reported(), last)

    async def _carry(
        self, checkpoint: LocalCheckpoint, target: Optional[UploadTarget] = None
    ) -> Optional[UploadTrouble]:
        save = target.save if target else self._directory.next_save
        self.activity = f"uploading the checkpoint of {label(checkpoint.step, save, checkpoint.saved_ms)}"
        return await self._uploader.carry(checkpoint, target)


class OwnCopies(Copies):
    """Copies of the newest checkpoints of one task, which are the training's."""

    def wanted(self, message: tony_pb2.CopyCheckpoint) -> None:
        """Do nothing: nobody names one."""

    async def _copy(self, last: bool) -> Optional[UploadTrouble]:
        newer = await self._newer(last)
        return await self._carry(newer[-1]) if newer else None


class GangCopies(Copies):
    """Copies of the same checkpoints from every rank.

    This one says what it holds, and the application master names one that all hold.
    """

    def __init__(
        self,
        directory: CheckpointDirectory,
        uploader: CheckpointUploader,
        reported: ReportedStep,
        order: Order,
        send: Send,
    ) -> None:
        super().__init__(directory, uploader, reported)
        self._order = order
        self._send = send
        self._held: Optional[tony_pb2.CheckpointsHeld] = None  # as it was told last
        self._named: asyncio.Queue[tony_pb2.CopyCheckpoint] = asyncio.Queue()

    def wanted(self, message: tony_pb2.CopyCheckpoint) -> None:
        if message.start == self._order.start:
            self._named.put_nowait(message)

    @property
    def said(self) -> Sequence[tony_pb2.FromExecutor]:
        return () if self._held is None else (tony_pb2.FromExecutor(held=self._held),)

    async def _copy(self, last: bool) -> Optional[UploadTrouble]:
        while True:
            newer = await self._newer(last)
            held = {one.step: one for one in newer if one.step is not None}
            self._tell(held, last)
            if len(held) < len(newer) and not held:
                return UploadTrouble(_NO_STEP, refused=True)
            if self._named.empty() and not (last and held):
                return None
            named = await self._named.get()
            if not named.wanted:
                return UploadTrouble(_NOT_COMMON, refused=True)
            if named.step not in held:
                self._held = None  # told again
                continue
            trouble = await self._carry(held[named.step], UploadTarget(named.save, named.uri))
            if trouble is not None:
                self._held = None
                return trouble

    def _tell(self, held: dict[int, LocalCheckpoint], last: bool) -> None:
        message = tony_pb2.CheckpointsHeld(
            generation=self._order.generation,
            start=self._order.start,
            steps=sorted(held),
            last=last,
            save=self._directory.next_save - 1,
        )
        if message != self._held and (self._held is not None or held or last):
            self._held = message
            self._send(tony_pb2.FromExecutor(held=message))
