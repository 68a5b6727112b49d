# SPDX-License-Identifier: BSD-3-Clause
"""Writes the pages of the site about the public headers, and about the programs' manual pages, as
reStructuredText."""
import re
import subprocess

from headers import parts_of, sentences

HEADING = re.compile(r'<h1 class="Sh" id="[^"]*"><a [^>]*>(.*?)</a></h1>', re.S)
REFERENCE = re.compile(r"<b>([a-z][\w.-]*)</b>\((\d)\)")


def escape(text):
    return re.sub(r"([\\*|_])", r"\\\1", text)


def inline(text):
    """Returns a paragraph; functions become references, `names` literals."""
    pieces = re.split(r"(`[^`]*`|\bfrl_\w+\(\))", text)
    for number, piece in enumerate(pieces):
        if number % 2 == 0:
            pieces[number] = escape(piece)
        elif piece.startswith("`"):
            pieces[number] = f"\\ ``{piece[1:-1]}``\\ "
        else:
            pieces[number] = f"\\ :c:func:`{piece[:-2]}`\\ "
    return "".join(pieces).removeprefix("\\ ")


def indented(lines, indent):
    return [(indent + line).rstrip() for line in lines]


def paragraphs(parts, indent=""):
    lines = []
    for kind, content in parts:
        if kind == "text":
            lines += indented([inline(content[0]), ""], indent)
        elif kind == "literal":
            cut = min(len(line) - len(line.lstrip()) for line in content)
            lines += [indent + "::", ""]
            lines += indented((line[cut:] for line in content), indent + "   ") + [""]
        else:
            mark = "- " if kind == "list" else "#. "
            lines += [indent + mark + inline(item) for item in content] + [""]
    return lines


def source(text, indent=""):
    code = indented(text.expandtabs(8).split("\n"), indent + "   ")
    return [indent + ".. code-block:: c", "", *code, ""]


def heading(text, mark):
    return [text, mark * len(text), ""]


def type_lines(block, functions):
    """Returns a type or constants: a declaration that links lead to, the comment and the source."""
    text = paragraphs(parts_of(block.comment), "   ")
    keyword = re.match(r"(struct|enum|union) ", block.source)
    names = [name for name in block.names if name not in functions]
    if not names or not keyword:
        return paragraphs(parts_of(block.comment)) + (source(block.source) if block.source else [])
    return [f".. c:{keyword[1]}:: {names[0]}", "", *text, *source(block.source, "   ")]


def header_page(header, functions):
    """Returns the page of a header."""
    parts = parts_of(header.about)
    title, *rest = sentences(parts[0][1][0])
    parts[0] = ("text", [" ".join(rest)])
    lines = heading(f"{header.name}: {title.rstrip('.')}", "=")
    lines += paragraphs(part for part in parts if part[1][0])
    for block in header.blocks:
        if not block.functions:
            lines += type_lines(block, functions)
            continue
        lines += source(block.source) if block.source else []
        first, *others = [re.sub(r"\s+", " ", function.text) for function in block.functions]
        lines.append(f".. c:function:: {first}")
        lines += [f"                {other}" for other in others] + [""]
        lines += paragraphs(parts_of(block.comment), "   ")
    return "\n".join(lines)


def manual_page(path, pages, functions):
    """Returns a manual page. mandoc formats it; references become links."""
    html = subprocess.run(
        ["mandoc", "-T", "html", "-O", "fragment", path], stdout=subprocess.PIPE, check=True, text=True
    ).stdout
    html = re.sub(r'<table class="(head|foot)">.*?</table>', "", html, flags=re.S)

    def link(match):
        name, section = match[1], match[2]
        file = f"{name}.{section}"
        if file in pages:
            return f'<a href="{file}.html"><b>{name}</b>({section})</a>'
        if name in functions:
            return f'<a href="../reference/api/{functions[name]}.html#c.{name}"><b>{name}</b></a>'
        if name.startswith("ferrule_"):
            return f'<a href="../reference/api/{name[8:]}.html"><b>{name[8:]}.h</b></a>'
        return match[0]

    html = REFERENCE.sub(link, html.replace("&#x2010;", "-").replace("&#x2212;", "-"))
    begin, *sections = HEADING.split(html)
    lines = heading(f"{path.stem}({path.suffix[1:]})", "=")
    for title, text in zip(sections[::2], sections[1::2]):
        text = re.sub(r"</?section[^>]*>|</?div class=\"manual-text\">", "", text)
        lines += heading(" ".join(title.split()), "-") + [".. raw:: html", ""]
        lines += indented(text.strip().split("\n"), "   ") + [""]
    return "\n".join(lines)
