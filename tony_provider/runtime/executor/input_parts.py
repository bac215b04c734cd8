"""This task's part of an input that is dealt once for all: fetched from the application master into a file."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import BinaryIO

from tony_provider.runtime.executor.input_requests import InputRequests
from tony_provider.runtime.executor.preparation import PreparationError
from tony_provider.runtime.protocol import tony_pb2


async def fetch_part(requests: InputRequests, name: str, path: Path) -> None:
    """Have the lines of the part in the file. Raises PreparationError, OSError."""
    file = await asyncio.to_thread(path.open, "wb")
    try:
        while not await _fetch_one_deal(requests, name, file):
            file.seek(0)
            await asyncio.to_thread(file.truncate)
    finally:
        await asyncio.to_thread(file.close)


async def _fetch_one_deal(requests: InputRequests, name: str, file: BinaryIO) -> bool:
    """False when the input was dealt anew meanwhile, and what has come so far is of no use."""
    position, parts = 0, 0
    while True:
        answer = await requests.part(tony_pb2.InputPartWanted(name=name, position=position))
        if answer.problem:
            raise PreparationError(f"its part of the input {name} is not to be had: {answer.problem}")
        if parts and answer.parts != parts:
            return False
        await asyncio.to_thread(file.write, answer.lines)
        if answer.last:
            return True
        position, parts = answer.position, answer.parts
