#!/usr/bin/env python3
"""Takes pictures of the built-in page of a running telem, in a Chromium.

    pip install -r docs/pictures/requirements.txt      # and Debian's chromium, or CHROMIUM=
    python3 docs/pictures/page.py http://localhost:4242 '#/' -o docs/pictures/page-job.png
    python3 docs/pictures/page.py http://localhost:4242 '#/nodes?metric=step_seconds' -o docs/pictures/page-nodes.png --dark

The second argument is what stands behind the address in the browser: a view with all its choices, as *Share* copies it.
`--hover X,Y` puts the pointer there. A picture is taken when every panel in sight was answered, and has 128 colours,
which makes it a third as large. Those of README show runs that `page_runs.py` makes.
"""

import argparse
import io

from PIL import Image

from browser import chromium

PATIENCE_MS = 60_000


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("view", nargs="?", default="#/")
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--width", type=int, default=1440)
    parser.add_argument("--height", type=int, default=960)
    parser.add_argument("--hover")
    return parser.parse_args()


def main():
    wanted = arguments()
    with chromium() as browser:
        page = browser.new_page(
            viewport={"width": wanted.width, "height": wanted.height},
            color_scheme="dark" if wanted.dark else "light",
            timezone_id="UTC",
        )
        page.set_default_timeout(PATIENCE_MS)
        page.goto(wanted.url.rstrip("/") + "/" + wanted.view)
        page.wait_for_load_state("networkidle")
        page.locator(".panel.waiting").first.wait_for(state="detached")
        if wanted.hover:
            x, y = (int(part) for part in wanted.hover.split(","))
            page.mouse.move(x - 2, y)
            page.mouse.move(x, y)
            page.wait_for_timeout(300)
        picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        picture.quantize(128, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(wanted.output, optimize=True)


if __name__ == "__main__":
    main()
