"""The dashboards that Grafana reads are those that the script beside them writes."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_the_dashboards_are_what_the_script_writes():
    written = subprocess.run([sys.executable, ROOT / "grafana" / "write.py", "--check"], capture_output=True, text=True)
    assert written.returncode == 0, written.stderr
