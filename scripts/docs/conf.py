# SPDX-License-Identifier: BSD-3-Clause
"""Sphinx's settings for the site. site.py gives version and source folder."""
import re

from docutils import nodes
from sphinx import addnodes

project = "Ferrule"
copyright = "Ferrule contributors"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "Ferrule"
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
html_static_path = []
# Links to headings of other pages, as on a forge.
myst_heading_anchors = 4
# Levels of headings may be left out.
suppress_warnings = ["myst.header"]
highlight_language = "none"


def link_functions(app, doctree):
    """Makes a reference of each `frl_function()` in a page."""
    for literal in list(doctree.findall(nodes.literal)):
        name = re.fullmatch(r"(frl_\w+)\(\)", literal.astext())
        if name and not isinstance(literal.parent, (addnodes.pending_xref, nodes.reference)):
            target = addnodes.pending_xref(
                "", refdomain="c", reftype="func", reftarget=name[1], refexplicit=True
            )
            literal.replace_self(target)
            target += literal


def setup(app):
    app.connect("doctree-read", link_functions)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
