"""What a run needs beside the other databases: the loader and the program that appends arrays (built), and telem (built
before, or told)."""

import json
import os
import pathlib
import subprocess

from .binaries import CACHE, Binaries
from .machine import say
from .server import Failed

HERE = pathlib.Path(__file__).resolve().parents[1]
CHECKOUT = HERE.parents[1]
BUILD_S = 600
#: The engine in release, with Arrow and Parquet.
ENGINE_BUILD_S = 3_600


class Tools(Binaries):
    def __init__(self, telem, before, append, runtime_dir, **others):
        super().__init__(**others)
        self.runtime_dir = runtime_dir
        self.telem = self._telem(telem)
        self.before = self._telem(before) if before else None
        self.load = self._loader()
        self.append = pathlib.Path(append).resolve() if append else self._append()

    def _telem(self, given):
        target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or CACHE / "target")
        places = [given] if given else [target / "release/telem", CHECKOUT / "target/release/telem"]
        for place in places:
            if pathlib.Path(place).is_file():
                return pathlib.Path(place).resolve()
        said = ", ".join(map(str, places))
        raise Failed(f"no telem at {said}: cargo build --locked --release -p telem-server, or TELEM=BINARY")

    def _loader(self):
        say("building the loader")
        manifest = HERE / "load" / "Cargo.toml"
        target = self.cache / "load"
        command = ["cargo", "build", "--locked", "--release", "--quiet", "--manifest-path", manifest]
        subprocess.run([*command, "--target-dir", target], check=True, timeout=BUILD_S)
        return target / "release" / "telem-load"

    def _append(self):
        say("building the program that appends arrays in process: minutes, the first time")
        target = self.cache / "append"
        command = ["cargo", "build", "--locked", "--release", "--quiet", "-p", "telem-benches", "--example", "append"]
        subprocess.run([*command, "--target-dir", target], check=True, timeout=ENGINE_BUILD_S, cwd=CHECKOUT)
        return target / "release" / "examples" / "append"

    def run_loader(self, *arguments, deadline_s=600):
        """Runs the loader; the line of JSON that it prints."""
        command = [str(part) for part in (self.load, *arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=deadline_s)
        if done.returncode:
            raise Failed(f"{' '.join(command)}: {done.stderr.strip()}")
        return json.loads(done.stdout)
