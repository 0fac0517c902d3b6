"""A slow reader of the sentences about drawn scenes, written from the English alone: it shares no code with them."""

import itertools
import re

from diptych.data.scenes import Caption, Scene, boxes

WORDS = {
    "circle": "shape circle", "circles": "shape circle", "disc": "shape circle", "discs": "shape circle",
    "square": "shape square", "squares": "shape square", "triangle": "shape triangle", "triangles": "shape triangle",
    "star": "shape star", "stars": "shape star", "cross": "shape cross", "crosses": "shape cross",
    "plus": "shape cross", "sign": "shape cross", "signs": "shape cross", "ring": "shape ring", "rings": "shape ring",
    "hoop": "shape ring", "hoops": "shape ring", "diamond": "shape diamond", "diamonds": "shape diamond",
    "rhombus": "shape diamond", "rhombuses": "shape diamond", "heart": "shape heart", "hearts": "shape heart",
    "moon": "shape moon", "moons": "shape moon", "crescent": "shape moon", "crescents": "shape moon",
    "arrow": "shape arrow", "arrows": "shape arrow",
    "red": "colour red", "orange": "colour orange", "yellow": "colour yellow", "green": "colour green",
    "blue": "colour blue", "purple": "colour purple", "violet": "colour purple", "pink": "colour pink",
    "brown": "colour brown", "black": "colour black", "white": "colour white",
    "small": "size small", "little": "size small", "tiny": "size small", "big": "size big", "large": "size big",
    "plain": "texture plain", "solid": "texture plain", "striped": "texture striped", "stripy": "texture striped",
    "dotted": "texture dotted", "spotted": "texture dotted", "checked": "texture checked",
    "chequered": "texture checked",
    "one": "count 1", "single": "count 1", "two": "count 2", "three": "count 3", "four": "count 4",
    "shape": "", "shapes": "", "object": "", "objects": "", "thing": "", "things": "",
}  # fmt: skip
PLURALS = {w for w in WORDS if w.endswith("s") and w not in ("cross", "rhombus", "plus")}

RELATIONS = {
    r"(?:(?:to|on) the )?left of": "left of",
    r"(?:(?:to|on) the )?right of": "right of",
    r"above|over|higher up than": "above",
    r"below|under|beneath": "below",
    r"inside|within|in the middle of": "inside",
    r"(?:all )?around|surrounding": "around",
}
TO_IT = {
    r"(?:to|on) (?:its|their) left|to the left of (?:it|them)": "left of",
    r"(?:to|on) (?:its|their) right|to the right of (?:it|them)": "right of",
    r"(?:above|over) (?:it|them)|higher up(?! than)": "above",
    r"(?:below|under|beneath) (?:it|them)": "below",
    r"(?:inside|within|in the middle of) (?:it|them)": "inside",
    r"(?:all around|around|surrounding) (?:it|them)": "around",
}

Phrases = dict[int, dict[str, str]]
Related = set[tuple[int, str, int]]


def read(caption: Caption) -> tuple[Phrases, Related]:
    """What a sentence says of each thing it names, and of how they are related."""
    phrases: Phrases = {}
    marked: list[str] = []
    for word, named in zip(caption.words, caption.names, strict=True):
        if not named:
            marked.append(word)
            continue
        (thing,) = named
        said = phrases.setdefault(thing, {"count": "1"})
        if WORDS[word]:
            attribute, value = WORDS[word].split()
            said[attribute] = value
        if marked[-1:] != [f"<{thing}>"]:
            marked.append(f"<{thing}>")
    line = re.sub(r"\ban? <", "<", " ".join(marked))
    related: Related = set()
    for words, name in RELATIONS.items():
        for a, b in re.findall(rf"<(\d)> (?:(?:which|that) )?(?:is |are |can be seen )?(?:{words}) (?=<(\d)>)", line):
            related.add((int(a), name, int(b)))
        for b, a in re.findall(rf"^(?:{words}) <(\d)> (?:there )?(?:is|are) <(\d)>", line):
            related.add((int(a), name, int(b)))
    for words, name in TO_IT.items():
        for b, a in re.findall(rf"<(\d)> (?:with|and of) <(\d)> (?:{words})", line):
            related.add((int(a), name, int(b)))
    return phrases, related


def is_true(caption: Caption, scene: Scene, size: int = 192) -> bool:
    """Whether some choice of things bears out all that the sentence says, judged from the boxes of the drawing."""
    phrases, related = read(caption)
    facts = [
        {"shape": t.shape, "colour": t.colour, "size": t.size, "texture": t.texture, "count": str(t.count)}
        for t in scene.things
    ]
    spans = []
    for members in boxes(scene, size):
        x0, y0 = members[:, :2].min(0)
        x1, y1 = members[:, 2:].max(0)
        spans.append((x0, y0, x1, y1))
    order = list(phrases)
    for chosen in itertools.permutations(range(len(facts)), len(order)):
        meant = dict(zip(order, chosen, strict=True))
        if all(said.items() <= facts[meant[p]].items() for p, said in phrases.items()) and all(
            _related(spans[meant[a]], name, spans[meant[b]]) for a, name, b in related
        ):
            return True
    return False


def _related(a: tuple[int, ...], name: str, b: tuple[int, ...]) -> bool:
    within = b[0] < a[0] and b[1] < a[1] and a[2] < b[2] and a[3] < b[3]
    holds_it = a[0] < b[0] and a[1] < b[1] and b[2] < a[2] and b[3] < a[3]
    if name in ("inside", "around"):
        return within if name == "inside" else holds_it
    if within or holds_it:
        return False
    dx, dy = b[0] + b[2] - a[0] - a[2], b[1] + b[3] - a[1] - a[3]
    return {"left of": dx > 0, "right of": dx < 0, "above": dy > 0, "below": dy < 0}[name]
