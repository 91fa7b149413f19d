"""Flash images - UBI, UBIFS, JFFS2 - opened, read, extracted, checked, made and repaired.

    import flysch

    image = flysch.open("dump.bin")
    for path, directories, files in flysch.walk(image["rootfs"], "/etc"):
        ...
    image["rootfs"].read("/etc/passwd")
    image["rootfs"].extract("out")

Nothing is mounted, no root is needed, and an image that is only read is never written to.
"""

import io as _io
import stat as _stat

from ._flysch import (
    Change,
    DamagedError,
    DirEntry,
    EncryptedError,
    Error,
    Extraction,
    Finding,
    Image,
    MakeError,
    OpenError,
    RepairError,
    Stat,
    UnsupportedError,
    Volume,
    create_jffs2,
    create_ubifs,
    open,
)

__all__ = [
    "Change",
    "DamagedError",
    "DirEntry",
    "EncryptedError",
    "Error",
    "Extraction",
    "File",
    "Finding",
    "Image",
    "MakeError",
    "OpenError",
    "RepairError",
    "Stat",
    "UnsupportedError",
    "Volume",
    "create_jffs2",
    "create_ubifs",
    "open",
    "open_file",
    "walk",
]


class File(_io.RawIOBase):
    """A regular file of a volume, for reading: seekable, never closed by its image."""

    def __init__(self, volume, path):
        super().__init__()
        found = volume.stat(path)
        if not _stat.S_ISREG(found.st_mode):
            volume.read(path, size=1)  # Says what it is instead.
        self.name = path
        self.size = found.st_size
        self._volume = volume
        self._at = 0

    def readable(self):
        return True

    def seekable(self):
        return True

    def seek(self, offset, whence=_io.SEEK_SET):
        self._checkClosed()
        start = {_io.SEEK_SET: 0, _io.SEEK_CUR: self._at, _io.SEEK_END: self.size}.get(whence)
        if start is None:
            raise ValueError(f"whence is {whence}, and 0, 1 or 2 is wanted")
        if start + offset < 0:
            raise ValueError(f"a seek to {start + offset}, before the file")
        self._at = start + offset
        return self._at

    def tell(self):
        self._checkClosed()
        return self._at

    def readinto(self, buffer):
        self._checkClosed()
        view = memoryview(buffer).cast("B")
        data = self._volume.read(self.name, offset=self._at, size=len(view))
        view[: len(data)] = data
        self._at += len(data)
        return len(data)


def open_file(volume, path):
    """Opens a file of a volume for reading: a buffered binary file."""
    return _io.BufferedReader(File(volume, path), 1 << 17)


def walk(volume, top="/"):
    """Goes through a tree as os.walk does, from the top: (path, directories, files) of each
    directory. Who takes names out of `directories` leaves them out. Symbolic links to directories
    are among the files, and are not followed."""
    entries = volume.scandir(top)
    directories = [entry.name for entry in entries if entry.is_dir()]
    files = [entry.name for entry in entries if not entry.is_dir()]
    yield top, directories, files
    for name in directories:
        yield from walk(volume, top.rstrip("/") + "/" + name)
