"""Errors of checkpoints, in addition to StorageError and OSError."""

from __future__ import annotations


class CheckpointError(Exception):
    """Base of the errors of checkpoints. ``str()`` is a complete sentence for the user."""


class DamagedCheckpoint(CheckpointError):  # noqa: N818 - says what was found
    """A committed checkpoint does not match its manifest. A retry fails in the same way."""

    def __init__(self, uri: str, reason: str) -> None:
        super().__init__(uri, reason)
        self.uri = uri
        self.reason = reason

    def __str__(self) -> str:
        return f"the checkpoint {self.uri} is damaged: {self.reason}"


class CheckpointTooLarge(CheckpointError):  # noqa: N818 - says what was found
    """The manifest of a checkpoint is larger than readers accept. Another attempt fails in the same way."""

    def __init__(self, uri: str, extent: str) -> None:
        super().__init__(uri, extent)
        self.uri = uri
        self.extent = extent

    def __str__(self) -> str:
        return (
            f"the manifest of the checkpoint {self.uri} is too large ({self.extent}). Have the program write fewer and "
            "larger files"
        )


class NoCheckpointLeft(CheckpointError):  # noqa: N818 - says what was found
    """A chain that another training resumes from has no intact checkpoint any more."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.uri = uri

    def __str__(self) -> str:
        return (
            f"resume_from: no intact checkpoint is left at {self.uri}; its training may have removed it. Name another "
            "checkpoint, or raise checkpoint.keep of that training"
        )
