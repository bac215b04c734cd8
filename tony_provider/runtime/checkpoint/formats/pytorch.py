"""Single files of PyTorch, wherever they lie; those that make up one checkpoint together are for ``torch_directory``.

The step is the one that the name is labelled with, else the one that the content says, else a number in the name, else
the epoch that the content says.
"""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import basename

from tony_provider.runtime.checkpoint.formats import torch_file
from tony_provider.runtime.checkpoint.formats.names import labelled_step, step_in
from tony_provider.runtime.checkpoint.formats.torch_file import TorchFile
from tony_provider.runtime.checkpoint.formats.view import Finding, Pending, Unreadable, View
from tony_provider.runtime.spec.model import CheckpointFormat

KIND = CheckpointFormat.PYTORCH


def find(view: View) -> Iterator[Finding]:
    for name in sorted(view.files):
        if suffix_of(name):
            yield from _file(view, name)


def suffix_of(name: str) -> str:
    return next((suffix for suffix in torch_file.SUFFIXES if name.endswith(suffix)), "")


def _file(view: View, name: str) -> Iterator[Finding]:
    path = view.path(name)
    try:
        if not view.remember("begins", (name,), lambda: torch_file.looks_like_one(path)):
            return
        read = view.remember("torch", (name,), lambda: torch_file.read(path))
    except Unreadable as error:
        yield view.not_complete((name,), f"{name}: {error}")
    except FileNotFoundError:
        return
    else:
        if read.is_sure or view.is_quiet([name]):
            yield view.complete(_step(view, name, read), KIND.value, name, [name])
        else:
            yield Pending((name,))


def _step(view: View, name: str, read: TorchFile) -> int:
    label = basename(name)[: -len(suffix_of(name))]
    for step in (labelled_step(label), read.step, step_in(label), read.epoch):
        if step is not None:
            return step
    return view.step((name,))
