"""Say how likely a click is, for one shard after the other, with a model that was trained before."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import tony_sdk
from model import chances, load_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="directory of the model")
    options = parser.parse_args()

    weights = load_model(options.model)
    predictions = Path(tony_sdk.output("predictions"))
    for shard in tony_sdk.inputs("unseen"):
        features = np.load(shard.path)["features"]
        clicks = chances(weights, np.column_stack([features, np.ones(len(features))]))
        made = predictions / Path(shard.path).with_suffix(".csv").name
        np.savetxt(made, clicks, fmt="%.6f", header="chance", comments="")
        shard.done(str(made))  # its predictions are on the store when this returns


if __name__ == "__main__":
    main()
