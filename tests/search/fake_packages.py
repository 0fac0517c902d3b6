"""Packages with a few small pictures, made in a test's folder: what the demo fetches, without a registry."""

import hashlib
import io
import tarfile
import zipfile
from pathlib import Path

from diptych.search.demo_pictures import Package, Picture
from tests.encoders.pictures import picture


def png(seed: int) -> bytes:
    data = io.BytesIO()
    picture(40, 30, seed=seed).save(data, "PNG")
    return data.getvalue()


def members(package: Package) -> dict[str, bytes]:
    """The files of a fake package: its pictures, and something nobody asked for."""
    seeds = range(100 * len(package.name), 100 * len(package.name) + len(package.pictures))
    found = {f"{package.inside}/{p.member}": png(seed) for p, seed in zip(package.pictures, seeds, strict=True)}
    return {**found, "../escape.png": png(1), f"{package.inside}/other.png": png(2)}


def package(name: str, kind: str, count: int) -> Package:
    blank = Package(
        name, "1.0", kind, (), "pictures/inside", "public domain", "a test",
        tuple(Picture(f"{name}-{i}.png", f"{i}.png", f"person {i % 2}", "") for i in range(count)),
    )  # fmt: skip
    data = members(blank)
    pictures = [
        Picture(p.name, p.member, p.by, hashlib.sha256(data[f"{blank.inside}/{p.member}"]).hexdigest())
        for p in blank.pictures
    ]
    return Package(name, "1.0", kind, (), blank.inside, blank.licence, blank.origin, tuple(pictures))


PACKAGES = (package("a-wheel", "wheel", 3), package("a-source", "source", 4))


class Registry:
    """A fetch that makes packages on the spot, and counts; `changed` replaces files of them, `absent` ones fail."""

    def __init__(self, changed: dict[str, bytes] | None = None) -> None:
        self.changed = changed or {}
        self.fetched: list[str] = []

    def __call__(self, package: Package, folder: Path) -> Path:
        self.fetched.append(package.name)
        files = {**members(package), **self.changed}
        if package.sha256 == "wheel":
            path = folder / "package-1.0-py3-none-any.whl"
            with zipfile.ZipFile(path, "w") as wheel:
                for name, data in files.items():
                    wheel.writestr(name, data)
            return path
        path = folder / "package-1.0.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            for name, data in files.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
        return path
