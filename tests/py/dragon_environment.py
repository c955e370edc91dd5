"""The real package `dragonhpc` in an environment of its own, which is made once and kept in the cache."""

import fcntl
import os
import pathlib
import shutil
import subprocess
import sys

WANTED = pathlib.Path(__file__).with_name("requirements-dragon.txt")
HAS_WHEELS = (3, 11) <= sys.version_info[:2] <= (3, 13) and sys.platform == "linux"


def python():
    """The path of its interpreter."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "telem"
    cache.mkdir(parents=True, exist_ok=True)
    place, wanted = cache / "venv-dragon", WANTED.read_text() + sys.version
    with open(cache / "venv-dragon.lock", "w") as lock:
        # Another run may be making it.
        fcntl.flock(lock, fcntl.LOCK_EX)
        noted = place / "telem-wanted"
        if not noted.is_file() or noted.read_text() != wanted:
            shutil.rmtree(place, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", place], check=True)
            pip = [place / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check"]
            subprocess.run([*pip, "-r", WANTED], check=True)
            noted.write_text(wanted)
    return str(place / "bin" / "python")
