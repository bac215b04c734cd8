"""Pictures of a part of a page, from a real browser."""

from __future__ import annotations

import base64
import math
import time
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path

from PIL import Image
from selenium.webdriver.remote.webelement import WebElement

from tests.browser import prefer
from tests.e2e.browser import Browser

WIDTH = 1200  # of the browser's page, and at most of a picture
HEIGHT = 900
MOST_BYTES = 150_000  # they stay in the repository's history for ever
ANIMATION_BYTES = 2_000_000
_ANIMATION_WIDTH = 900  # of the README's column
_FRAME_SECONDS = 0.5  # between two looks at the page
_LONGEST_FRAME = 2.0  # seconds that a frame is shown, however long the page stayed as it was
_LAST_FRAME = 5.0  # seconds


class Camera(Browser):
    """A browser with a light theme, in a window as wide as the pictures. ``folder`` is where these go."""

    def __init__(self, url: str, folder: Path) -> None:
        super().__init__(url, folder)
        prefer(self.driver, "light")
        self.size(HEIGHT)

    def size(self, height: int, width: int = WIDTH) -> None:
        """Of the page that is seen; what scrolls within the page is as long as this lets it be."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def leave(self) -> None:
        """No field is marked as the one that is typed in."""
        self.driver.execute_script("document.activeElement.blur()")

    def take(self, name: str, *parts: WebElement, margin: int = 0) -> Path:
        """The smallest picture that has all parts in it; of the whole page where none are named."""
        x, y, right, bottom = _around([part.rect for part in parts]) if parts else (0, 0, WIDTH, self._height())
        left, top = max(0, x - margin), max(0, y - margin)
        clip = {
            "x": left,
            "y": top,
            "width": min(WIDTH, right + margin) - left,
            "height": bottom + margin - top,
            "scale": 1,
        }
        answer = self.driver.execute_cdp_cmd(
            "Page.captureScreenshot", {"format": "png", "clip": clip, "captureBeyondViewport": True}
        )
        picture = _smaller(base64.b64decode(answer["data"]))
        assert len(picture) <= MOST_BYTES, f"{name} has {len(picture):,} bytes: show less of the page"
        path = self.folder / f"{name}.png"
        path.write_bytes(picture)
        return path

    def record(self, name: str, height: int, has_ended: Callable[[], bool], seconds: float) -> Path:
        """Record the top of the page as an animated GIF until ``has_ended``, which has to be within ``seconds``."""
        self.size(height, _ANIMATION_WIDTH)
        frames: list[Image.Image] = []
        durations: list[float] = []
        deadline = time.monotonic() + seconds
        ended = False
        while not ended:
            ended = has_ended()
            assert ended or time.monotonic() < deadline, f"{name} has not ended within {seconds:g} s"
            answer = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
            with Image.open(BytesIO(base64.b64decode(answer["data"]))) as image:
                frame = image.convert("RGB").quantize(64, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
            if not frames or frame.tobytes() != frames[-1].tobytes():
                frames.append(frame)
                durations.append(0.0)
            durations[-1] = min(durations[-1] + _FRAME_SECONDS, _LONGEST_FRAME)
            time.sleep(_FRAME_SECONDS)
        path = self.folder / f"{name}.gif"
        shown = [int(1000 * each) for each in (*durations[:-1], _LAST_FRAME)]
        frames[0].save(path, save_all=True, append_images=frames[1:], duration=shown, loop=0, optimize=True)
        assert path.stat().st_size <= ANIMATION_BYTES, (
            f"{name} has {path.stat().st_size:,} bytes: show less of the page"
        )
        return path

    def _height(self) -> int:
        return int(self.driver.execute_script("return document.body.scrollHeight"))


def _smaller(picture: bytes) -> bytes:
    """With 256 colours, which are enough for letters and lines, it has a third of its bytes.

    They are chosen so that rare ones stay: the star of a field that is needed is red.
    """
    smaller = BytesIO()
    with Image.open(BytesIO(picture)) as image:
        method, dither = Image.Quantize.MAXCOVERAGE, Image.Dither.NONE
        image.convert("RGB").quantize(256, method, dither=dither).save(smaller, "PNG", optimize=True)
    return smaller.getvalue()


def _around(boxes: Sequence[dict[str, float]]) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of what holds all boxes."""
    return (
        math.floor(min(box["x"] for box in boxes)),
        math.floor(min(box["y"] for box in boxes)),
        math.ceil(max(box["x"] + box["width"] for box in boxes)),
        math.ceil(max(box["y"] + box["height"] for box in boxes)),
    )
