import pytest

from diptych.web.errors import NotFound
from diptych.web.service.uploads import Uploads, is_upload
from tests.encoders.pictures import picture


def test_uploads_are_kept_for_a_while() -> None:
    uploads = Uploads(most=2)
    ids = [uploads.keep(picture(seed=seed)) for seed in range(3)]
    assert all(is_upload(id) for id in ids)
    assert len(set(ids)) == 3
    assert uploads.get(ids[2]).tobytes() == picture(seed=2).tobytes()
    with pytest.raises(NotFound, match="send the picture again"):
        uploads.get(ids[0])
