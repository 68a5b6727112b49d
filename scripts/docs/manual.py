# SPDX-License-Identifier: BSD-3-Clause
"""Writes manual pages of section 3, in man(7): one for each commented block of functions, one for
each header, and one-line pages (.so) for the other names that readers look up."""
import re
import textwrap

from headers import parts_of, sentences

RETURNS = re.compile(r"(\w+ )?(also )?[Rr]eturns? |Errors |Other errors ")
ERROR_TEXT = "frl_last_error() "
SUCCESS = (
    "0 on success unless stated otherwise; a negative errno on failure, whose reason"
    " frl_last_error() returns."
)
SYNOPSIS_WIDTH = 76
WRAP = {"width": 78, "break_long_words": False, "break_on_hyphens": False}


def escape(text):
    """Returns text in which roff changes nothing."""
    text = text.replace("\\", "\\e").replace('"', "\\[dq]")
    text = re.sub(r"(?<![\w)])-(?=[\w-])", r"\\-", text)
    return re.sub(r"^(?=[.'])", r"\\&", text)


def inline(text, pages):
    """Escapes a paragraph; functions with a page become references, `names` italic."""
    text = escape(text)
    text = re.sub(r"`([^`]*)`", r"\\fI\1\\fR", text)
    text = re.sub(
        r"\b(frl_\w+)\(\)",
        lambda match: rf"\fB{match[1]}\fR(3)" if match[1] in pages else rf"\fB{match[1]}\fR()",
        text,
    )
    # Names are not hyphenated.
    text = re.sub(r"(?<![\\\w])(?=[A-Za-z]\w*_\w)|(?=\\f[BI]\w)", r"\\%", text)
    lines = [line for sentence in sentences(text) for line in textwrap.wrap(sentence, **WRAP)]
    return "\n".join(re.sub(r"^(?=[.'])", r"\\&", line) for line in lines)


def literal(lines):
    return [".PP", ".RS 4", ".EX", *(escape(line) or "\\&" for line in lines), ".EE", ".RE"]


def paragraphs(parts, pages):
    """Returns the lines for the parts of a comment."""
    lines = []
    for kind, content in parts:
        if kind == "text":
            lines += [".PP"] * bool(lines) + [inline(content[0], pages)]
        elif kind == "literal":
            indent = min(len(line) - len(line.lstrip()) for line in content)
            lines += literal(line[indent:] for line in content)
        else:
            for number, item in enumerate(content, 1):
                mark = "\\(bu 2" if kind == "list" else f"{number}. 4"
                lines += [f".IP {mark}", inline(item, pages)]
    return lines


def source(text):
    """Returns a piece of a header as it stands there."""
    return literal(line.expandtabs(8) for line in text.split("\n"))


def first_sentence(block):
    return sentences(parts_of(block.comment)[0][1][0])[0]


def short(sentence):
    """Returns a sentence as the description of a NAME section: no capital, no period."""
    sentence = re.sub(r"\.$", "", sentence).replace("`", "")
    return sentence[0].lower() + sentence[1:] if sentence[1:2].islower() else sentence


def split_returns(parts):
    """Splits a comment into what a function does and what it returns.

    The first sentence always says what it does. A sentence about frl_last_error() stays with the
    errors before it.
    """
    does, returns = [], []
    first = True
    for kind, content in parts:
        if kind != "text":
            does.append((kind, content))
            continue
        kept, moved = [], []
        for sentence in sentences(content[0]):
            about_errors = moved and sentence.startswith(ERROR_TEXT)
            is_return = not first and (RETURNS.match(sentence) or about_errors)
            (moved if is_return else kept).append(sentence)
            first = False
        does += [("text", [" ".join(kept)])] if kept else []
        returns += [("text", [" ".join(moved)])] if moved else []
    return does, returns


def fails(block):
    """Returns whether a comment names errors, of functions whose result can be one."""
    comment = " ".join(block.comment)
    results = [function.returns for function in block.functions]
    return "int" in results and re.search(r"-E[A-Z]{3}|[Ee]rrors (are )?as ", comment)


def prototype(function):
    """Returns a prototype in bold, its parameters in italics, on lines of limited width."""
    words = [f"{function.returns}{'' if function.returns.endswith('*') else ' '}{function.name}("]
    parameters = function.parameters or ["void"]
    words += [f"{parameter}, " for parameter in parameters[:-1]] + [parameters[-1] + ");"]
    lines = [words[0]]
    for word in words[1:]:
        if len(lines[-1]) + len(word.rstrip()) > SYNOPSIS_WIDTH:
            lines.append(" " * 8)
        lines[-1] += word
    text = "\n".join(escape(line.rstrip()) for line in lines)
    text = re.sub(r"(\w+)(?=(?:\[\w*\])?(?:,|\);))", r"\\fI\1\\fB", text)
    return [".PP", rf"\fB{text}\fR"]


