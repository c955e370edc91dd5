#!/usr/bin/env python3
"""Wraps the prose of Markdown pages at 120 columns.

    tests/pages/wrap.py FILE.md...

A paragraph or list item with a line over 120 columns is filled anew. Tables, code, headings and HTML comments stay as
they are, and so does every paragraph that fits. `tests/prose.rs` refuses what this script would change.
"""

import re
import sys
from pathlib import Path

COLUMNS = 120
ITEM = re.compile(r"^(\s*)([*+-]|\d+[.)])(\s+)")
# What is never cut: a code span, a link or picture, a run of other characters. A piece glued to another stays glued.
WORD = re.compile(r"(?:`+[^`]*`+|!?\[[^\]]*\]\([^)]*\)|\S)+")
# What would begin something else at the start of a line.
BEGINS = re.compile(r"^([*+-]|\d+[.)]|[#>|=].*|<!--.*)$")


def fill(lines):
    """The lines of one paragraph or list item, filled."""
    item = ITEM.match(lines[0])
    first = item.group(0) if item else re.match(r"\s*", lines[0]).group(0)
    indent = " " * len(first)
    words = WORD.findall(" ".join([lines[0][len(first):].strip(), *(line.strip() for line in lines[1:])]))
    # A word that would begin something else takes the one before it along to its line.
    pieces = [words[0]]
    for word in words[1:]:
        if BEGINS.match(word):
            pieces[-1] += " " + word
        else:
            pieces.append(word)
    filled, line = [], first + pieces[0]
    for piece in pieces[1:]:
        if len(line) + 1 + len(piece) > COLUMNS:
            filled.append(line)
            line = indent + piece
        else:
            line += " " + piece
    return [*filled, line]


def wrap(text):
    out, block, fence, comment = [], [], None, False

    def flush():
        if any(len(line) > COLUMNS for line in block):
            out.extend(fill(block))
        else:
            out.extend(block)
        block.clear()

    for line in text.split("\n"):
        stripped = line.strip()
        mark = re.match(r"(```+|~~~+)", stripped)
        kept = fence or comment or mark or stripped.startswith(("|", "#", "<!--")) or not stripped
        if kept:
            flush()
            out.append(line)
            if fence:
                fence = None if stripped.startswith(fence) else fence
            elif mark and not comment:
                fence = mark.group(1)
            comment = (comment or stripped.startswith("<!--")) and "-->" not in stripped
            continue
        if ITEM.match(line):
            flush()
        block.append(line)
    flush()
    return "\n".join(out)


def main():
    for path in map(Path, sys.argv[1:]):
        text = path.read_text(encoding="utf-8")
        wrapped = wrap(text)
        if wrapped != text:
            path.write_text(wrapped, encoding="utf-8")


if __name__ == "__main__":
    main()
