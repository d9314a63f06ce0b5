"""A real headless Chromium for tests and pictures, driven by its own driver."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
_ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",  # CI runs as root, where Chromium has none
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-background-networking",
    "--hide-scrollbars",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Return one browser for the tests of a module."""
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("chromium and chromium-driver are not installed")
    with chromium() as opened:
        yield opened


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start a browser, and end it."""
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or "chromium"
    for argument in _ARGUMENTS:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        yield Browser(driver)
    finally:
        driver.quit()


class Browser:
    """What tests ask of a page."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self._driver = driver

    def look(self, *, width: int, scheme: str, height: int = 900) -> None:
        """Set the screen's size, CSS pixels, and whether it requests "light" or "dark"."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def open(self, path: Path) -> None:
        """Open a file; what the logs held before is forgotten."""
        self.console()
        self.requested()
        self._driver.get(path.resolve().as_uri())

    def run(self, script: str, *arguments: object) -> Any:
        """Return what a script returns."""
        return self._driver.execute_script(script, *arguments)

    def settle(self) -> None:
        """Wait until what follows from a change has been drawn."""
        self._driver.execute_async_script(
            "const done = arguments[0];"
            "requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 0)));"
        )

    def photograph(self) -> bytes:
        """Return what the screen shows, as PNG."""
        shot = self._driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
        return base64.b64decode(shot["data"])

    def console(self) -> list[str]:
        """Return and forget what the console shows."""
        return [f"{line['level']}: {line['message']}" for line in self._driver.get_log("browser")]  # type: ignore[no-untyped-call] # selenium's own

    def requested(self) -> set[str]:
        """Return and forget the schemes of all that was requested."""
        schemes = set()
        for entry in self._driver.get_log("performance"):  # type: ignore[no-untyped-call] # selenium's own
            message = json.loads(entry["message"])["message"]
            if message["method"] in {"Network.requestWillBeSent", "Network.webSocketCreated"}:
                request = message["params"].get("request", message["params"])
                schemes.add(urlsplit(request["url"]).scheme)
        return schemes
