"""The identity of a training: the same for every try of one task of one run, different for all others."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata

import attrs

from tony_provider.runtime import contract

_SLUG_LENGTH = 60
_HASH_LENGTH = 20  # hexadecimal digits: 80 bits, plenty against chance collisions
_NAME = re.compile(rf"(.+)-([0-9a-f]{{{_HASH_LENGTH}}})")


@attrs.frozen
class Identity:
    """Names a training: ``name`` its directory, ``tag`` its YARN applications.

    Legal wherever they are used: HDFS path parts (no colon, no slash, short), YARN tags (lower-case ASCII, at most 100
    characters), and unlike raw Airflow ids never longer than 81 characters.
    """

    slug: str  # for people
    digest: str  # for machines: over everything that tells trainings apart

    @classmethod
    def parse(cls, name: str) -> Identity | None:
        """The identity with this ``name``; None when it is no training's."""
        match = _NAME.fullmatch(name)
        return None if match is None else cls(match[1], match[2])

    @property
    def name(self) -> str:
        return f"{self.slug}-{self.digest}"

    @property
    def tag(self) -> str:
        return contract.TAG_PREFIX + self.digest


def identity_of(
    *,
    namespace: str,
    dag_id: str,
    run_id: str,
    task_id: str,
    map_index: int = -1,
    checkpoint_key: str | None = None,
) -> Identity:
    """The identity of one task of one run.

    ``namespace`` keeps two Airflow installations on one cluster apart. ``checkpoint_key`` is the author's own name for
    this training among the mapped instances of a task; it takes the place of ``map_index`` (-1: not mapped), which
    changes meaning when the mapped list does.
    """
    instance: object = map_index if checkpoint_key is None else ["key", checkpoint_key]
    # JSON keeps the parts apart: ("a", "bc") and ("ab", "c") must differ.
    digest = hashlib.sha256(json.dumps([namespace, dag_id, run_id, task_id, instance]).encode()).hexdigest()
    which = checkpoint_key if checkpoint_key is not None else (str(map_index) if map_index >= 0 else "")
    return Identity(_slug(dag_id, task_id, which, run_id), digest[:_HASH_LENGTH])


def _slug(*parts: str) -> str:
    words = []
    for part in parts:
        ascii_part = unicodedata.normalize("NFKD", part).encode("ascii", "ignore").decode().lower()
        word = re.sub(r"[^a-z0-9]+", "-", ascii_part).strip("-")
        if word:
            words.append(word)
    return "-".join(words)[:_SLUG_LENGTH].strip("-") or "training"
