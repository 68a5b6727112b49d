# SPDX-License-Identifier: BSD-3-Clause
"""Draws Mermaid's sequence diagrams, which a forge draws by itself, as SVG for the site.

It knows participants, arrows (->>) and notes. Other lines raise Error.
"""
import re
import textwrap
from html import escape

COLUMN, ROW, LINE, TOP = 270, 16, 15, 46
HALO = ' paint-order="stroke" stroke="white" stroke-width="4"'
NOTE_COLOUR, BOX_COLOUR = "#fff6d6", "#dcebf7"


class Error(Exception):
    """A line of a diagram that this file cannot draw."""


def text(x, y, lines, halo=""):
    spans = (
        f'<tspan x="{x}" y="{y + number * LINE}">{escape(line)}</tspan>'
        for number, line in enumerate(lines)
    )
    return f'<text text-anchor="middle"{halo}>{"".join(spans)}</text>'


def box(x, y, width, height, colour):
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="5" fill="{colour}"'
        ' stroke="#607080"/>'
    )


def draw_arrow(start, end, y, label):
    """Returns an arrow below its label, and the height of both."""
    lines = textwrap.wrap(label, max(int(abs(start - end) / 7), 30))
    height = len(lines) * LINE
    middle = (start + end) // 2
    if start == end:
        path = f"M{start},{y + height} h40 v14 h-40"
        return [text(start + 130, y + LINE, lines), arrow(path)], height + 14
    return [text(middle, y + LINE - 3, lines, HALO), arrow(f"M{start},{y + height + 4} H{end}")], height + 4


def arrow(path):
    return f'<path d="{path}" fill="none" stroke="#405060" marker-end="url(#head)"/>'


def draw_note(left, right, y, label):
    width = right - left + COLUMN - 50
    lines = textwrap.wrap(label, int(width / 7))
    height = len(lines) * LINE + 10
    x = (left + right) // 2
    parts = [box(x - width // 2, y, width, height, NOTE_COLOUR), text(x, y + LINE + 2, lines)]
    return parts, height


def draw(source):
    """Returns the SVG of a diagram."""
    columns = {}
    parts = []
    y = TOP + ROW
    for line in source.strip().split("\n")[1:]:
        participant = re.fullmatch(r"participant (\w+) as (.*)", line.strip())
        message = re.fullmatch(r"(\w+)->>(\w+): (.*)", line.strip())
        note = re.fullmatch(r"Note over (\w+)(?:,(\w+))?: (.*)", line.strip())
        if participant:
            x = COLUMN // 2 + len(columns) * COLUMN
            columns[participant[1]] = x
            parts += [box(x - 90, 8, 180, TOP - 16, BOX_COLOUR), text(x, 28, [participant[2]])]
            continue
        if message:
            drawn, height = draw_arrow(columns[message[1]], columns[message[2]], y, message[3])
        elif note:
            drawn, height = draw_note(columns[note[1]], columns[note[2] or note[1]], y, note[3])
        else:
            raise Error(f"no picture can be drawn of: {line.strip()}")
        parts += drawn
        y += height + ROW
    lifelines = [f'<path d="M{x},{TOP - 8} V{y}" stroke="#a0b0c0"/>' for x in columns.values()]
    size = f"{len(columns) * COLUMN} {y + 8}"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}"'
        f' width="{size.split()[0]}" font-family="sans-serif" font-size="13">'
        '<rect width="100%" height="100%" fill="white"/><defs><marker id="head" markerWidth="9"'
        ' markerHeight="8" refX="8" refY="4" orient="auto"><path d="M0,0 L9,4 L0,8 z"'
        ' fill="#405060"/></marker></defs>'
    )
    return "\n".join([head, *lifelines, *parts, "</svg>"]) + "\n"
