from pathlib import Path

project = "Diptych"
copyright = "The Diptych authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "Diptych"
exclude_patterns = ["_build"]
autodoc_typehints = "description"
autodoc_member_order = "bysource"
# Shapes such as (images, regions, d) are not cross-references.
nitpicky = False
html_static_path = ["_static"] if (Path(__file__).parent / "_static").is_dir() else []
