"""The Chromium that pictures are taken with, and that the benchmark of the page measures in."""

import contextlib
import os
import shutil
import sys

from playwright.sync_api import sync_playwright


@contextlib.contextmanager
def chromium():
    found = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if not found:
        sys.exit("no chromium: install it (Debian: apt install chromium), or name it in CHROMIUM")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()
