#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Draws the folders and the includes that tests/style/layers.txt allows.

    scripts/draw-layers.py            writes docs/design/layers*.svg (needs Graphviz)
    scripts/draw-layers.py --check    exits with 1 if the pictures and the table differ

An arrow means "may include"; a dashed arrow stands for single headers. Two kinds of arrows are left
out, except on the main path: those that a chain of solid arrows replaces, and those to lib/base. An
arrow that all boxes of a frame have begins at the frame. The check reads boxes and arrows out of the
pictures, so it needs no Graphviz and does not depend on its version.
"""
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

TABLE = "tests/style/layers.txt"
# The pictures, and the first folders of the rows that each is about. A picture also has the rows
# that these may include.
PICTURES = {
    "docs/design/layers.svg": ("lib", "drivers", "gpudirect", "dropin"),
    "docs/design/layers-collectives.svg": ("collectives", "nccl"),
    "docs/design/layers-daemon.svg": ("daemon", "tools", "examples"),
}
BASE = "lib/base/"
# Folders below the first ones that have a frame, and first folders that are a box without a frame.
FRAMES = ("lib/api/", "lib/engine/", "lib/device/", "daemon/core/")
UNFRAMED = ("nccl/", "dropin/", "gpudirect/", "examples/")
# The way of a work request through the layers: these arrows are always drawn, and bold.
MAIN_PATH = ("lib/api/", "lib/device/", "lib/engine/", "lib/protocol/", "lib/wire/", BASE)
MAIN_ARROWS = set(zip(MAIN_PATH, MAIN_PATH[1:]))
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
    "dropin": "#fbf6d9",
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
    """Leaves out arrows, as the first lines of this file say. The arrows must have no cycle."""
    for start in sorted({arrow[0] for arrow in arrows}):
        if start in reachable(arrows, start, None):
            sys.exit(f"{TABLE}:1: a cycle: folders that {start} may include may include {start}")
    solid = {arrow for arrow, headers in arrows.items() if headers is None}
    drawn = {}
    for arrow, headers in arrows.items():
        replaced = arrow[1] in reachable(solid, arrow[0], arrow)
        if arrow in MAIN_ARROWS or not (replaced or arrow[1] == BASE):
            drawn[arrow] = headers
    return drawn


def part_of(rows, arrows, subjects):
    """Returns the rows and arrows of one picture, which is about the rows below `subjects`, and
    those of the arrows that begin at a frame."""
    about = {row for row in rows if row.split("/")[0] in subjects}
    shown = {arrow: headers for arrow, headers in arrows.items() if arrow[0] in about}
    shown, of_frames = join_arrows(about, shown)
    ends = {arrow[1] for arrow in shown}
    # The row of the public headers has no arrow from folders that also include other rows.
    boxes = [row for row in rows if row in ends or (row in about and row != PUBLIC)]
    return boxes, shown, of_frames


def join_arrows(rows, arrows):
    """Keeps one of the arrows that all boxes of a frame have to the same box outside it.

    Returns the remaining arrows, and those that stand for a whole frame.
    """
    joined = dict(arrows)
    of_frames = set()
    for folder in FRAMES:
        boxes = [row for row in rows if row.startswith(folder)]
        for (start, end), headers in arrows.items():
            same = [(box, end) for box in boxes if arrows.get((box, end), ()) == headers]
            if start == folder and len(boxes) > 1 and same == [(box, end) for box in boxes]:
                of_frames.add((start, end))
                for arrow in set(same) - {(start, end)}:
                    del joined[arrow]
    return joined, of_frames


def cluster_of(row):
    """Returns the frames that a box stands in, the outermost first."""
    folders = row.split("/")[:-1]
    if len(folders) == 1 and row in UNFRAMED:
        return []
    return folders[:1] + [folder[:-1] for folder in FRAMES if row.startswith(folder)]


def label(row):
    """Returns the text of a box. A row for the files of one name stands for a header."""
    if row == PUBLIC:
        return "include\\n<ferrule/...>"
    frames = cluster_of(row)
    name = row[len(frames[-1]) + 1 :] if frames else row
    if not name:
        return row[:-1]
    if name.endswith("/"):
        return name[:-1]
    return name + "h" if name.endswith(".") else name + "*"


def boxes_in_dot(rows):
    """Returns the boxes in Graphviz's language, in the frames of their folders."""
    lines = []
    frames = {}
    for row in rows:
        colour = COLOURS.get(row.split("/")[0], OTHER_COLOUR)
        box = f'"{row}" [label="{label(row)}", fillcolor="{colour}"];'
        frames.setdefault(tuple(cluster_of(row)), []).append(box)
    opened = []
    for path in sorted(frames):
        while opened and list(path[: len(opened)]) != opened:
            opened.pop()
            lines.append("}")
        for name in path[len(opened) :]:
            opened.append(name)
            lines.append(f'subgraph "cluster {name}" {{ label="{name}";')
        lines += frames[path]
    return lines + ["}"] * len(opened)


