#!/usr/bin/env python3
"""Flash images for tools that unpack firmware: detects the contents of a file and extracts them.

By itself:  flysch_handler.py FIRMWARE FOLDER
In unblob:  ExtractionConfig(handlers=(flysch_handler.FlyschHandler,), ...), in place of its own
            handlers of these formats, which take precedence if both are given
Elsewhere:  flysch_handler.extract(FIRMWARE, FOLDER)

Each volume becomes a folder with its unique name, or a file if it is not a file system. What
cannot be read is reported, and everything else is extracted.
"""

import pathlib
import sys

import flysch


def extract(source, folder):
    """Extracts all volumes of the image `source` into `folder`. Returns what went wrong, by line."""
    folder = pathlib.Path(folder)
    with flysch.open(source) as image:
        folder.mkdir(parents=True, exist_ok=True)
        wrong = list(image.failures)
        for volume in image.volumes:
            # Names come from the image: unique ones are no two alike, and none leads elsewhere.
            name = volume.unique_name
            try:
                done = volume.extract(folder / name, keep_damaged=True)
            except (OSError, flysch.Error) as error:
                wrong.append(f"{name}: {error}")
                continue
            wrong += [f"{name}: {path or 'the content'}: {why}" for path, why in done.failures]
            print(f"{folder / name}: {done.files} files, {done.bytes} bytes")
        return wrong


try:
    from unblob.models import Extractor, ExtractResult, Handler, HexString, ValidChunk
except ImportError:
    pass
else:

    class FlyschExtractor(Extractor):
        def extract(self, inpath, outdir):
            for line in extract(inpath, outdir):
                print(line, file=sys.stderr)
            return ExtractResult(reports=[])

    class FlyschHandler(Handler):
        """UBI with its volumes, a bare UBIFS, JFFS2 of either byte order: where each one ends is
        what is in it, not where the next magic number stands."""

        NAME = "flysch"
        PATTERNS = [
            HexString("55 42 49 23 01 00 00 00"),  # UBI: an erase counter header
            HexString("31 18 10 06 [16] 06 ( 00 | 01 | 02 ) 00 00"),  # UBIFS: a superblock node
            HexString("85 19 ( 01 | 02 | 03 ) ( 20 | e0 )"),  # JFFS2, little endian
            HexString("19 85 ( 20 | e0 ) ( 01 | 02 | 03 )"),  # JFFS2, big endian
        ]
        EXTRACTOR = FlyschExtractor()
        DOC = None

        def calculate_chunk(self, file, start_offset):
            file.seek(start_offset)
            try:
                parts = flysch.open(file.read(), no_oob=True).parts
            except flysch.OpenError:
                return None
            if parts[0][1] != 0:
                return None  # It begins later: that offset is examined separately.
            return ValidChunk(start_offset=start_offset, end_offset=start_offset + parts[0][2])


def main():
    if len(sys.argv) != 3:
        sys.exit(f"usage: {sys.argv[0]} FIRMWARE FOLDER")
    try:
        wrong = extract(sys.argv[1], sys.argv[2])
    except (OSError, flysch.Error) as error:
        sys.exit(str(error))
    for line in wrong:
        print(line, file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
