"""Pictures and sentences added to the index and taken out of it, with the files of added pictures."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from diptych.common.errors import DiptychError
from diptych.common.files import written_aside
from diptych.search.filling.new_entry import picture_of
from diptych.search.filling.walk import FoundFile
from diptych.search.index import Index
from diptych.search.stores.store import Value
from diptych.web.service.left_over import OURS, UploadsFolder
from diptych.web.service.pictures import FORMATS, open_upload, read_upload
from diptych.web.service.shared import OneWriter

# The keys of sentences that were added begin so, and can never be those of files.
SENTENCES = "added/"
# What confidences stand against is worked out again when so much of the index has changed.
DRIFT, LEAST_DRIFT = 0.1, 20


class Changes:
    """The one writer: its methods are called by one thread at a time, and wait for those of other processes.

    folder: where the files of added pictures are kept, each under the hash of its content; an absolute path
    writer: lets one process of the server write at a time
    """

    def __init__(self, index: Index, folder: Path, most_pixels: int, writer: OneWriter) -> None:
        self.index = index
        self.folder = folder
        self.uploads = UploadsFolder(self.folder, index)
        self.most_pixels = most_pixels
        self._writer = writer

    def add_pictures(self, files: Sequence[tuple[str, bytes]], metadata: Mapping[str, Value]) -> list[str]:
        """Keep pictures as files and index them; their keys. All of them or none.

        files: each picture's name, which becomes its column `name`, and its bytes
        """
        for _, data in files:  # all are decoded before any is written
            read_upload(data, self.most_pixels)
        suffixes = [FORMATS[open_upload(data, self.most_pixels).format or ""] for _, data in files]
        with self._writer.alone():
            return self._add_pictures(files, suffixes, metadata)

    def _add_pictures(
        self, files: Sequence[tuple[str, bytes]], suffixes: Sequence[str], metadata: Mapping[str, Value]
    ) -> list[str]:
        entries, new = {}, []
        try:
            self.uploads.claim()
            for (name, data), suffix in zip(files, suffixes, strict=True):
                path = self.folder / (hashlib.blake2b(data, digest_size=16).hexdigest() + suffix)
                if not path.exists():
                    with written_aside(path) as aside:
                        aside.write_bytes(data)
                    new.append(path)
                status = path.stat()
                columns = {**({"name": name} if name else {}), **metadata}
                file = FoundFile(str(path), "picture", status.st_size, status.st_mtime_ns)
                entries[str(path)] = picture_of(file, columns)
            report = self.index.add_entries(entries.values())
            if report.problems:
                self.index.delete([key for key in entries if Path(key) in new])
                raise DiptychError(f"file: {report.problems[0].what}")
        except OSError as error:
            _remove(new)
            raise DiptychError(f"cannot be written: {error.strerror}", where=self.folder) from None
        except BaseException:
            _remove(new)
            raise
        self._note(len(entries))
        return list(entries)

    def add_sentences(self, sentences: Mapping[str, str]) -> list[str]:
        """Index sentences under their names; their keys."""
        if any(not text.strip() for text in sentences.values()):
            raise DiptychError("sentences: one of them is empty")
        keyed = {SENTENCES + name: text for name, text in sentences.items()}
        with self._writer.alone():
            self.index.add(sentences=keyed)
            self._note(len(keyed))
        return list(keyed)

    def delete(self, key: str) -> int:
        """Take an entry out of the index. The file of an added picture goes with it; other files stay."""
        with self._writer.alone():
            return self._delete(key)

    def _delete(self, key: str) -> int:
        deleted = self.index.delete([key])
        path = Path(key)
        ours = path.parent == self.folder and OURS.fullmatch(path.name) and not path.is_symlink()
        if deleted and ours:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise DiptychError(
                    f"taken out of the index, but its file stays: {error.strerror}", where=path.name
                ) from None
        self._note(deleted)
        return deleted

    def _note(self, count: int) -> None:
        if self._writer.noted(count) > max(LEAST_DRIFT, DRIFT * len(self.index)):
            self.index.prepare()
            self._writer.prepared()


def _remove(paths: Sequence[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
