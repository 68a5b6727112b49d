# SPDX-License-Identifier: BSD-3-Clause
"""Follows the links of Markdown pages, and rewrites them for the site."""
import os
import re
from pathlib import PurePosixPath

# A link or picture outside of code: the text before the target, the target, its anchor.
LINK = re.compile(r"(\]\()([^)\s#:]+)(#[^)\s]*)?(?=\))")
FENCE = re.compile(r"^ *(```|~~~)")
CODE = re.compile(r"(`+[^`]+`+)")


class Error(Exception):
    """A link to nothing. The text has file and line."""


def rewrite(root, page, text, replace):
    """Returns the text of a page with other link targets.

    `replace` gets the path of a target from the root of the repository, and returns the new target
    from there, or None if only the link's text shall stay.
    """
    lines = []
    fenced = False
    for number, line in enumerate(text.split("\n"), 1):
        fenced ^= bool(FENCE.match(line))
        if not fenced:
            place = f"{page}:{number}"
            pieces = CODE.split(line)
            pieces[::2] = (rewrite_links(root, page, place, piece, replace) for piece in pieces[::2])
            line = "".join(pieces)
        lines.append(line)
    return "\n".join(lines)


def rewrite_links(root, page, place, text, replace):
    folder = PurePosixPath(page).parent

    def new_link(match):
        path = os.path.normpath(folder / match[2])
        if path.startswith("..") or not (root / path).exists():
            raise Error(f"{place}: there is no {match[2]}")
        target = replace(path)
        if target is None:
            return "](dropped:"
        return match[1] + os.path.relpath(target, folder) + (match[3] or "")

    text = LINK.sub(new_link, text)
    return re.sub(r"\[([^][]*)\]\(dropped:\)", r"\1", text)
