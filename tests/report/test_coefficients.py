"""GPO's coefficients, read off what the pooling does."""

import numpy as np
import pytest
import torch

from diptych.data.tokens import encode
from diptych.encoders.gpo import GPO, sort_set
from diptych.matchers.vse import VSE
from diptych.report.coefficients import coefficients_of
from diptych.report.model_sections import coefficients_section
from tests.report import runs


def read_off(gpo: GPO, size: int, dim: int) -> np.ndarray:
    """theta of a size: a set whose first k ranks are 1 and others 0 pools to theta_1 + … + theta_k."""
    sums = [0.0]
    for k in range(1, size + 1):
        ranks = torch.zeros(size, dim)
        ranks[:k] = 1
        with torch.no_grad():
            pooled = gpo(ranks.unsqueeze(0), torch.ones(1, size, dtype=torch.bool))
        sums.append(float(pooled.mean()))
    return np.diff(sums)


@pytest.mark.parametrize("case", ["vse-infinity", "vse-infinity-transformer", "vse-infinity-per-dimension"])
def test_coefficients_are_what_the_pooling_does(case: str) -> None:
    subject = runs.subject(case)
    matcher = subject.matcher
    assert isinstance(matcher, VSE)
    sides = coefficients_of(subject)
    assert [side.side for side in sides] == ["pictures", "sentences"]
    for side, gpo in zip(sides, (matcher.image_gpo, matcher.text_gpo), strict=True):
        assert gpo is not None
        assert set(side.theta) == set(range(1, max(side.sizes) + 1))
        for size, theta in side.theta.items():
            np.testing.assert_allclose(theta, read_off(gpo, size, 8), atol=1e-5)
            assert theta.sum() == pytest.approx(1, abs=1e-5)
    features = subject.collection.features
    assert features is not None
    sizes = [len(features[item.row or 0].vectors) for item in subject.collection.items]
    assert sides[0].sizes == {size: sizes.count(size) for size in sorted(set(sizes))}
    tokens = [len(matcher.tokenizer.ids(text)) for text in subject.captions]
    assert sides[1].sizes == {size: tokens.count(size) for size in sorted(set(tokens))}


def test_where_they_depend_on_the_set_they_are_averaged() -> None:
    subject = runs.subject("vse-infinity-features")
    matcher = subject.matcher
    assert isinstance(matcher, VSE)
    gpo = matcher.text_gpo
    assert gpo is not None
    side = coefficients_of(subject)[1]
    for size in side.theta:
        each = []
        for text in subject.captions:
            tokens = encode(matcher.tokenizer, [text])
            if int(tokens.lengths[0]) != size:
                continue
            with torch.no_grad():
                encoded = matcher.text_encoder(tokens)
                values, _ = sort_set(encoded.vectors, encoded.mask)
                each.append(gpo.coefficients(tokens.lengths, values)[0, :, 0].numpy())
        np.testing.assert_allclose(side.theta[size], np.mean(each, 0), atol=1e-5)


def test_the_table_has_the_weights_of_typical_sizes() -> None:
    sides = coefficients_of(runs.subject("vse-infinity"))
    html = coefficients_section(sides, False, False).body
    for side in sides:
        sizes = side.typical()
        assert sizes[0] == min(side.sizes)
        assert sizes[-1] == max(side.sizes)
        last = side.theta[sizes[-1]]
        assert f"<td>{last[-1]:.4f}</td></tr></tbody>" in html
        assert f'id="theta-{side.side}"' in html
        assert f'id="theta-map-{side.side}"' in html


def test_only_sides_that_are_pooled_so() -> None:
    assert coefficients_of(runs.subject("vse++", 3)) == []
    assert coefficients_of(runs.subject("dive", 3)) == []
