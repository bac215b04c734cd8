"""PyTorch's checkpoints of a single file; those of several files together are for ``torch_directory``.

A file of any other name, that lies in no directory of its own, counts when it is a whole one of ``torch.save``.

The step is the one that the name is labelled with, else the one that the content says, else a number in the name, else
the epoch that the content says.
"""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import basename, splitext
from typing import Optional

from tony_provider.runtime.checkpoint.checkpoint_model import LocalCheckpoint
from tony_provider.runtime.checkpoint.content import torch_file
from tony_provider.runtime.checkpoint.content.torch_file import TorchFile
from tony_provider.runtime.checkpoint.content.unreadable import Unreadable
from tony_provider.runtime.checkpoint.formats.directory_view import Finding, Pending, View
from tony_provider.runtime.checkpoint.formats.step_names import labelled_step, step_in
from tony_provider.runtime.spec.model import CheckpointFormat

KIND = CheckpointFormat.PYTORCH
_OF_OTHERS = (".keras", ".npz", ".zip")


def find(view: View) -> Iterator[Finding]:
    """Findings: the checkpoints that are a file of PyTorch each."""
    for name in sorted(view.files):
        if suffix_of(name):
            yield from _file(view, name)
        elif "/" not in name and splitext(name)[1] not in _OF_OTHERS:
            yield from (one for one in _file(view, name) if isinstance(one, LocalCheckpoint))


def suffix_of(name: str) -> str:
    """The ending by which a file is PyTorch's, such as ``.pt``; empty for others."""
    return next((suffix for suffix in torch_file.SUFFIXES if name.endswith(suffix)), "")


def _file(view: View, name: str) -> Iterator[Finding]:
    path = view.path(name)
    try:
        if not view.remember("begins", (name,), lambda: torch_file.looks_like_one(path)):
            return
        read = TorchFile(*view.read("torch", name))
    except Unreadable as error:
        yield view.not_complete((name,), f"{name}: {error}")
    except FileNotFoundError:
        return
    else:
        if read.is_sure or view.is_quiet([name]):
            yield view.complete(_step(name, read), KIND.value, name, [name])
        else:
            yield Pending((name,))


def _step(name: str, read: TorchFile) -> Optional[int]:
    label = basename(name).removesuffix(suffix_of(name))
    for step in (labelled_step(label), read.step, step_in(label), read.epoch):
        if step is not None:
            return step
    return None