def see_also(names):
    """Returns the references, ordered by name."""
    lines = [f".BR \\%{name} (3)," for name in sorted(set(names))]
    return [".SH SEE ALSO", *lines, ".BR ferrule (7)"]


class Manual:
    """All pages: a dict from file name to text."""

    def __init__(self, headers, version, date):
        self.headers = headers
        self.footer = f'{date} "Ferrule {version}" "Ferrule manual"'
        self.pages = {function.name for header in headers for function in header.functions}
        self.types = {
            name: block for header in headers for block in header.blocks for name in block.names
        }
        self.files = {}
        for header in headers:
            self.add_header(header)
            for block in header.blocks:
                if block.functions:
                    self.add_functions(header, block)
        for header in headers:
            for block in header.blocks:
                for name in block.names:
                    page = block.functions[0].name if block.functions else page_of(header)
                    self.files.setdefault(f"{name}.3", f".so man3/{page}.3\n")

    def add(self, name, lines):
        """Adds a page whose first lines, before NAME, are the same in all pages."""
        title = [
            '.\\" SPDX-License-Identifier: BSD-3-Clause',
            '.\\" Made from the comments of the public headers.',
            f".TH {name.upper()} 3 {self.footer}",
            ".ad l",
        ]
        text = "\n".join(title + lines) + "\n"
        self.files[f"{name}.3"] = re.sub(r"^(\.S[HS] .*\n)\.PP\n", r"\1", text, flags=re.M)

    def synopsis(self, header):
        return [
            ".SH LIBRARY",
            "Ferrule (libferrule, \\-lferrule)",
            ".SH SYNOPSIS",
            ".nf",
            f".B #include <ferrule/{header.name}>",
        ]

    def add_functions(self, header, block):
        names = [function.name for function in block.functions]
        about = escape(short(first_sentence(block)))
        lines = [".SH NAME", f"{', '.join(names)} \\- {about}"]
        lines += self.synopsis(header)
        for function in block.functions:
            lines += prototype(function)
        lines.append(".fi")
        does, returns = split_returns(parts_of(block.comment))
        lines += [".SH DESCRIPTION", *paragraphs(does, self.pages)]
        lines += self.type_lines(block)
        if fails(block):
            returns.insert(0, ("text", [SUCCESS]))
        if returns:
            lines += [".SH RETURN VALUE", *paragraphs(returns, self.pages)]
        threads = thread_rule(header)
        if threads:
            lines += [".SH THREADS", inline(threads, self.pages)]
        others = [function.name for function in header.functions if function.name not in names]
        lines += see_also(others + [page_of(header), "frl_last_error"])
        self.add(names[0], lines)
        for name in names[1:]:
            self.files[f"{name}.3"] = f".so man3/{names[0]}.3\n"

    def type_lines(self, block):
        """Returns the definitions of the types that prototypes and comment name."""
        text = " ".join([function.text for function in block.functions] + block.comment)
        shown = [block.source] if block.source else []
        for name in re.findall(r"\b(?:struct|enum|union) (frl_\w+)|\b(frl_\w+_fn)\b", text):
            found = self.types.get(name[0] or name[1])
            if found and found is not block and found.source not in shown:
                shown.append(found.source)
        lines = [".SS Types"] if shown else []
        for definition in shown:
            lines += source(definition)
        return lines

    def add_header(self, header):
        """Adds the page of a header: its comment, its functions, its types and constants."""
        parts = parts_of(header.about)
        title, *rest = sentences(parts[0][1][0])
        parts[0] = ("text", [" ".join(rest)])
        lines = [".SH NAME", f"{page_of(header)} \\- {escape(short(title))}"]
        lines += [*self.synopsis(header), ".fi"]
        about = paragraphs([part for part in parts if part[1][0]], self.pages)
        if about:
            lines += [".SH DESCRIPTION", *about]
        if header.functions:
            lines.append(".SH FUNCTIONS")
            for block in header.blocks:
                names = [f".BR {function.name} (3)," for function in block.functions]
                if names:
                    lines += [".TP", "\n".join(names)[:-1].replace("\n", "\n.TQ\n")]
                    lines += [inline(first_sentence(block), self.pages)]
        types = [block for block in header.blocks if block.source or not block.functions]
        if types:
            lines.append(".SH TYPES AND CONSTANTS")
        for number, block in enumerate(types):
            text = [] if block.functions else paragraphs(parts_of(block.comment), self.pages)
            lines += [".PP"] * bool(number and text) + text
            lines += source(block.source) if block.source else []
        lines += see_also([page_of(other) for other in self.headers if other is not header])
        self.add(page_of(header), lines)


def page_of(header):
    return "ferrule_" + header.name.removesuffix(".h")


def thread_rule(header):
    """Returns what the header says about threads, for the page of each function."""
    for kind, content in parts_of(header.about):
        if kind == "text" and content[0].startswith("Threads: "):
            rule = content[0].removeprefix("Threads: ")
            return rule[0].upper() + rule[1:]
    return ""
