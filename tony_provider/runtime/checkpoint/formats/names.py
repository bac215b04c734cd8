"""The step that a name says."""

from __future__ import annotations

import re
from typing import Optional

_HIGHEST = 2**62  # longer numbers are dates, hashes or random

_LABELLED = re.compile(r"(?:^|[^a-z])(?:global[-_]?)?(?:step|iter|iteration)s?[-_=.]?([0-9]+)(?![0-9]|\.[0-9])")
# A number that stands for itself or after a word that such numbers follow; not the 50 of resnet50, nor part of 0.25.
_WORDS = "ckpt|checkpoint|epoch|ep|e|step|iter|model|weights|state|save|backup|cp|chk|it|s|n"
_NUMBER = re.compile(rf"(?:^|[^a-z0-9]|(?:^|[^a-z])(?:{_WORDS}))([0-9]+)(?=$|[^0-9a-z])")
_OTHER = re.compile(r"(?:^|[^a-z])(?:mp[-_]?)?(?:rank|part|shard|of|v|seed|gpu|worker|fold)[-_=]?[0-9]+")


def step_in(name: str) -> Optional[int]:
    """The step in a file's name without its suffix, or in a directory's: ``ckpt-20``, ``epoch=3-step=120``, ``0005``.

    A number that is labelled as a step counts before others, the last of those before the first. None without one.
    """
    lower = name.lower()
    labelled = _LABELLED.findall(lower)
    if not labelled:
        without = _OTHER.sub(lambda match: " " * len(match[0]), lower)
        labelled = _NUMBER.findall(_without_decimals(without)) or _NUMBER.findall(without)
    numbers = [int(text) for text in labelled if int(text) < _HIGHEST]
    return numbers[-1] if numbers else None


def _without_decimals(name: str) -> str:
    """``weights.05-0.12``: the 05 after a dot is a number of its own, 0.12 is none."""
    return re.sub(r"(?<![0-9.])[0-9]+\.[0-9]+(?![0-9.])", "-", name)
