"""Classify metrics by their names: evaluation or training, and whether lower values are better."""

from __future__ import annotations

import re
from collections.abc import Iterable

INPUT_WAIT = "input_wait"  # share of the time, 0 to 1, in which the program waited for its input

_EVALUATION = {"val", "valid", "validation", "eval", "evaluation", "test", "dev", "holdout"}
_LOWER = {"loss", "error", "err", "rmse", "mse", "mae", "mape", "perplexity", "ppl", "wer", "cer", "logloss", "nll"}
_HIGHER = {"accuracy", "acc", "auc", "f1", "precision", "recall", "bleu", "rouge", "iou", "map", "ndcg", "r2", "score"}


def _words(metric: str) -> set[str]:
    return set(re.split(r"[^a-z0-9]+", metric.lower()))


def is_of_evaluation(metric: str) -> bool:
    """Return whether the name indicates data that is not trained on: ``val_loss``, ``eval/accuracy``, ``auc``."""
    words = _words(metric)
    return bool(words & _EVALUATION) or bool(words & (_HIGHER - {"accuracy", "acc"}) and "train" not in words)


def gets_lower(metric: str) -> bool | None:
    """Return whether lower values are better according to the name, or None if the name does not indicate it."""
    words = _words(metric)
    if words & _LOWER:
        return True
    return False if words & _HIGHER else None


def ranked(metrics: Iterable[str]) -> list[str]:
    """Return all metrics by relevance: first those of ``telling``, last settings such as the learning rate."""
    names = list(metrics)
    first = telling(names)
    rest = sorted(set(names) - set(first), key=lambda each: (_is_of_its_doing(each), each))
    return [*first, *rest]


def _is_of_its_doing(metric: str) -> bool:
    words = _words(metric)
    return metric == INPUT_WAIT or "lr" in words or {"learning", "rate"} <= words


def telling(metrics: Iterable[str]) -> list[str]:
    """Return the metrics with a known direction of improvement, evaluation metrics first."""
    known = [each for each in metrics if gets_lower(each) is not None]
    return sorted(known, key=lambda each: (not is_of_evaluation(each), not gets_lower(each), each))
