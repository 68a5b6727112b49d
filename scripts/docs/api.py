#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes the manual of the public functions, section 3, from the comments of the public headers.

    scripts/docs/api.py --list HEADER...            prints the names of the pages
    scripts/docs/api.py VERSION FOLDER HEADER...    writes the pages into FOLDER
"""
import os
import re
import sys
import time
from pathlib import Path

import headers
import manual

ROOT = Path(__file__).resolve().parent.parent.parent


def date_of_release():
    """Returns the date for the pages: the same for every build of the same source."""
    stamp = os.environ.get("SOURCE_DATE_EPOCH")
    if stamp:
        return time.strftime("%Y-%m-%d", time.gmtime(int(stamp)))
    changelog = (ROOT / "debian/changelog").read_text()
    date = re.search(r"^ -- .*>  \w+, (\d+ \w+ \d+)", changelog, re.M)[1]
    return time.strftime("%Y-%m-%d", time.strptime(date, "%d %b %Y"))


def main():
    listing = sys.argv[1:2] == ["--list"]
    paths = [Path(name) for name in sys.argv[2 if listing else 3 :]]
    if not paths:
        sys.exit("usage: api.py --list HEADER..., or api.py VERSION FOLDER HEADER...")
    try:
        found = headers.read_headers(paths)
    except headers.Error as error:
        sys.exit(str(error))
    version = "" if listing else sys.argv[1]
    files = manual.Manual(found, version, date_of_release()).files
    if listing:
        print("\n".join(sorted(files)))
        return
    folder = Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    main()
