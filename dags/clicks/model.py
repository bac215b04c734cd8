"""Logistic regression of the probability of a click."""

from __future__ import annotations

from pathlib import Path

import numpy as np

MODEL = "clicks.npy"  # file of the weights in the directory of a model


def load_clicks(directory: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the features of all examples, with a column of ones for the bias, and whether each was clicked."""
    shards = [np.load(path) for path in sorted(Path(directory).glob("*.npz"))]
    features = np.concatenate([shard["features"] for shard in shards])
    return np.column_stack([features, np.ones(len(features))]), np.concatenate([shard["clicked"] for shard in shards])


def load_model(directory: str) -> np.ndarray:
    """Return the weights of a model."""
    return np.load(Path(directory) / MODEL)


def probabilities(weights: np.ndarray, features: np.ndarray) -> np.ndarray:
    """Return the probability of a click for each example."""
    return 1 / (1 + np.exp(-features @ weights))


def log_loss(weights: np.ndarray, features: np.ndarray, clicked: np.ndarray) -> float:
    """Return the log loss: 0 is perfect, and ln 2 (about 0.69) is chance."""
    right = np.where(clicked, probabilities(weights, features), 1 - probabilities(weights, features))
    return float(-np.log(np.maximum(right, 1e-12)).mean())
