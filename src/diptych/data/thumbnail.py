"""A small picture inside an address, for pages and notebooks that must stand alone."""

import base64
import io

from PIL import Image


def thumbnail_uri(picture: Image.Image, side: int) -> str:
    """A JPEG whose longer side is at most `side`, as a data address; the picture that is given stays as it is."""
    shown = picture.convert("RGB")
    shown.thumbnail((side, side), Image.Resampling.LANCZOS)
    data = io.BytesIO()
    shown.save(data, "JPEG", quality=80, optimize=True)
    return f"data:image/jpeg;base64,{base64.b64encode(data.getvalue()).decode()}"
