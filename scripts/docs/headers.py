# SPDX-License-Identifier: BSD-3-Clause
"""Reads the public headers: comments, prototypes, types and constants, in their order.

A comment belongs to the declarations after it, up to the next comment or empty line. Functions
without a comment of their own share the comment and page of the function or type before them.
"""
import re
from dataclasses import dataclass, field
from pathlib import Path

TOKEN = re.compile(r"/\*.*?\*/|\n[ \t]*\n|[^\n]*\n?", re.S)
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`*\"]|frl_)")


@dataclass
class Function:
    """A prototype. `text` is on one line, without FRL_API."""

    name: str
    text: str
    returns: str
    parameters: list


@dataclass
class Block:
    """A comment with its declarations: functions, or the source text of types and constants."""

    line: int
    comment: list = field(default_factory=list)
    functions: list = field(default_factory=list)
    source: str = ""
    names: list = field(default_factory=list)  # of types that the source defines


@dataclass
class Header:
    """A public header. `about` is its first comment."""

    name: str
    about: list
    blocks: list

    @property
    def functions(self):
        return [function for block in self.blocks for function in block.functions]


class Error(Exception):
    """A header that this parser does not understand. The text has file and line."""


def comment_lines(comment):
    """Returns the lines of a comment without its frame."""
    lines = comment[2:-2].split("\n")
    lines = [lines[0].strip()] + [re.sub(r"^[ \t]*\* ?", "", line).rstrip() for line in lines[1:]]
    while lines and not lines[0]:
        lines.pop(0)
    while lines and not lines[-1]:
        lines.pop()
    return [line.expandtabs(8) for line in lines]


def parts_of(lines):
    """Splits comment lines into ("text", words), ("literal", lines) and ("list", mark, items)."""
    parts = []
    for line in lines:
        last = parts[-1] if parts else None
        mark = re.match(r"(-|\d+\.) +(.*)", line)
        if not line:
            parts.append(None)
        elif mark:
            kind = "list" if mark[1] == "-" else "enum"
            previous = next((part for part in reversed(parts) if part), None)
            if previous and previous[0] == kind and not isinstance(last, tuple):
                parts.append(previous)
            elif not (last and last[0] == kind):
                parts.append((kind, []))
            parts[-1][1].append(mark[2])
        elif line.startswith(" ") and last and last[0] in ("list", "enum"):
            last[1][-1] += " " + line.strip()
        elif line.startswith("    "):
            if not (last and last[0] == "literal"):
                parts.append(("literal", []))
            parts[-1][1].append(line)
        elif last and last[0] == "text":
            last[1][0] += " " + line
        else:
            parts.append(("text", [line]))
    unique = []
    for part in parts:
        if part and not any(part is other for other in unique):
            unique.append(part)
    return unique


def sentences(text):
    """Splits a paragraph into sentences; one inside parentheses stays with its sentence."""
    result = []
    for piece in SENTENCE_END.split(text):
        if result and result[-1].count("(") > result[-1].count(")"):
            result[-1] += " " + piece
        else:
            result.append(piece)
    return result


def split_parameters(text):
    """Splits a parameter list at its commas, not at those inside parentheses."""
    result, depth, start = [], 0, 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            result.append(text[start:position].strip())
            start = position + 1
    return result + [text[start:].strip()]


def read_function(text, place):
    """Parses a prototype without FRL_API."""
    text = re.sub(r"\s+", " ", text).strip().rstrip(";").strip()
    text = text.replace("( ", "(")
    match = re.fullmatch(r"((?:[\w]+ )+\**)(frl_\w+)\((.*)\)", text)
    if not match:
        raise Error(f"{place}: not understood as a prototype: {text}")
    parameters = [] if match[3] == "void" else split_parameters(match[3])
    return Function(match[2], text, match[1].strip(), parameters)


def names_of(source):
    """Returns the types that a piece of source defines, not those that it only declares."""
    names = re.findall(r"^(?:struct|enum|union) (frl_\w+) \{", source, re.M)
    names += re.findall(r"^typedef .*?\(\*(frl_\w+)\)", source, re.M)
    return names


def declaration_end(text, start):
    """Returns where the declaration that begins at `start` ends, braces included."""
    if text[start] == "#":
        end = start
        while True:
            end = text.index("\n", end)
            if text[end - 1] != "\\":
                return end
            end += 1
    depth = 0
    position = start
    while True:
        if text.startswith("/*", position):
            position = text.index("*/", position) + 2
            continue
        character = text[position]
        depth += (character == "{") - (character == "}")
        if depth == 0 and (character == ";" or (character == "}" and inline(text, start))):
            return position + 1
        position += 1


def inline(text, start):
    return text.startswith("static inline", start)


def worth_reading(block):
    """Returns whether a block says more than that a type exists."""
    if block.comment or block.functions:
        return True
    return not re.fullmatch(r"(struct \w+;\s*)*|#if .*", block.source, re.S)


def body_of(text, place):
    """Returns the part between the frame of guards, includes and extern "C", and where it is."""
    begin = re.search(r'extern "C" \{\n#endif\n', text)
    end = text.rfind("#ifdef __cplusplus")
    if not begin or end < begin.end():
        raise Error(f'{place}: no part between extern "C" {{ and }}')
    return begin.end(), end


def read_header(path):
    """Parses one header. Raises Error."""
    text = path.read_text()
    comments = re.findall(r"^/\*.*?\*/", text, re.S | re.M)
    if len(comments) < 2:
        raise Error(f"{path}:1: no comment about the header")
    header = Header(path.name, comment_lines(comments[1]), [])
    position, end = body_of(text, path)
    block = None
    after_gap = True
    gap = "\n"
    while position < end:
        if text[position] in " \t\n":
            gap = re.compile(r"\s+").match(text, position)[0]
            after_gap = gap.count("\n") > 1
            position += len(gap)
            continue
        line = text.count("\n", 0, position) + 1
        if text.startswith("/*", position):
            stop = text.index("*/", position) + 2
            if block and block.source and "\n" not in gap:
                block.source += gap + text[position:stop]
                position, after_gap = stop, False
                continue
            block = Block(line, comment_lines(text[position:stop]))
            if not block.comment[0].startswith("----"):
                header.blocks.append(block)
            else:
                block = None
            position, after_gap = stop, False
            continue
        stop = declaration_end(text, position)
        source = text[position:stop]
        is_function = source.startswith("FRL_API") or inline(text, position)
        # Functions without a comment belong to the commented type before them.
        if block is None or (after_gap and not (is_function and block.names and block.comment)):
            block = Block(line)
            header.blocks.append(block)
        if source.startswith("FRL_API"):
            block.functions.append(read_function(source[len("FRL_API") :], f"{path}:{line}"))
        elif inline(text, position):
            prototype = source[len("static inline") : source.index("{")]
            block.functions.append(read_function(prototype, f"{path}:{line}"))
        else:
            block.source += ("\n" if block.source else "") + source
            block.names += names_of(source)
        position, after_gap, gap = stop, False, ""
    header.blocks = [block for block in header.blocks if worth_reading(block)]
    for block in header.blocks:
        if block.functions and not block.comment:
            names = ", ".join(function.name for function in block.functions)
            raise Error(f"{path}:{block.line}: no comment about {names}")
    return header


def read_headers(paths):
    """Parses the public headers, except the one that includes the others. Raises Error."""
    folder = paths[0].parent
    missing = {path.name for path in folder.glob("*.h")} - {path.name for path in paths}
    if missing:
        raise Error(f"{folder}: not listed in docs/man/meson.build: {' '.join(sorted(missing))}")
    return [read_header(path) for path in sorted(paths) if path.name != "ferrule.h"]
