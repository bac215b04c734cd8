"""Measure the accuracy of a model on held-out digits. Fail if the accuracy is too low."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

import keras
import numpy as np
import tony_sdk


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="directory with digits.keras")
    parser.add_argument("--data", required=True, help="directory of .npz shards")
    parser.add_argument("--minimum-accuracy", type=float, default=0.95)
    options = parser.parse_args()

    shards = [np.load(path) for path in sorted(Path(options.data).glob("*.npz"))]
    images = np.concatenate([shard["images"] for shard in shards])[..., np.newaxis] / 16.0
    labels = np.concatenate([shard["labels"] for shard in shards])
    model = keras.models.load_model(Path(options.model) / "digits.keras")
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    loss, accuracy = model.evaluate(images, labels, verbose=0)
    tony_sdk.report(step=1, total_steps=1, loss=loss, accuracy=accuracy, examples=len(labels))
    Path(os.environ["TONY_RESULT_FILE"]).write_text(json.dumps({"accuracy": accuracy}))
    print(f"accuracy {accuracy:.4f} on {len(labels)} held-out digits")
    if accuracy < options.minimum_accuracy:
        sys.exit(f"accuracy {accuracy:.4f} is below {options.minimum_accuracy}")


if __name__ == "__main__":
    main()
