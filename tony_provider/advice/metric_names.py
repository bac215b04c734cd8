"""What the names of metrics say, as people give them."""

from __future__ import annotations

import re
from collections.abc import Iterable

INPUT_WAIT = "input_wait"  # the share of the time, 0 to 1, that a program has waited for its input

_EVALUATION = {"val", "valid", "validation", "eval", "evaluation", "test", "dev", "holdout"}
_LOWER = {"loss", "error", "err", "rmse", "mse", "mae", "mape", "perplexity", "ppl", "wer", "cer", "logloss", "nll"}
_HIGHER = {"accuracy", "acc", "auc", "f1", "precision", "recall", "bleu", "rouge", "iou", "map", "ndcg", "r2", "score"}


def _words(metric: str) -> set[str]:
    return set(re.split(r"[^a-z0-9]+", metric.lower()))


def is_of_evaluation(metric: str) -> bool:
    """Whether it is measured on data that is not trained on, by its name: ``val_loss``, ``eval/accuracy``, ``auc``."""
    words = _words(metric)
    return bool(words & _EVALUATION) or bool(words & (_HIGHER - {"accuracy", "acc"}) and "train" not in words)


def gets_lower(metric: str) -> bool | None:
    """Whether a better value is lower, by its name; None: that cannot be told."""
    words = _words(metric)
    if words & _LOWER:
        return True
    return False if words & _HIGHER else None


def ranked(metrics: Iterable[str]) -> list[str]:
    """All of them in the order of interest: first what is ``telling``, last what the program does itself."""
    names = list(metrics)
    first = telling(names)
    rest = sorted(set(names) - set(first), key=lambda each: (_is_of_its_doing(each), each))
    return [*first, *rest]


def _is_of_its_doing(metric: str) -> bool:
    words = _words(metric)
    return metric == INPUT_WAIT or "lr" in words or {"learning", "rate"} <= words


def telling(metrics: Iterable[str]) -> list[str]:
    """Those whose better values are known, those of an evaluation first."""
    known = [each for each in metrics if gets_lower(each) is not None]
    return sorted(known, key=lambda each: (not is_of_evaluation(each), not gets_lower(each), each))