def to_dot(rows, arrows, of_frames):
    """Returns the picture in Graphviz's language."""
    lines = [
        "digraph layers {",
        'graph [rankdir=TB, compound=true, nodesep=0.2, ranksep=0.45, bgcolor=white, fontname="sans-serif",'
        ' fontsize=12, style=rounded, color="#90a0b0", labeljust=l];',
        'node [shape=box, style="filled,rounded", color="#607080", fontname="sans-serif",'
        ' fontsize=12, height=0.32, margin="0.1,0.04"];',
        'edge [color="#405060", arrowsize=0.7];',
    ]
    lines += boxes_in_dot(rows)
    for (start, end), headers in arrows.items():
        style = f'style=dashed, tooltip="{" ".join(headers)}"' if headers else "style=solid"
        if (start, end) in MAIN_ARROWS:
            style += ', penwidth=3, color="#1060b0", weight=20'
        if (start, end) in of_frames:
            style += f', ltail="cluster {start[:-1]}", class=frame'
        lines.append(f'"{start}" -> "{end}" [{style}];')
    return "\n".join(lines + ["}"])


def wanted_titles(rows, arrows, of_frames):
    """Returns what a picture of these rows has: a title for each box and each arrow."""
    titles = set(rows)
    for (start, end), headers in arrows.items():
        frame = "frame " if (start, end) in of_frames else ""
        titles.add(f"{frame}{start}->{end}" + (f" ({' '.join(headers)})" if headers else ""))
    return titles


def titles_of(svg):
    """Returns the titles of a picture's boxes and arrows, with the headers of dashed arrows."""
    titles = set()
    for group in ElementTree.fromstring(svg).iter(f"{{{SVG}}}g"):
        if group.get("class") not in ("node", "edge", "edge frame"):
            continue
        frame = "frame " if group.get("class") == "edge frame" else ""
        title = group.find(f"{{{SVG}}}title").text
        link = group.find(f".//{{{SVG}}}a")
        headers = link.get(f"{{{XLINK}}}title") if link is not None else ""
        titles.add(frame + title + (f" ({headers})" if headers else ""))
    return titles


def check_picture(name, path, wanted):
    """Prints what a picture lacks, and what it has too much. Returns whether it is right."""
    there = titles_of(path.read_text()) if path.exists() else set()
    for title in sorted(wanted ^ there):
        state = "is missing" if title in wanted else f"is not in {TABLE}"
        print(f"{name}:1: {title} {state}; run scripts/draw-layers.py")
    return wanted == there


def main():
    arguments = sys.argv[1:]
    check = "--check" in arguments
    folders = [argument for argument in arguments if argument != "--check"]
    root = Path(folders[0]) if folders else Path(__file__).resolve().parent.parent
    rows = read_table(root / TABLE)
    arrows = drawn_arrows(allowed_arrows(rows))
    pictured = {subject for subjects in PICTURES.values() for subject in subjects}
    for row in rows:
        if row.split("/")[0] not in pictured:
            sys.exit(f"{TABLE}:1: row {row} is in no picture; add it to scripts/draw-layers.py")
    right = True
    for name, subjects in PICTURES.items():
        shown = part_of(rows, arrows, subjects)
        if check:
            right = check_picture(name, root / name, wanted_titles(*shown)) and right
        else:
            dot = subprocess.run(
                ["dot", "-Tsvg"], input=to_dot(*shown), text=True, stdout=subprocess.PIPE, check=True
            )
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(dot.stdout)
    sys.exit(0 if right else 1)


if __name__ == "__main__":
    main()
