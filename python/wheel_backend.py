# SPDX-License-Identifier: BSD-3-Clause
"""How pip builds the package: by meson-python, from the folder above, where meson's project is.

pip starts a process for each of these functions, in the folder of the pyproject.toml that it was
told: the root, or this folder."""

import os
import subprocess
import sys

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import mesonpy  # noqa: E402

get_requires_for_build_sdist = mesonpy.get_requires_for_build_sdist
get_requires_for_build_wheel = mesonpy.get_requires_for_build_wheel
build_sdist = mesonpy.build_sdist


def build_wheel(directory, config_settings=None, metadata_directory=None):
    """Returns the file's name. The libraries are for no particular Python: ctypes opens them."""
    name = mesonpy.build_wheel(directory, config_settings, metadata_directory)
    tags = [sys.executable, "-m", "wheel", "tags", "--python-tag=py3", "--abi-tag=none", "--remove"]
    result = subprocess.run(
        [*tags, os.path.join(directory, name)], check=True, stdout=subprocess.PIPE, text=True
    )
    return result.stdout.split()[-1]
