"""The file names of well-known programs, with plain PyTorch."""

from __future__ import annotations

from tests.libraries.row import Row, add

for name, layout, what, piece in (
    ("nanogpt", "NanoGpt", "nanoGPT: out/ckpt.pt, overwritten", 1),
    ("fairseq", "Fairseq", "fairseq: copies checkpoint2.pt to checkpoint_last.pt", 3),
    ("ultralytics", "Ultralytics", "ultralytics: results.csv, weights/last.pt, best.pt", 1),
    ("ultralytics-best", "Ultralytics", "the same; killed: best.pt half written", 2),
    ("pointer", "Pointer", "last_checkpoint with an absolute path", 2),
    ("link", "Link", "a last link, made anew; killed: before that", 3),
    ("link-gone", "Link", "the same; killed: without the link", 4),
    ("link-replaced", "ReplacedLink", "a last link, replaced in one operation", 3),
    ("scaler", "Scaler", "scaler.joblib and model.pt, overwritten", 1),
):
    add(
        Row(
            f"files-{name}",
            "files",
            what,
            "file_names",
            ("torch", "joblib", "scikit-learn"),
            framework="standalone",
            instances=1,
            arguments=layout,
            piece=piece,
        )
    )
