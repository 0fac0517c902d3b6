"""One self-contained page: hover a word and see where it looks, hover a region and see which words."""

import base64
import io
import json
from collections.abc import Sequence
from html import escape

import numpy as np
from PIL import Image

from diptych.explain.explanation import Explanation
from diptych.explain.page_parts import SCRIPT, STYLE
from diptych.explain.sheet import CAPTIONS

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
LARGEST = 1280


def explanation_page(explanation: Explanation, picture: Image.Image | None) -> str:
    """The page as text. Without a picture, or without boxes, the regions are numbered buttons."""
    modes = [name for name in ("word_to_region", "region_to_word", "together") if name in explanation.arrays()]
    shown = explanation.looks()
    first = None if shown is None else shown[0]
    model = explanation.title
    return page(
        f"{model}: {explanation.sentence}",
        f"""<main>
<h1>{escape(model)} gives this pair the score {explanation.score:.3f}</h1>
<div class="words" role="group" aria-label="The words of the sentence">{_words(explanation)}</div>
<div class="pair">
<figure>{_stage(explanation, picture)}
<figcaption id="now" aria-live="polite">{escape(_rest(explanation))}</figcaption></figure>
<div>{_modes(modes, first)}{_slots(explanation)}{_table(explanation)}</div>
</div>
<noscript><p class="note">Without script the page shows the tables only.</p></noscript>
</main>
<script type="application/json" id="data">{_data(explanation)}</script>
<script>{SCRIPT}</script>""",
    )


def picture_page(title: str, picture: Image.Image, description: str) -> str:
    """A page that shows one drawn picture, such as a comparison."""
    return page(
        title, f'<main><figure><img src="{data_uri(picture)}" alt="{escape(description)}" width="100%"></figure></main>'
    )


def page(title: str, body: str, style: str = STYLE) -> str:
    """A whole page in both colour schemes, which asks nothing of anybody else."""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{escape(title)}</title><style>{style}</style></head>
<body>{body}</body></html>
"""


def data_uri(picture: Image.Image) -> str:
    """A picture inside an address: PNG where it is small and plain, else JPEG."""
    shown = picture.convert("RGB")
    shown.thumbnail((LARGEST, LARGEST))
    found = {}
    for kind in ("png", "jpeg"):
        data = io.BytesIO()
        shown.save(data, kind, quality=88)
        found[kind] = data.getvalue()
    kind = "png" if len(found["png"]) < 2 * len(found["jpeg"]) else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(found[kind]).decode()}"


def _words(explanation: Explanation) -> str:
    return "".join(f'<button type="button">{escape(word)}</button>' for word in explanation.words)


def _stage(explanation: Explanation, picture: Image.Image | None) -> str:
    if picture is None or explanation.boxes is None or explanation.size is None:
        chips = "".join(f'<button type="button" data-region="{i}">{i + 1}</button>' for i in range(explanation.regions))
        return f'<div class="chips" role="group" aria-label="Regions">{chips}</div>'
    width, height = explanation.size
    rects = []
    for i, (x0, y0, x1, y1) in enumerate(explanation.boxes.tolist()):
        whole = ' data-whole="1"' if (x1 - x0) * (y1 - y0) > 0.9 * width * height else ""
        rects.append(
            f'<rect data-region="{i}"{whole} x="{x0:.1f}" y="{y0:.1f}" width="{max(0, x1 - x0):.1f}" '
            f'height="{max(0, y1 - y0):.1f}" tabindex="0" role="button" aria-label="region {i + 1}"></rect>'
        )
    # Small ones on top, so that each can be pointed at; the script finds them by number.
    area = (explanation.boxes[:, 2] - explanation.boxes[:, 0]) * (explanation.boxes[:, 3] - explanation.boxes[:, 1])
    ordered = "".join(rects[i] for i in np.argsort(-area, kind="stable"))
    canvas = "<canvas></canvas>" if explanation.grid is not None else ""
    return (
        f'<div class="stage"><img src="{data_uri(picture)}" alt="{escape(explanation.sentence)}">{canvas}'
        f'<svg viewBox="0 0 {width} {height}" preserveAspectRatio="none">{ordered}</svg></div>'
    )


def _modes(modes: Sequence[str], first: str | None) -> str:
    if len(modes) < 1:
        return ""
    choices = "".join(
        f'<label><input type="radio" name="mode" value="{name}"{" checked" if name == first else ""}> '
        f"{escape(CAPTIONS[name])}</label>"
        for name in modes
    )
    return f"<fieldset><legend>Shown for a word or region</legend>{choices}</fieldset>"


def _slots(explanation: Explanation) -> str:
    slots = explanation.array("slot_to_region")
    if slots is None:
        return ""
    iterations, count, _ = slots.shape
    rows = "".join(
        f"<tr><th>iteration {t + 1}</th>"
        + "".join(
            f'<td><button type="button" data-slot="{t},{k}" aria-label="slot {k + 1}, iteration {t + 1}">'
            f"slot {k + 1}</button></td>"
            for k in range(count)
        )
        + "</tr>"
        for t in range(iterations)
    )
    near = "".join(
        f"<li>slot {k + 1}: " + "; ".join(f"{escape(s)} ({c:.2f})" for s, c in found) + "</li>"
        for k, found in enumerate(explanation.nearest)
    )
    nearest = f'<p class="note">Nearest sentences</p><ul>{near}</ul>' if near else ""
    return f"<table><caption class='note'>What each slot holds</caption>{rows}</table>{nearest}"


def _table(explanation: Explanation) -> str:
    """The values of each word, readable without script."""
    names = [
        n for n in ("word_gates", "word_fit", "word_weights", "word_share", "word_drop") if n in explanation.arrays()
    ]
    if not names:
        return ""
    head = "".join(f"<th>{n.removeprefix('word_')}</th>" for n in names)
    arrays = explanation.arrays()
    rows = []
    for i, word in enumerate(explanation.words):
        cells = ""
        for name in names:
            value, top = float(arrays[name][i]), float(np.abs(arrays[name]).max()) or 1.0
            less = " less" if value < 0 else ""
            cells += (
                f'<td>{value:.3f} <span class="bar{less}" style="width:{2.5 * abs(value) / top:.2f}rem"></span></td>'
            )
        rows.append(f"<tr><th>{escape(word)}</th>{cells}</tr>")
    table = f"<table><tr><th></th>{head}</tr>{''.join(rows)}</table>"
    return f"<details open><summary>Each word in numbers</summary>{table}</details>"


def _rest(explanation: Explanation) -> str:
    parts = [CAPTIONS[f[0]] for f in (explanation.whole(), explanation.strength()) if f is not None]
    return "; ".join(parts)


def _data(explanation: Explanation) -> str:
    whole, strength = explanation.whole(), explanation.strength()
    told = explanation.to_json() | {
        "rest": _rest(explanation),
        "strength": None if strength is None else strength[0],
        "whole": None if whole is None else whole[0],
        "whole_values": [0.0] * explanation.regions if whole is None else [float(x) for x in whole[1]],
    }
    # So that no sentence can end the script element.
    return json.dumps(told, ensure_ascii=False).replace("<", "\\u003c")
