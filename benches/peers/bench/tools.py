"""What a run needs and where it comes from: the loader (built), telem (built before, or told), the other databases (Debian
packages, unpacked into the cache and started from there; nothing is installed)."""

import json
import os
import pathlib
import subprocess

from .machine import say
from .server import Failed

HERE = pathlib.Path(__file__).resolve().parents[1]
CHECKOUT = HERE.parents[1]
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "telem"
FETCH_S = 300
BUILD_S = 600


class Tools:
    def __init__(self, telem, before, runtime_dir):
        self.cache = CACHE / "peers"
        self.versions = {}
        self.runtime_dir = runtime_dir
        self.telem = self._telem(telem)
        self.before = self._telem(before) if before else None
        self.load = self._loader()

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

    def binary(self, package, path):
        """A file of a Debian package, unpacked on first use."""
        directory = self.cache / package
        if not (directory / "version").exists():
            self._fetch(package, directory)
        self.versions[package] = (directory / "version").read_text()
        return directory / path

    def _fetch(self, package, directory):
        say(f"fetching {package}")
        directory.mkdir(parents=True, exist_ok=True)
        fetched = subprocess.run(
            ["apt-get", "download", "--quiet", package], cwd=directory, timeout=FETCH_S, capture_output=True, text=True
        )
        files = list(directory.glob("*.deb"))
        if fetched.returncode or len(files) != 1:
            raise Failed(f"apt-get download {package}: {fetched.stderr.strip()} (`apt-get update` may be needed)")
        subprocess.run(["dpkg-deb", "-x", files[0], directory], check=True, timeout=FETCH_S)
        said = subprocess.run(["dpkg-deb", "-f", files[0], "Version"], check=True, capture_output=True, text=True)
        files[0].unlink()
        # Last: it says that the rest is whole.
        (directory / "version").write_text(said.stdout.strip())

    def run_loader(self, *arguments, deadline_s=600):
        """Runs the loader; the line of JSON that it prints."""
        command = [str(part) for part in (self.load, *arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=deadline_s)
        if done.returncode:
            raise Failed(f"{' '.join(command)}: {done.stderr.strip()}")
        return json.loads(done.stdout)
