"""The examples of a page: its fenced blocks of one language, in their order."""

import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]


def blocks(page, language):
    """Those that no comment before their fence takes out: `<!-- not run: REASON -->`."""
    found, block, is_taken_out = [], None, False
    for line in (ROOT / page).read_text().splitlines():
        if block is not None:
            if line == "```":
                if block[0] == language and not is_taken_out:
                    found.append("\n".join(block[1:]) + "\n")
                block, is_taken_out = None, False
            else:
                block.append(line)
        elif line.startswith("```"):
            block = [line[3:]]
        elif line.startswith("<!-- not run:"):
            is_taken_out = True
        elif line:
            is_taken_out = False
    return found
