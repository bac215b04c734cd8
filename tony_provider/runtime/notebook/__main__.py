"""Entry point of ``python -m tony_notebook`` in a notebook's container."""

from __future__ import annotations

import sys

from .serving import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
