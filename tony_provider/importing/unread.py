"""What is known when it is given, and cannot be read: each with the reason, and with the page that helps."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import attrs

from tony_provider.importing.source import Source
from tony_provider.importing.values import below

_SPARK = ("spark-submit", "spark-submit.sh", "pyspark")


@attrs.frozen
class Unread:
    """A kind of job that is not read."""

    title: str  # as people call it
    knows: Callable[[Source], bool]
    why: str
    page: str  # of the documents


def _is_sparks(source: Source) -> bool:
    return bool(source.calls(_is_call)) or (source.is_file and "TFCluster.run(" in source.text)


def _is_call(words: Sequence[str]) -> bool:
    return PurePosixPath(words[0]).name in _SPARK


def _is_tf_yarns(source: Source) -> bool:
    return source.is_file and re.search(r"^\s*(?:from|import) tf_yarn\b", source.text, re.MULTILINE) is not None


def _is_sliders(source: Source) -> bool:
    plain: Mapping[str, Any] = source.document or {}
    return isinstance(plain.get("components"), Mapping) and "schema" in plain


def _is_kubernetes(source: Source) -> bool:
    plain: Mapping[str, Any] = source.document or {}
    return "apiVersion" in plain and "kind" in plain and bool(below(plain, "spec") or below(plain, "metadata"))


UNREAD: Sequence[Unread] = (
    Unread(
        "TensorFlowOnSpark",
        _is_sparks,
        "is a program of Spark's: its sizes are in spark-submit and its cluster in what the driver computes",
        "docs/from-tensorflowonspark.md says what each becomes",
    ),
    Unread(
        "tf-yarn",
        _is_tf_yarns,
        "is a program of tf-yarn's without a call of run_on_yarn(…)",
        "docs/from-tf-yarn.md says what its parts are here",
    ),
    Unread(
        "Slider",
        _is_sliders,
        "is of Slider's application packages, which YARN services have replaced",
        "docs/from-yarn-services.md says what its words are here",
    ),
    Unread(
        "Kubernetes",
        _is_kubernetes,
        "is for Kubernetes, such as a job of Kubeflow Trainer",
        "docs/theirs-and-ours.md says what its features are here",
    ),
)
