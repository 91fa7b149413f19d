"""Flash images - UBI, UBIFS, JFFS2 - opened, read, extracted, checked, made and repaired.

    import flysch

    image = flysch.open("dump.bin")
    for path, directories, files in flysch.walk(image["rootfs"], "/etc"):
        ...
    image["rootfs"].read("/etc/passwd")
    image["rootfs"].extract("out")

Nothing is mounted, no root is needed, and an image that is only read is never written to.
"""

import functools as _functools
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
    InternalError,
    MakeError,
    OpenError,
    RepairError,
    Stat,
    UnsupportedError,
    Volume,
    __version__,
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
    "InternalError",
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


for _error in (DamagedError, EncryptedError, UnsupportedError):
    _error.filename = None
    _error.entries = None
del _error


@_functools.lru_cache(maxsize=None)
def _refusal(base, kind):
    """An exception as it is if the system refuses: it is also an OSError of that kind."""

    def again(self):
        """What copies and pickles it gives the arguments again."""
        return _refused, (base, self.errno, self.strerror, self.filename)

    return type(base.__name__, (base, kind), {"__module__": "flysch", "__reduce__": again})


def _refused(base, errno, text, filename):
    return _refusal(base, type(OSError(errno, text)))(errno, text, filename)


def _called(function, *arguments):
    """Calls a function of the native part. What the system refuses is an OSError as well."""
    try:
        return function(*arguments)
    except (MakeError, OpenError) as error:
        if len(error.args) != 3:
            raise
        refused = _refused(type(error), *error.args)
    raise refused


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

    `source` is a path, bytes, or a file opened in binary mode. Such a file, also an mmap, is read at
    once and from its start, wherever it was read last, if it can seek. Sizes are detected unless they
    are given. `auth_key` is the file with the key that verifies a UBIFS; `master_keys` are the files
    with the keys of encrypted directories, `DESCRIPTOR:FILE` for a key with a descriptor.

    Raises OpenError; if the system refuses, that is an OSError too (FileNotFoundError,
    PermissionError, ...). Values that cannot be are a ValueError.

    The image is a context manager. Like a mapping, it has its volumes by name: `image["rootfs"]`,
    `"rootfs" in image`, and iteration gives the names. Where several volumes have one name, the
    second is `image["rootfs-2"]` (Volume.unique_name); `image.volumes` is the list of all."""
    options = dict(locals())
    return _called(_open, options.pop("source"), options)


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
    contents). `output` is replaced in one step or left unchanged.

    Raises MakeError; if the system refuses a file of `source` or `output`, that is an OSError too
    (FileNotFoundError, PermissionError, ...). Values that cannot be are a ValueError."""
    options = dict(locals())
    return _called(_create_ubifs, options.pop("source"), options.pop("output"), options)


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
    0xFF up to that many bytes, True up to the end of the last erase block; None and False do not.

    Raises what create_ubifs raises."""
    options = dict(locals())
    return _called(_create_jffs2, options.pop("source"), options.pop("output"), options)


class File(_io.RawIOBase):
    """A regular file of a volume, for reading: seekable. After its image is closed, reading it raises
    ValueError."""

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

    def seek(self, offset, whence=_io.SEEK_SET, /):
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

    def readinto(self, buffer, /):
        self._checkClosed()
        view = memoryview(buffer).cast("B")
        if self._at >= self.size:
            return 0
        data = self._volume.read(self.name, offset=self._at, size=len(view))
        view[: len(data)] = data
        self._at += len(data)
        return len(data)


def open_file(volume, path):
    """Opens a file of a volume for reading: a buffered binary file."""
    return _io.BufferedReader(File(volume, path), 1 << 17)


def walk(volume, top="/", onerror=None):
    """Walks a tree from the top, like os.walk: (path, directories, files) for each directory. Names
    removed from `directories` are skipped. Symbolic links to directories are among the files, and
    are not followed; a directory with two names is entered once.

    `onerror` is called with the exception of each directory that cannot be read, or not all of it;
    what can be read is yielded nevertheless, and the walk goes on. Unlike in os.walk, without
    `onerror` the exception is raised: nothing is left out unnoticed."""
    waiting, entered = [(top, None)], set()
    while waiting:
        path, inode = waiting.pop()
        try:
            if inode is None:
                entries = volume.scandir(path)
            else:
                entries = volume._scandir(inode, path)
        except (Error, OSError) as error:
            if onerror is None:
                raise
            onerror(error)
            entries = getattr(error, "entries", None)
            if entries is None:
                continue
        inodes = {entry.name: entry.inode for entry in entries if entry.is_dir()}
        directories = list(inodes)
        files = [entry.name for entry in entries if not entry.is_dir()]
        yield path, directories, files
        below = []
        for name in directories:
            # The caller may have added a name.
            inode = inodes.get(name)
            if inode is None or inode not in entered:
                entered.add(inode)
                below.append((path.rstrip("/") + "/" + name, inode))
        waiting += reversed(below)
