#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checks how sentences of comments, documents and texts for users open, and how long texts are.

A sentence names its subject first. The words Who, Whoever, Whom, Whose, Of, Those, What and
Whatever do not open one, unless it is a question or a heading. `--statistics` counts words and sentences.
Cells of Markdown tables are read as texts of their own; the head of a table is not read.
An error text of the product has at most 30 words: what failed, why, and what to do. Adjacent string
literals are one text. A text of more lines than an error text has is a help text or a file.
"""
import argparse
import ast
import re
import sys

REFUSED = re.compile(r"(Who|Whoever|Whom|Whose|What|Whatever|Of|Those)\b(?! course|\.\w)")
# A sentence ends before white space and a capital letter, a backquote or a quotation mark.
END = re.compile(r'(?<=[.!?:;])["\')\]]*\s+(?=[A-Z`"\'(])')
# Abbreviations whose full stop ends no sentence.
ABBREVIATION = re.compile(r"\b(e\.g|i\.e|etc|vs|cf|Inc|No|Fig|Sec)\.$")
ERROR_WORDS = 30
ERROR_LINES = 4
# Comments, strings and characters of a C source.
TOKEN = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
STRING = re.compile(r'"((?:\\.|[^"\\\n])*)"')
# White space, continued lines and macros like PRIu64 join strings.
JOINED = re.compile(STRING.pattern + r'(?:(?:\s|\\\n|\b(?:PRI|SCN)\w+)*"(?:\\.|[^"\\\n])*")*')


def long_error_texts(text):
    """Yields (line, words, text) for each error text of a C source that is too long."""
    code = TOKEN.sub(lambda m: m.group() if m.group().startswith('"')
                     else re.sub(r"[^\n]", " ", m.group()), text)
    for match in JOINED.finditer(code):
        joined = "".join(STRING.findall(match.group()))
        words = len(joined.replace("\\n", " ").split())
        if words > ERROR_WORDS and joined.count("\\n") < ERROR_LINES:
            yield code.count("\n", 0, match.start()) + 1, words, joined


def comments_and_strings(text):
    """Yields (line, kind, text) for each comment and string of a C source."""
    for match in TOKEN.finditer(text):
        found = match.group()
        line = text.count("\n", 0, match.start()) + 1
        if found.startswith("/"):
            yield line, "comment", found
        elif found.startswith('"'):
            yield line, "string", found[1:-1]


def paragraphs_of_comment(line, comment):
    """Yields (line, text) for each paragraph and list item of a block comment."""
    start, words = line, []
    for number, row in enumerate(comment.split("\n")):
        row = re.sub(r"^\s*(/\*+|\*/|\*|//|#+)?", "", row).replace("*/", "")
        item = re.match(r"\s*([-*]|\d+\.)\s+", row)
        drawn = row.startswith("\t") or row.startswith("    ")
        if (not row.strip() or item or drawn) and words:
            yield start, " ".join(words)
            words = []
        if not row.strip() or drawn:
            continue
        if not words:
            start = line + number
        words.append(row[item.end():].strip() if item else row.strip())
    if words:
        yield start, " ".join(words)


def from_c(text):
    for line, kind, found in comments_and_strings(text):
        if kind == "comment":
            yield from ((n, "comment", p) for n, p in paragraphs_of_comment(line, found))
        elif " " in found and not found.startswith("%s"):
            yield line, "string", found


def from_script(text, mark="#"):
    """Yields the comments that begin with `mark`; consecutive lines of comments are one."""
    start, words = 0, []
    for number, row in enumerate(text.split("\n") + [""], 1):
        match = re.match(rf"(|.*\s){mark}(?!!)\s?(.*)", row)
        alone = match and not match.group(1).strip()
        if alone and match.group(2).strip():
            start = start or number
            words.append(match.group(2).strip())
            continue
        if words:
            yield start, "comment", " ".join(words)
            start, words = 0, []
        if match and not alone:
            yield number, "comment", match.group(2).strip()


def from_python(text):
    yield from from_script(text)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            found = ast.get_docstring(node)
            if found:
                line = node.body[0].lineno
                yield from ((n, "comment", p) for n, p in paragraphs_of_comment(line, found))


def from_markdown(text):
    start, words, fenced, in_table = 0, [], False, False
    for number, row in enumerate(text.split("\n") + [""], 1):
        if row.lstrip().startswith("```"):
            fenced = not fenced
        skipped = fenced or row.lstrip().startswith(("```", "#", "|", "<"))
        item = re.match(r"\s*([-*]|\d+\.)\s+", row)
        if (skipped or not row.strip() or item) and words:
            yield start, "text", " ".join(words)
            start, words = 0, []
        is_row = not fenced and row.lstrip().startswith("|")
        if is_row and in_table:
            for cell in re.split(r"(?<!\\)\|", row):
                yield number, "cell", cell.strip()
        in_table = is_row
        if skipped or not row.strip() or row.startswith("    ") and not words:
            continue
        start = start or number
        words.append(row[item.end():].strip() if item else row.strip())


def from_man(text):
    start, words = 0, []
    for number, row in enumerate(text.split("\n") + [""], 1):
        if row.startswith((".", "'")) or not row.strip():
            if words:
                yield start, "text", " ".join(words)
            start, words = 0, []
            continue
        start = start or number
        words.append(re.sub(r"\\f[A-Z]|\\-", "", row))


def sentences(text):
    rest = []
    for part in END.split(text):
        rest.append(part)
        if not ABBREVIATION.search(part):
            yield " ".join(rest).strip()
            rest = []
    if rest:
        yield " ".join(rest).strip()


def paragraphs(name, text):
    if name.endswith((".c", ".h", ".cu", ".inc")):
        return from_c(text)
    if name.endswith(".proto"):
        return from_script(text, "//")
    if name.endswith(".py"):
        return from_python(text)
    if name.endswith(".md"):
        return from_markdown(text)
    if re.search(r"\.[1-9]$", name):
        return from_man(text)
    return from_script(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--statistics", action="store_true")
    parser.add_argument("files", nargs="*")
    arguments = parser.parse_args()
    refused, total, words = 0, 0, 0
    for name in arguments.files:
        with open(name, encoding="utf-8", errors="replace") as file:
            text = file.read()
        if name.endswith((".c", ".h", ".cu")) and not re.match(r"(\./)?(tests|examples)/", name):
            for line, count, found in long_error_texts(text):
                refused += 1
                if not arguments.statistics:
                    print(f"{name}:{line}: an error text of {count} words: at most {ERROR_WORDS}:"
                          f" {found[:60]}")
        for line, kind, paragraph in paragraphs(name, text):
            for sentence in sentences(paragraph):
                if kind in ("comment", "text"):
                    total += 1
                    words += len(sentence.split())
                match = REFUSED.match(sentence)
                if match and not sentence.rstrip("\"')").endswith("?"):
                    refused += 1
                    if not arguments.statistics:
                        print(f"{name}:{line}: a sentence opens with \"{match.group()}\":"
                              f" name its subject first: {sentence[:60]}")
    if arguments.statistics:
        print(f"{total} sentences, {words / max(total, 1):.1f} words each, {refused} refused")
        return 0
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
