"""Has Lightning and transformers take Debian's PyTorch 1.13 on Python 3.11; import it before them."""

# ruff: noqa: E402
from __future__ import annotations

import dataclasses

_found = dataclasses._get_field  # which refuses a default without a hash, since Python 3.11


def _get_field(cls, name, kind, kw_only):
    try:
        return _found(cls, name, kind, kw_only)
    except ValueError:
        value = getattr(cls, name)
        type(getattr(value, "default", value)).__hash__ = object.__hash__
        return _found(cls, name, kind, kw_only)


dataclasses._get_field = _get_field

import torch

torch.__version__ = type(torch.__version__)("1.13.0")  # Debian's "1.13.0a0" is taken for an older one
