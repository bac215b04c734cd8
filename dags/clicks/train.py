"""Train a logistic regression on clicks, with NumPy in one process. Save a checkpoint after each epoch."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import tony_sdk
from model import MODEL, load_clicks, load_model, log_loss, probabilities


def initial_weights(features: int) -> np.ndarray:
    """Return the weights of this training's newest checkpoint, otherwise of the earlier model, otherwise zeros."""
    if checkpoint := tony_sdk.resume_from():
        return load_model(checkpoint)
    if earlier := tony_sdk.warm_start():
        return load_model(earlier)
    return np.zeros(features)


def save(weights: np.ndarray, epoch: int) -> None:
    """Save a checkpoint, and declare that it is complete."""
    directory = Path(tony_sdk.checkpoint_dir() or "checkpoints", f"epoch-{epoch}")
    directory.mkdir(parents=True)
    np.save(directory / MODEL, weights)
    tony_sdk.commit_checkpoint(epoch, directory)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="directory of .npz shards for the training")
    parser.add_argument("--held-out", required=True, help="directory of .npz shards for the evaluation")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--pause", type=float, default=0, help="seconds after each epoch, to slow the training down")
    options = parser.parse_args()

    features, clicked = load_clicks(options.data)
    held_out = load_clicks(options.held_out)
    weights = initial_weights(features.shape[1])
    for epoch in range(tony_sdk.resume_step(), options.epochs):
        order = np.random.default_rng(epoch).permutation(len(clicked))  # a resumed epoch has the same order
        for batch in np.array_split(order, max(1, len(order) // options.batch_size)):
            error = probabilities(weights, features[batch]) - clicked[batch]
            weights = weights - options.learning_rate * features[batch].T @ error / len(batch)
        save(weights, epoch + 1)
        loss = log_loss(weights, *held_out)
        tony_sdk.report(epoch + 1, options.epochs, log_loss=loss, learning_rate=options.learning_rate)
        print(f"epoch {epoch + 1}: log loss {loss:.4f} on held-out clicks", flush=True)
        time.sleep(options.pause)
    np.save(Path(tony_sdk.model_dir() or ".", MODEL), weights)


if __name__ == "__main__":
    main()
