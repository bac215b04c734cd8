"""Names of files and directories of checkpoints, and the steps in them."""

from __future__ import annotations

import re
from typing import Optional

from tony_provider.runtime.checkpoint.content.unreadable import HIGHEST

# Labels before a number that is a step. The first pattern that matches decides.
MANIFEST_SUFFIX = ".tony.json"  # of manifests that programs write
_STEPS = r"(?:global[-_]?)?(?:step|iter|iteration)s?"
_SAVES = r"(?:epoch|ep|e|ckpt|chkpt|checkpoint|backup|save|snapshot|cp)s?"
_LABELLED = re.compile(rf"(?:^|[^a-z])(?:{_STEPS})[-_=.]?([0-9]+)(?![0-9])")
_NUMBER = re.compile(rf"(?:^|[^a-z0-9]|(?:^|[^a-z])(?:{_SAVES}|model|weights|state|it|n|s))([0-9]+)(?=$|[^0-9a-z])")
_DECIMAL = re.compile(r"(?<![0-9.])[0-9]+\.[0-9]+(?![0-9.])")
# Numbers that are not a step.
_OTHER = re.compile(
    r"(?:^|[^a-z])(?:(?:mp[-_]?)?rank|part|shard|of|version|v|seed|gpu|worker|fold|run|trial|process|lr|loss|acc)"
    r"[-_=]?[0-9]+(?:\.[0-9]+)?"
)
# Names of temporary files and directories, also of TensorFlow's and Keras's.
_TEMPORARY = re.compile(r"[._]*te?mp[-_.].*|.*[-_.](?:te?mp|part|partial|incomplete)[0-9]*|workertemp_.*")
_BEST = re.compile(r"(?:^|[^a-z])best(?:$|[^a-z])")
_CHECKPOINT = re.compile(rf"(?:.*(?:^|[^a-z])(?:{_STEPS}|{_SAVES})[-_=.]?)?[0-9]+(?:\.ckpt|\.pt|\.pth)?")


def step_in(name: str) -> Optional[int]:
    """Return the step in a file's name without its suffix, or in a directory's name, or None.

    Examples: ``ckpt-20``, ``epoch=3-step=120``, ``0005``. A number that is labelled as a step takes precedence, and a
    later number over an earlier number. The 50 of ``resnet50`` and the 0.12 of a loss are not steps.
    """
    step = labelled_step(name)
    if step is not None:
        return step
    without = _OTHER.sub("-", name.lower())
    step = _last(_NUMBER.findall(_DECIMAL.sub("-", without)))
    return _last(_NUMBER.findall(without)) if step is None else step


def labelled_step(name: str) -> Optional[int]:
    """Return the number that the name labels as a step or an iteration, as in ``step-120``, or None."""
    return _last(_LABELLED.findall(name.lower()))


def _last(texts: list[str]) -> Optional[int]:
    numbers = [int(text) for text in texts if len(text) < 20 and int(text) < HIGHEST]
    return numbers[-1] if numbers else None


def names_a_checkpoint(directory: str) -> bool:
    """Return whether a directory of this name is a single checkpoint, not a parent of several: ``step_500``, ``20``."""
    return _CHECKPOINT.fullmatch(directory.lower()) is not None


def is_best(entry: str) -> bool:
    """Return whether a program keeps a checkpoint of this name for its quality, such as ``model_best.pth.tar``."""
    return _BEST.search(entry.lower()) is not None


def is_temporary(name: str) -> bool:
    """Return whether a file or directory of this name is temporary."""
    return _TEMPORARY.fullmatch(name.lower()) is not None
