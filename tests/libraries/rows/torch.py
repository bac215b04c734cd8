"""PyTorch without another library."""

from __future__ import annotations

from tests.libraries.row import Row, add

# The shards of two ranks do not show whether they belong to the same save.
REFUSED = "Have the program save each step under a different name"

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
for mode, write in (("sync", "dcp.save"), ("async", "dcp.async_save")):
    for place, what in (("each", "one directory for each save"), ("same", "one directory, overwritten")):
        add(
            Row(
                f"torch-dcp-{mode}-{place}",
                "torch",
                f"FSDP2 with {write}; {what}",
                "fsdp_dcp",
                ("torch",),
                arguments=f"{mode} {place}",
                paused_rank=1,
                refused=REFUSED if place == "same" else "",
            )
        )
for place, what in (("each", "one directory for each save"), ("same", "one directory, overwritten")):
    add(
        Row(
            f"torch-slow-dcp-{place}",
            "torch",
            f"FSDP2 with dcp.save, rank 1 pauses for 7 s in each save; {what}",
            "fsdp_dcp",
            ("torch",),
            arguments=f"sync {place}",
            paused_rank=1,
            slow=7.0,
            refused=REFUSED if place == "same" else "",
        )
    )
