"""NumPy's checkpoints: ``.npz`` archives of ``numpy.savez`` and ``.npy`` arrays of ``numpy.save``."""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import basename, splitext
from typing import Optional

from tony_provider.runtime.checkpoint.content.unreadable import Unreadable
from tony_provider.runtime.checkpoint.formats.directory_view import Finding, Pending, View
from tony_provider.runtime.checkpoint.formats.step_names import labelled_step, step_in
from tony_provider.runtime.spec.model import CheckpointFormat

KIND = CheckpointFormat.NUMPY


def find(view: View) -> Iterator[Finding]:
    """Findings: the checkpoints that are NumPy's files."""
    for name in sorted(view.files):
        stem, suffix = splitext(basename(name))
        if suffix in (".npz", ".npy"):
            yield from _file(view, name, stem, is_archive=suffix == ".npz")


def _file(view: View, name: str, stem: str, *, is_archive: bool) -> Iterator[Finding]:
    said: Optional[int] = None
    try:
        if is_archive:
            said = view.read("npz", name)
        elif not view.read("npy", name) and not view.is_quiet([name]):
            yield Pending((name,))
            return
    except Unreadable as error:
        yield view.not_complete((name,), f"{name}: {error}")
    except FileNotFoundError:
        return
    else:
        found = (step for step in (labelled_step(stem), said, step_in(stem)) if step is not None)
        yield view.complete(next(found, None), KIND.value, name, [name])
