"""PyTorch without another library."""

from __future__ import annotations

from tests.libraries.row import Row, add

add(
    Row(
        "torch-gan",
        "torch",
        "a GAN; G_%d.pth and D_%d.pth for each save",
        "gan",
        ("torch",),
        framework="standalone",
        instances=1,
    )
)
add(
    Row(
        "torch-ddp",
        "torch",
        "DDP by torchrun; snapshot.pt of rank 0, overwritten",
        "torchrun_ddp",
        ("torch",),
        command="exec torchrun {program}",
    )
)
