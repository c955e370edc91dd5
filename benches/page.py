#!/usr/bin/env python3
"""Measures the built-in page in a Chromium, over a saved job and over a live one.

    pip install -r docs/pictures/requirements.txt       # playwright; and Debian's chromium, or CHROMIUM=
    cargo run --release -p telem-engine --example saved_job -- make DIR --hosts 1000 --hours 1 --step 10
    python3 benches/page.py --telem target/release/telem --saved DIR --out figures.json
    python3 benches/page.py --telem target/release/telem --live 3600 --out live.json

Every figure is the median of several rounds, each in a browser context without a cache; bytes are those that came over
the wire, headers included. The browser runs beside telem on the same cores and without a GPU.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "docs" / "pictures"))
from browser import chromium  # noqa: E402

PATIENCE_MS = 120_000
# When panels were drawn, counted by the page itself: the first that was answered, and all in sight.
WATCH = """
window.drawn = { first: null, all: null };
const look = () => {
  const seen = [...document.querySelectorAll("article.panel")].filter((p) => p.panel?.seen);
  const done = seen.filter((p) => !p.classList.contains("waiting") && (p.panel.lines.length || p.panel.word.textContent));
  if (done.length && window.drawn.first === null) window.drawn.first = performance.now();
  if (seen.length && done.length === seen.length) window.drawn.all ??= performance.now();
  else window.drawn.all = null;
  requestAnimationFrame(look);
};
requestAnimationFrame(look);
"""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--telem", required=True)
    parser.add_argument("--saved", help="a directory of saved databases")
    parser.add_argument("--live", type=int, metavar="SECONDS", help="watch a live node for so long")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", default="-")
    return parser.parse_args()


class Telem:
    """A telem with a server; `url` is its address."""

    def __init__(self, words):
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        began = time.monotonic()
        for line in self.process.stderr:
            found = re.search(r"listening on (http://[^\s/]+)", line)
            if found:
                self.url = found[1]
                break
        else:
            sys.exit(f"{words}: ended without an address")
        self.started = time.monotonic() - began
        threading.Thread(target=lambda: [None for _ in self.process.stderr], daemon=True).start()

    def cpu(self):
        fields = open(f"/proc/{self.process.pid}/stat").read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self):
        return {k: int(v) // 1024 for k, v in re.findall(r"(VmHWM|VmRSS):\s+(\d+) kB", open(f"/proc/{self.process.pid}/status").read())}

    def end(self):
        self.process.terminate()
        self.process.wait(60)


class Visit:
    """A page in a fresh context, and the bytes that came for it."""

    def __init__(self, browser, telem, view, slow=False):
        self.context = browser.new_context(viewport={"width": 1440, "height": 960}, timezone_id="UTC")
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.add_init_script(WATCH)
        self.wire = self.context.new_cdp_session(self.page)
        self.wire.send("Network.enable")
        self.bytes, self.paths = {}, {}
        self.wire.on("Network.requestWillBeSent", lambda e: self.paths.__setitem__(e["requestId"], e["request"]["url"]))
        self.wire.on("Network.loadingFinished", self.arrived)
        if slow:
            self.wire.send("Network.emulateNetworkConditions", {
                "offline": False, "latency": 150, "downloadThroughput": 250_000, "uploadThroughput": 250_000})
        self.page.goto(telem.url + "/" + view)

    def arrived(self, event):
        path = self.paths.get(event["requestId"], "").split("/", 3)[-1].split("?")[0].split("#")[0]
        kind = path if path.startswith("api/") else "files"
        self.bytes.setdefault(kind, []).append(round(event["encodedDataLength"]))

    def wait(self, script):
        # The page's policy lets nobody make code of text within it, so it is asked again and again from outside.
        deadline = time.monotonic() + PATIENCE_MS / 1000
        while not self.page.evaluate(script):
            if time.monotonic() > deadline:
                sys.exit(f"not within {PATIENCE_MS // 1000} s: {script}")
            self.page.wait_for_timeout(10)

    def drawn(self):
        self.wait("window.drawn.all !== null")
        self.page.wait_for_timeout(100)
        return self.page.evaluate("window.drawn")

    def heap(self):
        self.wire.send("HeapProfiler.enable")
        self.wire.send("HeapProfiler.collectGarbage")
        self.wire.send("Performance.enable")
        found = {m["name"]: m["value"] for m in self.wire.send("Performance.getMetrics")["metrics"]}
        return found["JSHeapUsedSize"] / 1e6


def median(values):
    return round(statistics.median(values), 1)


def opened(browser, telem, view, rounds, slow=False):
    first, every, sums, seen = [], [], [], 0
    for _ in range(rounds):
        visit = Visit(browser, telem, view, slow)
        found = visit.drawn()
        first.append(found["first"])
        every.append(found["all"])
        sums.append(sum(map(sum, visit.bytes.values())))
        kinds = {kind: sum(sizes) for kind, sizes in visit.bytes.items()}
        failed = visit.page.evaluate('[...document.querySelectorAll("article.panel .word.bad")].map((w) => w.textContent.slice(0, 120))')
        seen = visit.page.evaluate('[...document.querySelectorAll("article.panel")].filter((p) => p.panel.seen).length')
        visit.context.close()
    return {"first_panel_ms": median(first), "all_panels_ms": median(every), "bytes": median(sums), "of_which": kinds, "panels": seen, "failed": failed}


def metrics(url, wanted):
    names = json.load(urllib.request.urlopen(url + "/api/page"))["metrics"]
    most = max(m["series"] for m in names)
    return [m["name"] for m in names if m["series"] >= min(most, 1000)][:wanted] or [m["name"] for m in names][:wanted]


def twelve(url, where=""):
    return "#/metrics?" + "&".join(f"m=avg:{name}{{{where}}}" for name in metrics(url, 12))


def zoomed(browser, telem, rounds):
    """From the end of a drag to twelve panels drawn anew, all of them in sight."""
    took = []
    visit = Visit(browser, telem, twelve(telem.url, "host=*"))
    visit.page.set_viewport_size({"width": 1920, "height": 2400})
    visit.drawn()
    for _ in range(rounds):
        box = visit.page.locator(".area").first.bounding_box()
        x, y = box["x"] + box["width"] * 0.4, box["y"] + box["height"] / 2
        visit.page.mouse.move(x, y)
        visit.page.mouse.down()
        visit.page.mouse.move(x + 100, y, steps=4)
        before = visit.page.evaluate("window.drawn.all = null, performance.now()")
        visit.page.mouse.up()
        visit.wait("document.querySelectorAll('.panel.waiting').length > 0")
        visit.wait("window.drawn.all !== null")
        took.append(visit.page.evaluate("window.drawn.all") - before)
        visit.page.keyboard.press("Escape")
        visit.page.wait_for_timeout(500)
        visit.drawn()
    panels = visit.page.evaluate('[...document.querySelectorAll("article.panel")].filter((p) => p.panel.seen).length')
    visit.context.close()
    return {"zoom_ms": median(took), "panels": panels}


def pointed(browser, telem):
    """Frames a second while the pointer goes over a panel and eleven others follow it."""
    visit = Visit(browser, telem, twelve(telem.url, "host=*"))
    visit.page.set_viewport_size({"width": 1920, "height": 2400})
    visit.drawn()
    visit.page.evaluate("""() => {
      window.frames_seen = 0;
      const area = document.querySelector(".area"), box = area.getBoundingClientRect(), began = performance.now();
      window.pointing = new Promise((done) => {
        const next = () => {
          const now = performance.now() - began;
          area.dispatchEvent(new PointerEvent("pointermove", {
            clientX: box.left + 60 + (now / 5) % (box.width - 80), clientY: box.top + 60, bubbles: true }));
          window.frames_seen++;
          if (now < 5000) requestAnimationFrame(next); else done(window.frames_seen / now * 1000);
        };
        requestAnimationFrame(next);
      });
    }""")
    rate = visit.page.evaluate("window.pointing")
    visit.context.close()
    return {"frames_per_second": round(rate, 1)}


def saved(browser, wanted):
    telem = Telem([wanted.telem, "replay", "--listen", "127.0.0.1:0", wanted.saved])
    try:
        page = urllib.request.urlopen(telem.url + "/api/page").read()
        found = {"listening_s": round(telem.started, 2), "api_page_bytes_plain": len(page)}
        cpu = telem.cpu()
        found["job"] = opened(browser, telem, "#/", wanted.rounds)
        found["job"]["cpu_s"] = round((telem.cpu() - cpu) / wanted.rounds, 2)
        found["job_150ms_2mbit"] = opened(browser, telem, "#/", max(1, wanted.rounds // 2), slow=True)
        sizes, times = [], []
        for _ in range(wanted.rounds):
            visit = Visit(browser, telem, "#/nodes")
            visit.page.locator(".sides tbody tr").first.wait_for()
            times.append(visit.page.evaluate("performance.now()"))
            visit.page.wait_for_timeout(200)
            sizes.append(sum(map(sum, visit.bytes.values())))
            kinds = {kind: sum(each) for kind, each in visit.bytes.items()}
            visit.context.close()
        found["heat_map"] = {"ms": median(times), "bytes": median(sizes), "of_which": kinds}
        found["zoom_of_12"] = zoomed(browser, telem, wanted.rounds)
        found["pointer_over_12"] = pointed(browser, telem)
        found["telem_mib"] = telem.memory()
        return found
    finally:
        telem.end()


def live(browser, wanted):
    """Twelve panels of a live node, looked at for so long."""
    with tempfile.TemporaryDirectory() as folder:
        telem = Telem([wanted.telem, "serve", "--listen", "127.0.0.1:0", "--level", "2", "--data", folder])
        try:
            deadline = time.monotonic() + 60
            while len(json.load(urllib.request.urlopen(telem.url + "/api/page"))["metrics"]) < 12:
                if time.monotonic() > deadline:
                    sys.exit("the collectors gave no metrics within 60 s")
                time.sleep(1)
            visit = Visit(browser, telem, twelve(telem.url) + "&last=15m")
            visit.page.set_viewport_size({"width": 1920, "height": 2400})
            visit.drawn()
            began, cpu = time.monotonic(), telem.cpu()
            visit.page.wait_for_timeout(30_000)
            heap, rows = visit.heap(), []
            while time.monotonic() - began < wanted.live:
                visit.bytes.clear()
                visit.page.wait_for_timeout(min(60_000, max(1_000, (wanted.live - (time.monotonic() - began)) * 1000)))
                rows.append({
                    "s": round(time.monotonic() - began), "heap_mb": round(visit.heap(), 2),
                    "tick_bytes": median(visit.bytes.get("api/panels") or [0]), "ticks": len(visit.bytes.get("api/panels") or []),
                    "telem_cpu_percent": round((telem.cpu() - cpu) / (time.monotonic() - began) * 100, 2)})
                print(rows[-1], file=sys.stderr, flush=True)
            visit.context.close()
            # What telem takes when nobody looks.
            cpu, idle = telem.cpu(), time.monotonic()
            time.sleep(30)
            alone = (telem.cpu() - cpu) / (time.monotonic() - idle) * 100
            return {"heap_at_30s_mb": round(heap, 2), "unwatched_cpu_percent": round(alone, 2), "rows": rows, "telem_mib": telem.memory()}
        finally:
            telem.end()


def main():
    wanted = arguments()
    with chromium() as browser:
        found = {"load": os.getloadavg(), "cores": os.cpu_count(), "chromium": browser.version}
        if wanted.saved:
            found["saved"] = saved(browser, wanted)
        if wanted.live:
            found["live"] = live(browser, wanted)
    found["load_at_end"] = os.getloadavg()
    text = json.dumps(found, indent=1)
    print(text)
    if wanted.out != "-":
        open(wanted.out, "w").write(text + "\n")


if __name__ == "__main__":
    main()
