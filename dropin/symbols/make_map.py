#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes the version script, the stubs and the header for private nodes from a list of symbols.

make_map.py LIST MAP STUBS HEADER. LIST describes its own format.
"""
import os
import sys

STUBS = {
    "errno": "int {f}(void);\nint {f}(void)\n{{\n\terrno = EOPNOTSUPP;\n\treturn EOPNOTSUPP;\n}}\n",
    "minus1": "int {f}(void);\nint {f}(void)\n{{\n\terrno = EOPNOTSUPP;\n\treturn -1;\n}}\n",
    "null": "void *{f}(void);\nvoid *{f}(void)\n{{\n\terrno = EOPNOTSUPP;\n\treturn NULL;\n}}\n",
    "void": "void {f}(void);\nvoid {f}(void)\n{{\n}}\n",
    "false": "extern bool {f};\nbool {f};\n",
}

# A function that several nodes have needs an explicit version for each of them. The linker gets the
# versions from the assembler. gcc has an attribute for it, which works with -flto, too.
HEADER = """\
/* Written by dropin/symbols/make_map.py. */
/*
 * IN_PRIVATE_NODES(symbol, name): exports a function or variable as `name` in all private nodes. It
 * stands between the declaration and the definition, in the file of the definition.
 */
#ifndef {guard}
#define {guard}

#ifndef __has_attribute
#define __has_attribute(name) 0
#endif
#if __has_attribute(__symver__)
#define IN_PRIVATE_NODES(symbol, name)                  \\
	extern __typeof__(symbol) symbol __attribute__((\\
{attributes}))
#else
#define IN_PRIVATE_NODES(symbol, name) \\
	__asm__(                       \\
{directives})
#endif

#endif
"""


def fail(place, text):
    sys.exit(f"{place}: {text}")


class Symbols:
    def __init__(self, path):
        self.rows = []  # (name, node, kind)
        self.private = []
        with open(path, encoding="ascii") as file:
            for number, line in enumerate(file, 1):
                words = line.split("#")[0].split()
                if words:
                    self.add(words, f"{path}:{number}")

    def add(self, words, place):
        if words[0] == "private":
            self.private = words[1:]
            return
        if len(words) != 3:
            fail(place, 'a line is "name node kind"')
        name, node, kind = words
        if kind != "full" and kind not in STUBS:
            fail(place, f"there is no kind {kind}")
        if node == "private" and not self.private:
            fail(place, 'the line "private NODE..." comes first')
        if any(name == row[0] for row in self.rows):
            fail(place, f"{name} is listed twice")
        self.rows.append((name, node, kind))

    def version_script(self):
        nodes = {}
        for name, node, _ in self.rows:
            if node != "private":
                nodes.setdefault(node, []).append(name)
        for node in self.private:
            nodes.setdefault(node, [])
        text, parent = "", ""
        for node, names in nodes.items():
            is_private = node in self.private
            text += f"{node} {{\n"
            if names:
                text += "global:\n" + "".join(f"\t{name};\n" for name in names)
            if not parent:
                text += "local:\n\t*;\n"
            text += "}" + ("" if is_private else parent) + ";\n"
            if not is_private:
                parent = " " + node
        return text

    def stubs(self, header):
        text = "/* Written by dropin/symbols/make_map.py. */\n"
        text += "#include <errno.h>\n#include <stdbool.h>\n#include <stddef.h>\n\n"
        text += f'#include "{header}"\n'
        for name, node, kind in self.rows:
            if kind == "full":
                continue
            function = f"private_{name}" if node == "private" else name
            declaration, definition = STUBS[kind].format(f=function).split("\n", 1)
            text += f"\n{declaration}\n"
            if node == "private":
                text += f"IN_PRIVATE_NODES({function}, {name});\n"
            text += definition
        return text

    def header(self, guard):
        attributes = [f'\t\t__symver__(#name "@{node}")' for node in self.private]
        directives = [f'\t\t".symver " #symbol ", " #name "@{node}\\n"' for node in self.private]
        return HEADER.format(
            guard=guard,
            attributes=", \\\n".join(attributes),
            directives=" \\\n".join(directives),
        )


def write(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    symbols = Symbols(sys.argv[1])
    header = os.path.basename(sys.argv[4])
    write(sys.argv[2], symbols.version_script())
    write(sys.argv[3], symbols.stubs("dropin/" + header))
    write(sys.argv[4], symbols.header("FERRULE_" + header.upper().replace(".", "_")))


main()
