"""Chromium as the tests drive it: without a window, without a network of its own, with the console's messages."""

import shutil
import warnings
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
IS_HERE = bool(CHROMIUM and DRIVER)

FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --force-color-profile=srgb"
).split()


def open_browser(profile: Path, width: int = 1280, height: int = 900) -> Any:
    """A browser of its own, with its data in a folder; the caller quits it."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in (*FLAGS, f"--window-size={width},{height}", f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # selenium's own, about how it starts processes
        return webdriver.Chrome(options, webdriver.ChromeService(str(DRIVER)))


def complaints(browser: Any) -> list[str]:
    """What pages have written to the console since the last call."""
    return [entry["message"] for entry in browser.get_log("browser")]
