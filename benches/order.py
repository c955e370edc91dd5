#!/usr/bin/env python3
"""The functions that ran, in the order in which activities need them: for a linker that puts them side by side.

    benches/order.py PROFILE... > ORDER

Each PROFILE is what `llvm-profdata merge --text` writes of one activity. A function stands where it first ran. So what
every telem does lies together, and what a later activity needs besides lies behind it: each has few pages of the binary
in memory. ./release calls this.
"""

import pathlib
import sys


def ran(profile):
    """The names of the functions of which any part ran. A block is a name, headings with `#`, and numbers."""
    lines = profile.read_text().splitlines()
    for at, line in enumerate(lines):
        if line != "# Func Hash:":
            continue
        values = lines.index("# Counter Values:", at) + 1
        count = int(lines[values - 2])
        if any(line != "0" for line in lines[values : values + count]):
            # A function that others cannot call stands with the file it is in: FILE;NAME.
            yield lines[at - 1].rpartition(";")[2]


def main():
    seen = {}
    for profile in map(pathlib.Path, sys.argv[1:]):
        before = len(seen)
        seen.update(dict.fromkeys(ran(profile)))
        print(f"{profile.stem}: {len(seen) - before} functions", file=sys.stderr)
    print("\n".join(seen))


if __name__ == "__main__":
    main()
