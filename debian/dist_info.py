# SPDX-License-Identifier: BSD-3-Clause
"""Writes what pip and importlib.metadata read about the package, from pyproject.toml:
dist_info.py VERSION FOLDER. Only the wheel contains libraries under other licences."""

import sys
import tomllib
from pathlib import Path

version, folder = sys.argv[1], Path(sys.argv[2])
project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
target = folder / f"{project['name']}-{version}.dist-info"
target.mkdir(parents=True)
(target / "METADATA").write_text(
    "Metadata-Version: 2.1\n"
    f"Name: {project['name']}\n"
    f"Version: {version}\n"
    f"Summary: {project['description']}\n"
    "License: BSD-3-Clause\n"
    f"Requires-Python: {project['requires-python']}\n",
    encoding="utf-8",
)
(target / "INSTALLER").write_text("debian\n", encoding="utf-8")
lines = []
for group, entries in project.get("entry-points", {}).items():
    lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items()), ""]
(target / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
