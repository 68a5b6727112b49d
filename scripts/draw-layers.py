#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Draws the folders and the includes that tests/style/layers.txt allows.

    scripts/draw-layers.py            writes docs/design/layers.svg (needs Graphviz)
    scripts/draw-layers.py --check    exits with 1 if the picture and the table differ

An arrow means "may include"; a dashed arrow stands for single headers. An arrow is left out if a
chain of other arrows connects the same two folders. The check reads folders and arrows out of the
picture, so it needs no Graphviz and does not depend on its version.
"""
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

TABLE = "tests/style/layers.txt"
PICTURE = "docs/design/layers.svg"
PUBLIC = "lib/include/"
SVG = "http://www.w3.org/2000/svg"
XLINK = "http://www.w3.org/1999/xlink"
# Fill colours by the first folder of a path.
COLOURS = {
    "lib": "#dcebf7",
    "drivers": "#fde9d3",
    "gpudirect": "#e3f3dc",
    "collectives": "#ece3f5",
    "daemon": "#f9e0e3",
    "nccl": "#e0f2f1",
}
OTHER_COLOUR = "#f2f2f2"


def read_table(path):
    """Returns the rows, in order: a dict of lists of words."""
    rows = {}
    row = None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.startswith("#") or not line.strip():
            continue
        if not line[0].isspace():
            row, colon, line = line.partition(":")
            if not colon or row in rows:
                sys.exit(f"{TABLE}:{number}: expected 'folder: words', each folder once")
            rows[row] = []
        rows[row] += line.split()
    return rows


def row_of(rows, path):
    """Returns the row for a file or folder: the longest one that the path begins with."""
    return max((row for row in rows if path.startswith(row)), key=len, default=None)


def allowed_arrows(rows):
    """Returns {(from, to): None or the list of the only headers}, without a row's own folder."""
    arrows = {}
    for row, words in rows.items():
        for word in words or [PUBLIC]:
            target = row_of(rows, word)
            if target is None:
                sys.exit(f"{TABLE}:1: row {row} has {word}, which has no row")
            if target == row or row == PUBLIC:
                continue
            if word == target:
                arrows[row, target] = None
            elif arrows.get((row, target), ()) is not None:
                arrows.setdefault((row, target), []).append(word)
    return arrows


def reachable(arrows, start, without):
    """Returns the rows that a chain of arrows leads to from `start`, not using one arrow."""
    seen = set()
    left = [start]
    while left:
        row = left.pop()
        for arrow in arrows:
            if arrow[0] == row and arrow != without and arrow[1] not in seen:
                seen.add(arrow[1])
                left.append(arrow[1])
    return seen


def drawn_arrows(arrows):
    """Leaves out the arrows that a chain replaces. The arrows must have no cycle."""
    for start in sorted({arrow[0] for arrow in arrows}):
        if start in reachable(arrows, start, None):
            sys.exit(f"{TABLE}:1: a cycle: folders that {start} may include may include {start}")
    return {
        arrow: headers
        for arrow, headers in arrows.items()
        if arrow[1] not in reachable(arrows, arrow[0], arrow)
    }


def label(row):
    """Returns the text of a box. A row for the files of one name stands for a header."""
    if row == PUBLIC:
        return "lib/include\\n<ferrule/...>"
    if row.endswith("/"):
        return row[:-1]
    return row + "h" if row.endswith(".") else row + "*"


def to_dot(rows, arrows):
    """Returns the picture in Graphviz's language."""
    lines = [
        "digraph layers {",
        'graph [rankdir=LR, nodesep=0.12, ranksep=0.4, bgcolor=white, fontname="sans-serif"];',
        'node [shape=box, style="filled,rounded", color="#607080", fontname="sans-serif",'
        " fontsize=12, height=0.32, margin=\"0.1,0.04\"];",
        'edge [color="#405060", arrowsize=0.7];',
    ]
    for row in rows:
        colour = COLOURS.get(row.split("/")[0], OTHER_COLOUR)
        lines.append(f'"{row}" [label="{label(row)}", fillcolor="{colour}"];')
    for (start, end), headers in arrows.items():
        style = f'style=dashed, tooltip="{" ".join(headers)}"' if headers else "style=solid"
        lines.append(f'"{start}" -> "{end}" [{style}];')
    return "\n".join(lines + ["}"])


def wanted_titles(rows, arrows):
    """Returns what a picture of these rows has: a title for each box and each arrow."""
    titles = set(rows)
    for (start, end), headers in arrows.items():
        titles.add(f"{start}->{end}" + (f" ({' '.join(headers)})" if headers else ""))
    return titles


def titles_of(svg):
    """Returns the titles of a picture's boxes and arrows, with the headers of dashed arrows."""
    titles = set()
    for group in ElementTree.fromstring(svg).iter(f"{{{SVG}}}g"):
        if group.get("class") not in ("node", "edge"):
            continue
        title = group.find(f"{{{SVG}}}title").text
        link = group.find(f".//{{{SVG}}}a")
        headers = link.get(f"{{{XLINK}}}title") if link is not None else ""
        titles.add(title + (f" ({headers})" if headers else ""))
    return titles


def main():
    arguments = sys.argv[1:]
    check = "--check" in arguments
    folders = [argument for argument in arguments if argument != "--check"]
    root = Path(folders[0]) if folders else Path(__file__).resolve().parent.parent
    rows = read_table(root / TABLE)
    arrows = drawn_arrows(allowed_arrows(rows))
    picture = root / PICTURE
    if check:
        there = titles_of(picture.read_text()) if picture.exists() else set()
        wanted = wanted_titles(rows, arrows)
        for title in sorted(wanted ^ there):
            state = "is missing" if title in wanted else f"is not in {TABLE}"
            print(f"{PICTURE}:1: {title} {state}; run scripts/draw-layers.py")
        sys.exit(1 if wanted != there else 0)
    dot = subprocess.run(
        ["dot", "-Tsvg"], input=to_dot(rows, arrows), text=True, stdout=subprocess.PIPE, check=True
    )
    picture.parent.mkdir(parents=True, exist_ok=True)
    picture.write_text(dot.stdout)


if __name__ == "__main__":
    main()
