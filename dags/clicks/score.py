"""Predict the probability of a click for each example of the shards that this task takes from the queue."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import tony_sdk
from model import load_model, probabilities


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="directory of the model")
    options = parser.parse_args()

    weights = load_model(options.model)
    output = Path(tony_sdk.output("predictions"))
    for shard in tony_sdk.inputs("unseen"):
        features = np.load(shard.path)["features"]
        clicks = probabilities(weights, np.column_stack([features, np.ones(len(features))]))
        predictions = output / Path(shard.path).with_suffix(".csv").name
        np.savetxt(predictions, clicks, fmt="%.6f", header="probability", comments="")
        shard.done(str(predictions))  # returns when the predictions are on the store


if __name__ == "__main__":
    main()
