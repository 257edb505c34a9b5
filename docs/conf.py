"""Sphinx, for `make docs`."""

project = "blasdx"
author = "The blasdx maintainers"
extensions = ["myst_parser"]
html_theme = "furo"
exclude_patterns = ["_build"]
