"""A logistic regression: the chance that somebody clicks."""

from __future__ import annotations

from pathlib import Path

import numpy as np

MODEL = "clicks.npy"  # the weights, in a model's directory


def load_clicks(directory: str) -> tuple[np.ndarray, np.ndarray]:
    """What people were shown, with a column of ones for the bias, and whether they clicked."""
    shards = [np.load(path) for path in sorted(Path(directory).glob("*.npz"))]
    features = np.concatenate([shard["features"] for shard in shards])
    return np.column_stack([features, np.ones(len(features))]), np.concatenate([shard["clicked"] for shard in shards])


def load_model(directory: str) -> np.ndarray:
    return np.load(Path(directory) / MODEL)


def chances(weights: np.ndarray, features: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-features @ weights))


def log_loss(weights: np.ndarray, features: np.ndarray, clicked: np.ndarray) -> float:
    """0 is perfect; ln 2, about 0.69, is a coin's."""
    right = np.where(clicked, chances(weights, features), 1 - chances(weights, features))
    return float(-np.log(np.maximum(right, 1e-12)).mean())
