"""Saves of one zip archive: ``.keras``, ``.npz``, and the ``.zip`` files of libraries such as stable-baselines3."""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import splitext
from typing import Optional

from tony_provider.runtime.checkpoint.content.unreadable import Unreadable
from tony_provider.runtime.checkpoint.saves.view import Save, SaveView, step_of
from tony_provider.runtime.spec.model import CheckpointFormat

_READERS = {
    ".keras": ("keras", CheckpointFormat.KERAS.value),
    ".npz": ("npz", CheckpointFormat.NUMPY.value),
    ".zip": ("zip", ""),
}


def find(view: SaveView) -> Iterator[Save]:
    """Yield a save for each archive."""
    for path in sorted(view.files):
        reader, kind = _READERS.get(splitext(path)[1], ("", ""))
        if not reader:
            continue
        try:
            content = view.read(reader, path)
        except Unreadable as error:
            yield Save(kind, path, (path,), problem=str(error))
        except FileNotFoundError:
            continue
        else:
            labelled, inside = step_of(path), _step(content)
            yield Save(kind, path, (path,), inside if labelled is None else labelled, proven=True, content_step=inside)


def _step(content: object) -> Optional[int]:
    return content if isinstance(content, int) and not isinstance(content, bool) else None
