"""Train the model of one country: a weight, whose best value is 3. The data are generated."""

import argparse
import json
import os
from pathlib import Path
from zlib import crc32

import tony_sdk

STEPS = 200

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--country", required=True)
parser.add_argument("--day", required=True)
options = parser.parse_args()

weight = 0.0
if checkpoint := tony_sdk.resume_from():
    weight = json.loads(Path(checkpoint).read_text())["weight"]

for step in range(tony_sdk.resume_step() + 1, STEPS + 1):
    x = crc32(f"{options.country} {options.day} {step}".encode()) / 2**31 - 1
    weight += 0.1 * (3 * x - weight * x) * x
    tony_sdk.report(step, STEPS, error=abs(3 - weight))
    if step % 50 == 0:
        name = f"step-{step}.json"
        Path(tony_sdk.checkpoint_dir() or ".", name).write_text(json.dumps({"weight": weight}))
        tony_sdk.commit_checkpoint(step, name)

Path(os.environ["TONY_MODEL_DIR"], "model.json").write_text(json.dumps({"weight": weight}))
Path(os.environ["TONY_RESULT_FILE"]).write_text(json.dumps({"country": options.country}))
