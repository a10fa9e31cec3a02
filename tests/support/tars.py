"""TESTS: tar archives as bytes, honest and hostile."""

import io
import tarfile


def member(name, content=b"x", **fields):
    """(TarInfo, content) of a plain file; fields overwrite the TarInfo's."""
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, content


def folder(name):
    """A folder member."""
    return member(name, b"", type=tarfile.DIRTYPE)


def archive(*members, gz=False, form=tarfile.PAX_FORMAT):
    """The archive's bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz" if gz else "w", format=form) as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content) if info.isreg() else None)
    return buffer.getvalue()


class Pipe:
    """A stream that can only be read, and gives short reads, as a pipe or an SSH channel does."""

    def __init__(self, content, most=1000):
        self._file, self._most, self.given = io.BytesIO(content), most, 0

    def read(self, size=-1):
        block = self._file.read(self._most if size < 0 else min(size, self._most))
        self.given += len(block)
        return block
