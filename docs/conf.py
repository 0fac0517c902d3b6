import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "Diptych"
copyright = "The Diptych authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "from_code", "formulas", "notebook"]
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "Diptych"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["diptych.css"]
exclude_patterns = ["_build", "_ext"]
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
maximum_signature_line_length = 88
smartquotes_action = "qe"  # quotes and ellipses; two hyphens stay what they are
autodoc_member_order = "bysource"
default_role = "code"
# Shapes such as (images, regions, d) are not cross-references.
nitpicky = False
