#!/usr/bin/env python3
"""Records a machine with eight GPUs that nobody has, for the picture of the GPUs.

    python3 docs/pictures/gpus.py TELEM DIR --seconds 240
    TELEM replay DIR --listen 127.0.0.1:4243 &
    python3 docs/pictures/render.py grafana/dashboards/telem-node.json -o docs/pictures/gpus.png \\
        --url http://127.0.0.1:4243 --from ... --to ... --row GPUs --height 31 --above "GPU.*|Hottest GPU|Idlest GPU"

The tree of `fixtures/machines/mi300x` is laid over that of `fixtures/proc/first`, and its tables are written anew ten
times a second, as the firmware of the cards would: a job in steps of 20 s that saves what it has after each of them, in
which GPU 5 is slower than the others and GPU 7 has nothing to do at first. telem samples the tree as it samples `/`.
"""

import argparse
import math
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "fixtures/machines"))
from gpu_metrics import device, table  # noqa: E402

PLACES = ["05", "15", "65", "75", "85", "95", "e5", "f5"]
STEP_S, SAVING_S, IDLE_FOR_S = 20, 3, 80
# What the counter of energy counts.
PER_JOULE = 65_536


def busy(gpu, at):
    """Share of time in which a GPU computes."""
    if gpu == 7 and at < IDLE_FOR_S:
        return 0.0
    within = at % STEP_S
    # The slow one makes the others wait at the end of each step.
    if within > STEP_S - SAVING_S:
        return 0.04
    if gpu == 5:
        return 0.99
    return 0.97 if within < STEP_S - SAVING_S - 4 else 0.55


def step(tree, gpus, at, passed, chance):
    for gpu, (path, state) in enumerate(gpus):
        share = min(1.0, max(0.0, busy(gpu, at) + chance.gauss(0, 0.015))) if busy(gpu, at) else 0.0
        watts = 135 + share * (590 if gpu != 5 else 470) + chance.gauss(0, 6)
        state["joules"] += watts * passed
        state["celsius"] += (38 + watts / 17 - state["celsius"]) * (1 - math.exp(-passed / 25))
        used = 20 + (150 + 4 * gpu if at > 3 and (gpu != 7 or at > IDLE_FOR_S) else 0)
        content = table(5, hotspot=round(state["celsius"]) + 6, mem=round(state["celsius"]), power=round(watts),
                        gfx=round(share * 100), umc=round(share * 45), energy=round(state["joules"] * PER_JOULE),
                        gfxclk=[2_100 if gpu != 5 else 1_600], uclk=1_300)
        for name, data in [("gpu_metrics", content), ("mem_info_vram_used", b"%d\n" % (used * 10**9))]:
            # In place: telem keeps its files open.
            with open(tree / path / name, "r+b") as file:
                file.write(data)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("telem")
    parser.add_argument("dir", type=Path)
    parser.add_argument("--seconds", type=float, default=240)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        tree = Path(place) / "root"
        for machine in ["proc/first", "machines/mi300x"]:
            shutil.copytree(ROOT / "fixtures" / machine, tree, symlinks=True, dirs_exist_ok=True)
        gpus = [(device(f"0000:{one}:00.0"), {"joules": 9e6 + 1e5 * gpu, "celsius": 45.0})
                for gpu, one in enumerate(PLACES)]
        for path, _ in gpus:
            # All have tables of one version here.
            (tree / path / "gpu_metrics").write_bytes(table(5))
            (tree / path / "mem_info_vram_used").write_bytes(b"%012d\n" % 0)
        chance = random.Random(7)
        step(tree, gpus, 0, 0.1, chance)
        serve = subprocess.Popen([args.telem, "serve", "--data", args.dir, "--sysroot", tree, "--level", "3", "--node",
                                  "node-17", "--listen", "127.0.0.1:0"])
        begun = before = time.monotonic()
        while (now := time.monotonic()) < begun + args.seconds:
            step(tree, gpus, now - begun, now - before, chance)
            before = now
            time.sleep(0.1)
        serve.send_signal(signal.SIGTERM)
        sys.exit(serve.wait(timeout=30))


if __name__ == "__main__":
    main()
