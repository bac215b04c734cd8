"""torchrun as it is, but for a fault of Debian's PyTorch 1.13 on Python 3.11: it cannot read its own default "0"."""

from __future__ import annotations

from torch.distributed import run
from torch.distributed.elastic.multiprocessing import Std

_read = Std.from_str


def from_str(text: str) -> object:
    """Where the output of processes goes."""
    return Std.NONE if text == "0" else _read(text)


if __name__ == "__main__":
    Std.from_str = from_str
    run.main()
