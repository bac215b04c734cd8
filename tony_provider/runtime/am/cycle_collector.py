"""Python's collector of reference cycles, run so seldom that it does not hold up the event loop.

While the number of objects grows it looks at all of them again and again; with thousands of tasks each look takes most
of a second, and finds next to nothing.
"""

from __future__ import annotations

import asyncio
import gc

_THRESHOLDS = (10_000, 20, 1 << 20)  # new objects until a look at them; such looks until one at the older; never at all
_EVERY = 300.0  # seconds between two looks at all


async def collect_seldom() -> None:
    """Collect cycles now and then, in place of the automatic collection, until it is cancelled."""
    before = gc.get_threshold()
    gc.set_threshold(*_THRESHOLDS)
    try:
        while True:
            await asyncio.sleep(_EVERY)
            gc.collect()
    finally:
        gc.set_threshold(*before)
