#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Builds the HTML site from docs/, README.md, the manual pages and the public headers.

    scripts/docs/site.py VERSION FOLDER

The pages of Sphinx go into FOLDER/source, the site into FOLDER/html. A broken link, or any other
warning, is a failure: exit status 1. Tools that are missing: exit status 3.
"""
import re
import shutil
import subprocess
import sys
from pathlib import Path

import headers
import markdown
import reference
import sequence

ROOT = Path(__file__).resolve().parent.parent.parent
# Folders in which the site has pages of its own.
API = "docs/reference/api"
MANUALS = "docs/man"
# The first pages of each part of the site; the other pages of its folder follow by name.
PARTS = {
    "guide": ["install", "launching", "nccl", "daemons", "operations"],
    "reference": ["glossary", "settings", "api/index"],
    "design": ["architecture", "life-of-a-packet", "life-of-an-allreduce"],
}


def missing_tools():
    """Returns the Debian packages to install."""
    builder = shutil.which("sphinx-build")
    missing = [] if shutil.which("mandoc") else ["mandoc"]
    if not builder:
        return missing + ["python3-sphinx", "python3-myst-parser", "furo"]
    # Sphinx may run by another Python than this script.
    interpreter = Path(builder).read_text().split("\n")[0].removeprefix("#!").split()
    for module, package in ("myst_parser", "python3-myst-parser"), ("furo", "furo"):
        test = [*interpreter, "-c", f"import {module}"]
        if subprocess.run(test, stderr=subprocess.DEVNULL, check=False).returncode != 0:
            missing.append(package)
    return missing


class Source:
    """The folder that Sphinx reads. Only changed files are written, so Sphinx reads only those."""

    def __init__(self, folder):
        self.folder = folder
        self.written = set()

    def write(self, name, content):
        path = self.folder / name
        self.written.add(path)
        if not path.exists() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def remove_others(self):
        for path in self.folder.rglob("*"):
            if path.is_file() and path not in self.written:
                path.unlink()


def toctree(entries, caption="", hidden=True):
    lines = ["", "```{toctree}", ":maxdepth: 1"]
    lines += [f":caption: {caption}"] if caption else []
    lines += [":hidden:"] if hidden else []
    return "\n".join(lines + ["", *entries, "```", ""])


def part_entries(part):
    """Returns the pages of a folder of docs: the first ones in their order, then the others."""
    first = PARTS[part]
    others = sorted(path.stem for path in (ROOT / "docs" / part).glob("*.md"))
    return [f"docs/{part}/{name}" for name in first + [name for name in others if name not in first]]


def with_pictures(source, page, text):
    """Returns the text of a page with pictures for its diagrams, and languages that Pygments has."""

    def picture(match):
        name = f"{page[:-3]}-{match.start()}.svg"
        source.write(name, sequence.draw(match[1]).encode())
        return f"![sequence diagram]({Path(name).name})"

    text = re.sub(r"^```mermaid\n(.*?)^```$", picture, text, flags=re.S | re.M)
    return re.sub(r"^```console$", "```sh", text, flags=re.M)


def add_documents(source, version):
    """Writes README.md as index.md, docs/, and all pages and files that they refer to."""
    left = ["README.md"] + sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/**/*.md"))
    known = set(left)
    beyond = []

    def target_of(path):
        if (ROOT / path).is_dir():
            path += "/README.md"
            if not (ROOT / path).exists():
                return None
        if path not in known:
            known.add(path)
            if path.endswith(".md"):
                left.append(path)
                beyond.append(path.removesuffix(".md"))
            else:
                source.write(path, (ROOT / path).read_bytes())
        return "index.md" if path == "README.md" else path

    while left:
        page = left.pop(0)
        text = markdown.rewrite(ROOT, page, (ROOT / page).read_text(), target_of)
        text = with_pictures(source, page, text)
        if page == "docs/decisions/README.md":
            names = sorted(path.stem for path in (ROOT / "docs/decisions").glob("0*.md"))
            text += toctree(names)
        if page != "README.md":
            source.write(page, text.encode())
        else:
            index = text
    for part in PARTS:
        index += toctree(part_entries(part), part.capitalize())
    index += toctree(["docs/man/index", "docs/decisions/README", *sorted(beyond)], "More")
    source.write("index.md", index.encode())


def add_reference(source):
    """Writes a page for each header and each manual page of a program."""
    folder = ROOT / "lib/include/ferrule"
    found = headers.read_headers(sorted(folder.glob("*.h")))
    stems = {f.name: header.name[:-2] for header in found for f in header.functions}
    for header in found:
        page = reference.header_page(header, stems)
        source.write(f"{API}/{header.name[:-2]}.rst", page.encode())
    names = [header.name[:-2] for header in found]
    index = "# Public functions\n\nEach public header has a page. " + (
        "`man ferrule` and `man frl_reg_mr` show the same in a terminal.\n"
    )
    source.write(f"{API}/index.md", (index + toctree(names, hidden=False)).encode())
    manuals = sorted(path for path in (ROOT / MANUALS).iterdir() if path.suffix[1:].isdigit())
    pages = {path.name for path in manuals}
    for path in manuals:
        page = reference.manual_page(path, pages, stems)
        source.write(f"{MANUALS}/{path.name}.rst", page.encode())
    index = "# Manual pages\n" + toctree([path.name for path in manuals], hidden=False)
    source.write(f"{MANUALS}/index.md", index.encode())


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: site.py VERSION FOLDER")
    version, folder = sys.argv[1], Path(sys.argv[2])
    missing = missing_tools()
    if missing:
        print(f"the site needs {', '.join(missing)}: run scripts/install-deps.sh docs")
        sys.exit(3)
    source = Source(folder / "source")
    try:
        add_documents(source, version)
        add_reference(source)
    except (headers.Error, markdown.Error, sequence.Error) as error:
        sys.exit(str(error))
    source.remove_others()
    sphinx = ["sphinx-build", "-q", "-W", "--keep-going", "-b", "html"]
    sphinx += ["-c", Path(__file__).parent, "-D", f"release={version}"]
    sphinx += ["-d", folder / "doctrees", folder / "source", folder / "html"]
    status = subprocess.run(sphinx, check=False).returncode
    if status == 0:
        print(f"the site is at {folder / 'html/index.html'}")
    sys.exit(1 if status else 0)


if __name__ == "__main__":
    main()
