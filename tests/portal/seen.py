"""What a browser shows of the portal's pages."""

from __future__ import annotations

from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from tests.waiting import SECONDS, until

JOBS = "/plugin/training-jobs"


class Pages:
    """What a user sees who has logged in. Every part of a page is waited for."""

    def __init__(self, driver: Chrome, url: str) -> None:
        self.driver = driver
        self.url = url

    def open(self, path: str) -> None:
        self.driver.get(self.url + path)

    def all(self, css: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, f".tony-portal {css}")

    def texts(self, css: str) -> list[str]:
        """Of all that is like this, taken at once, since pages renew themselves."""
        script = "return [...document.querySelectorAll(arguments[0])].map((each) => each.innerText.trim())"
        return list(self.driver.execute_script(script, f".tony-portal {css}"))

    def see(self, css: str) -> WebElement:
        return until(lambda: next(iter(self.all(css)), None), lambda: f"{css} on {self.driver.current_url}")

    def see_text(self, text: str) -> None:
        until(lambda: any(text in each for each in self.texts("*")), lambda: f"{text!r} in {self.texts('*')[:1]}")

    def section(self, title: str) -> str:
        """What it says."""
        return until(
            lambda: next((each for each in self.texts("section") if each.startswith(title)), ""),
            lambda: f"the section {title!r}; there are {self.texts('h2')}",
        )

    def see_in(self, title: str, text: str, seconds: float = SECONDS) -> None:
        """Wait for a text in the section of this title."""
        until(lambda: text in self.section(title), lambda: f"{text!r} in {self.section(title)!r}", seconds)

    def press(self, text: str, kind: str = "button") -> None:
        xpath = f"//*[contains(@class, 'tony-portal')]//{kind}[normalize-space(.)='{text}']"
        found = until(lambda: self.driver.find_elements(By.XPATH, xpath), lambda: f"{kind} {text!r}")
        self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", found[0])
        found[0].click()
