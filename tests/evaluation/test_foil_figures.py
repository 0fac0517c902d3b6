from diptych.data.collection import Collection, Item, sentences
from diptych.data.foils import KINDS, Foil
from diptych.evaluation.foil_figures import FoilPair, foil_figures, foil_pairs


def collection(*captions: tuple[str, list[str]]) -> Collection:
    return Collection("some", [Item(id, sentences(texts, id)) for id, texts in captions])


MANY = collection(*((f"p{i}", ["A red dog sits on a bed", "Two dogs"]) for i in range(20)))


def test_pairs_are_of_each_caption_and_kind() -> None:
    pairs = foil_pairs(collection(("a", ["A red dog sits on a bed", "Nothing said"]), ("b", ["Two dogs", "Two dogs"])))
    assert {pair.picture for pair in pairs} == {0, 1}
    kinds = [pair.foil.kind for pair in pairs if pair.picture == 0]
    assert kinds == ["object", "colour", "action", "relation", "swap"]
    assert [pair.foil.kind for pair in pairs if pair.picture == 1] == ["object", "number"]
    assert all(pair.sentence != pair.foil.text for pair in pairs)


def test_foils_of_a_picture_hang_on_its_id_alone() -> None:
    whole, part = foil_pairs(MANY), foil_pairs(collection(("p7", ["A red dog sits on a bed", "Two dogs"])))
    assert [pair.foil for pair in whole if pair.picture == 7] == [pair.foil for pair in part]
    assert len({pair.foil.text for pair in whole}) > 20
    assert whole == foil_pairs(MANY)
    assert whole != foil_pairs(MANY, seed=1)


def test_no_foil_says_what_another_caption_says() -> None:
    pairs = foil_pairs(collection(*((f"p{i}", ["A red bus", "a blue and green and yellow one"]) for i in range(40))))
    colours = {pair.foil.becomes for pair in pairs if pair.sentence == "A red bus" and pair.foil.kind == "colour"}
    assert colours == {"black", "white"}


def test_figures_count_what_scores_higher_and_ties_are_wrong() -> None:
    def pair(picture: int, text: str, kind: str) -> FoilPair:
        return FoilPair(picture, "right", Foil(text, kind, "a", "b"))

    pairs = [pair(0, "w1", "colour"), pair(0, "w2", "object"), pair(1, "w3", "colour"), pair(1, "w4", "colour")]
    own = [{"right": 2.0, "w1": 1.0, "w2": 3.0}, {"right": 1.0, "w3": 1.0, "w4": 0.0}]
    other = [{"right": 0.0, "w1": 1.0, "w2": 1.0}, {"right": 0.0, "w3": -1.0, "w4": 1.0}]
    figures = foil_figures(pairs, own, other)
    assert list(figures) == ["all", "object", "colour"]
    assert [kind for kind in KINDS if kind in figures] == ["object", "colour"]
    assert figures["all"].right.value == 50.0
    assert figures["object"].right.value == 0.0
    assert round(figures["colour"].right.value, 3) == 66.667
    assert (figures["colour"].right.count, figures["colour"].right.pictures) == (3, 2)
    unseen = figures["all"].unseen
    assert unseen is not None
    assert unseen.value == 25.0
    flat = figures["colour"].flat("foil/colour")
    assert flat["foil/colour/pairs"] == 3
    assert set(flat) == {f"foil/colour{end}" for end in ("", "/low", "/high", "/pairs", "/pictures", "/unseen")}
    assert foil_figures(pairs, own, [{}, {}])["all"].unseen is None
