"""A real browser: Debian's Chromium, without a window."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.common.by import By

PICTURES = Path(__file__).parents[1] / "test-output"  # what tests have seen, for people to look at

# How many pixels of a picture have the colour of the first run's curve.
PIXELS = """
const [picture, answer] = arguments;
const image = new Image();
image.onload = () => {
  const {width, height} = image;
  const context = Object.assign(document.createElement("canvas"), {width, height}).getContext("2d");
  context.drawImage(image, 0, 0);
  const {data} = context.getImageData(0, 0, width, height);
  let count = 0;
  for (let at = 0; at < data.length; at += 4) count += data[at] < 90 && data[at + 2] > data[at] + 20;
  answer(count);
};
image.src = "data:image/png;base64," + picture;
"""


@contextmanager
def browser(width: int = 1300, height: int = 1000) -> Iterator[Chrome]:
    """Its window has this size in pixels. Quit at the end."""
    driver = opened(width, height)
    try:
        yield driver
    finally:
        driver.quit()


def opened(width: int, height: int) -> Chrome:
    """For whoever quits it."""
    options = ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in ("headless=new", "no-sandbox", "disable-gpu", "no-proxy-server", "disable-dev-shm-usage"):
        options.add_argument(f"--{argument}")
    options.add_argument(f"--window-size={width},{height}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options=options, service=ChromeService("/usr/bin/chromedriver"))
    driver.set_page_load_timeout(180)  # seconds; on a machine that does ten things at once
    return driver


def complaints(driver: Chrome) -> list[str]:
    """What the browser's console has had to say since it was last asked: scripts that failed, what a policy forbids.

    Not that a server has no icon: a text or JSON cannot say that it wants none.
    """
    said = [entry["message"] for entry in driver.get_log("browser")]  # type: ignore[no-untyped-call]
    return [message for message in said if "/favicon.ico " not in message]


def photograph(driver: Chrome, name: str) -> None:
    """The whole page, in ``test-output/<name>.png``."""
    PICTURES.mkdir(exist_ok=True)
    height = driver.execute_script("return document.documentElement.scrollHeight")
    driver.set_window_size(driver.get_window_size()["width"], max(600, height + 160))
    driver.save_screenshot(str(PICTURES / f"{name}.png"))


def prefer(driver: Chrome, scheme: str) -> None:
    """``light`` or ``dark``, as a user's system says it."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def is_drawn(driver: Chrome, css: str) -> bool:
    """Whether a part of the page shows something of a curve's dark blue, in the picture that people see."""
    found = driver.find_elements(By.CSS_SELECTOR, css)
    return bool(found) and driver.execute_async_script(PIXELS, found[0].screenshot_as_base64) > 50
