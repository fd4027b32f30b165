"""How the pages are built: Markdown, and the docstrings of the public names."""

from importlib.metadata import version as installed_version

project = "Millpond"
author = "The Millpond authors"
copyright = "2026, the Millpond authors"
version = release = installed_version("millpond")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["changes"]
html_theme = "furo"
html_title = "Millpond"

# Every heading can be linked to; a link that leads nowhere stops the build (`-W`).
myst_heading_anchors = 3
myst_enable_extensions = ["deflist"]

# `--help` in running text keeps its two dashes; quotation marks are still set as such.
smartquotes_action = "qe"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_class_signature = "separated"
# attrs gives its classes their __init__: the attributes are told in the class's own docstring.
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
