"""A real browser on Airflow's pages, as people have it."""

from __future__ import annotations

from pathlib import Path
from string import ascii_lowercase, ascii_uppercase

from selenium.common.exceptions import TimeoutException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support import expected_conditions
from selenium.webdriver.support.wait import WebDriverWait

from tests.browser import opened

PAGE_SECONDS = 60.0  # until a page shows what it should, on a machine that is busy


class Browser:
    """Of somebody who has signed in. ``folder`` is where screenshots go."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.driver = opened(1500, 1300)
        # At the first visit, as any page would send us to; but some Airflows then forget which page that was.
        self.open("/auth/token/login")
        self.see(By.XPATH, "//*[normalize-space(text())='Dags']")

    def open(self, path: str) -> None:
        """One of Airflow's pages."""
        self.go(f"{self.url}{path}")

    def go(self, address: str) -> None:
        self.driver.get(address)

    def find(self, by: str, what: str) -> WebElement:
        """Wait until it is there, shown or not."""
        return WebDriverWait(self.driver, PAGE_SECONDS).until(
            expected_conditions.presence_of_element_located((by, what)), f"{what} on {self.driver.current_url}"
        )

    def see(self, by: str, what: str) -> WebElement:
        """Wait until it is shown."""
        return WebDriverWait(self.driver, PAGE_SECONDS).until(
            expected_conditions.visibility_of_element_located((by, what)), f"{what} on {self.driver.current_url}"
        )

    def has(self, by: str, what: str, seconds: float) -> bool:
        """Whether it is shown within that time."""
        try:
            WebDriverWait(self.driver, seconds).until(expected_conditions.visibility_of_element_located((by, what)))
        except TimeoutException:
            return False
        return True

    def see_text(self, text: str) -> WebElement:
        """In small letters or large ones, in which Airflows differ; one of them, where it is there several times."""
        small = f"translate(normalize-space(text()), {_quoted(ascii_uppercase)}, {_quoted(ascii_lowercase)})"
        place = (By.XPATH, f"//*[contains({small}, {_quoted(text.lower())})]")
        shown: list[WebElement] = WebDriverWait(self.driver, PAGE_SECONDS).until(
            expected_conditions.visibility_of_any_elements_located(place), f"{text} on {self.driver.current_url}"
        )
        return shown[0]

    def press(self, text: str, within: str = "") -> None:
        """The button that says so; ``within``: XPath of where to look."""
        xpath = f"{within}//button[normalize-space(.)={_quoted(text)}]"
        WebDriverWait(self.driver, PAGE_SECONDS).until(
            expected_conditions.element_to_be_clickable((By.XPATH, xpath)), f"a button {text}"
        ).click()

    def fill(self, element: WebElement, text: str) -> None:
        """In place of what is there, once it has come to rest: forms unfold."""
        seen: list[object] = []

        def rests(_: object) -> bool:
            seen.append(element.rect)
            return len(seen) > 1 and seen[-1] == seen[-2]

        WebDriverWait(self.driver, PAGE_SECONDS).until(rests, "the field to come to rest")
        element.click()
        element.send_keys(Keys.CONTROL, "a")
        element.send_keys(text)
        element.send_keys(Keys.TAB)

    def keep(self, name: str) -> Path:
        """A screenshot, for people."""
        path = self.folder / f"{name}.png"
        self.driver.save_screenshot(str(path))
        return path

    def close(self) -> None:
        """What was shown last is kept."""
        self.keep("last")
        self.driver.quit()


def _quoted(text: str) -> str:
    return f'"{text}"'
