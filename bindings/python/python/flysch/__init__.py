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
)
from ._flysch import create_jffs2 as _create_jffs2
from ._flysch import create_ubifs as _create_ubifs
from ._flysch import open as _open

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


def open(
    source,
    *,
    erase_size=None,
    page_size=None,
    oob_size=None,
    ecc=None,
    no_oob=False,
    offset=0,
    auth_key=None,
    master_keys=(),
):
    """Opens an image and detects its contents.

    `source` is a path, bytes, or a file opened in binary mode (whose content is read at once). Sizes
    are detected unless they are given. `auth_key` is the file with the key that verifies a UBIFS;
    `master_keys` are the files with the keys of encrypted directories, `DESCRIPTOR:FILE` for a key
    with a descriptor."""
    options = dict(locals())
    return _open(options.pop("source"), options)


def create_ubifs(
    source,
    output,
    *,
    min_io_size,
    leb_size,
    max_lebs=0,
    compression="lzo",
    squash_owners=False,
):
    """Makes a UBIFS from the files in `source`: the content of one UBI volume, like mkfs.ubifs.

    `min_io_size` and `leb_size` are mkfs.ubifs's -m and -e, `max_lebs` its -c (0: room for twice its
    contents). `output` is replaced in one step or left unchanged."""
    options = dict(locals())
    return _create_ubifs(options.pop("source"), options.pop("output"), options)


def create_jffs2(
    source,
    output,
    *,
    erase_size=65536,
    big_endian=False,
    cleanmarkers=True,
    summary=False,
    pad=None,
    squash_owners=False,
):
    """Makes a JFFS2 from the files in `source`, like mkfs.jffs2.

    `erase_size` is mkfs.jffs2's -e; `cleanmarkers=False` its -n, for NAND; `pad` fills the image with
    0xFF up to that many bytes, True up to the end of the last erase block."""
    options = dict(locals())
    return _create_jffs2(options.pop("source"), options.pop("output"), options)


class File(_io.RawIOBase):
    """A regular file of a volume, for reading: seekable, never closed by its image."""

    def __init__(self, volume, path):
        super().__init__()
        found = volume.stat(path)
        if not _stat.S_ISREG(found.st_mode):
            volume.read(path, size=1)  # Raises the error for its kind.
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
    """Walks a tree from the top, like os.walk: (path, directories, files) for each directory. Names
    removed from `directories` are skipped. Symbolic links to directories are among the files, and
    are not followed."""
    entries = volume.scandir(top)
    directories = [entry.name for entry in entries if entry.is_dir()]
    files = [entry.name for entry in entries if not entry.is_dir()]
    yield top, directories, files
    for name in directories:
        yield from walk(volume, top.rstrip("/") + "/" + name)
