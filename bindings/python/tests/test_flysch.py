"""The package, on images that it made and on images of mtd-utils."""

import errno
import io
import mmap
import os
import pathlib
import pickle
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import unittest

import flysch

HANDLER = pathlib.Path(__file__).parents[3] / "examples/python/flysch_handler.py"
UBIFS = ["-m", "2048", "-e", "126976", "-c", "200"]


def make_tree(root):
    """A tree with all that is small enough to be looked at; what is in it, by path."""
    (root / "etc").mkdir(parents=True)
    (root / "lib/deep/er").mkdir(parents=True)
    (root / "etc/passwd").write_text("root:x:0:0::/:/bin/sh\n")
    (root / "lib/deep/er/blob").write_bytes(os.urandom(300_000))
    (root / "empty").write_bytes(b"")
    with open(root / "holes", "wb") as file:
        file.seek(1_000_000)
        file.write(b"end")
    os.symlink("../etc/passwd", root / "lib/link")
    os.symlink("etc", root / "dir")
    os.mkfifo(root / "fifo", 0o600)
    name = os.fsdecode(b"not-\xff-utf8")
    (root / name).write_text("named so")
    return root


class Made(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.tree = make_tree(self.folder / "tree")

    def ubifs(self):
        path = self.folder / "image.ubifs"
        flysch.create_ubifs(self.tree, path, min_io_size=2048, leb_size=126976)
        return path

    def twice(self):
        """Firmware of two slots: two UBIs, one after the other, each with a volume `data`."""
        made = self.folder / "slot.ubifs"
        flysch.create_ubifs(self.tree, made, min_io_size=2048, leb_size=126976)
        ini = f"[data]\nmode=ubi\nimage={made}\nvol_id=2\nvol_type=dynamic\nvol_name=data\n"
        (self.folder / "ini").write_text(ini + "vol_size=8MiB\n")
        slots = []
        for number in ("111", "222"):
            slot = self.folder / number
            shape = ["-m", "2048", "-p", "128KiB", "-Q", number]
            subprocess.run(["ubinize", *shape, "-o", slot, self.folder / "ini"], check=True)
            slots.append(slot.read_bytes())
        path = self.folder / "slots"
        path.write_bytes(b"".join(slots))
        return path

    def same_as_tree(self, volume):
        found = {}
        for path, directories, files in flysch.walk(volume):
            for name in directories + files:
                found[(path.rstrip("/") + "/" + name).lstrip("/")] = None
        there = {str(p.relative_to(self.tree)) for p in self.tree.rglob("*")}
        self.assertEqual(set(found), there)
        for name in there:
            real, ours = os.lstat(self.tree / name), volume.stat(name, follow_symlinks=False)
            self.assertEqual(stat.filemode(ours.st_mode), stat.filemode(real.st_mode), name)
            if not stat.S_ISDIR(real.st_mode):
                self.assertEqual(ours.st_size, real.st_size, name)
            self.assertEqual(int(ours.st_mtime), int(real.st_mtime), name)
            if stat.S_ISREG(real.st_mode):
                self.assertEqual(volume.read(name), (self.tree / name).read_bytes(), name)
            if stat.S_ISLNK(real.st_mode):
                self.assertEqual(volume.readlink(name), os.readlink(self.tree / name))

    def test_a_repair_reports_ubi_too_and_leaves_alone_what_needs_none(self):
        path = self.folder / "one"
        block = 128 << 10
        clean = self.twice().read_bytes()
        clean = clean[: len(clean) // 2]
        path.write_bytes(clean)
        self.assertEqual(flysch.open(path).repair("data", dry_run=True), [])
        self.assertEqual(flysch.open(path).repair("data"), [])
        self.assertEqual(path.read_bytes(), clean, "nothing to repair, nothing written")
        hurt = clean[:block] + bytes(64) + clean[block + 64 :]
        path.write_bytes(hurt)
        plan = flysch.open(path).repair("data", dry_run=True)
        self.assertEqual(len(plan), 1, plan)
        self.assertEqual(path.read_bytes(), hurt)
        self.assertEqual(len(flysch.open(path).repair("data")), 1)
        image = flysch.open(path)
        self.assertEqual([f for f in image.check() if f.severity != "note"], [])
        self.same_as_tree(image["data"])

    def test_a_path_bytes_and_a_file_are_opened_alike(self):
        path = self.ubifs()
        with open(path, "rb") as file:
            sources = [path, str(path), path.read_bytes(), bytearray(path.read_bytes()), file]
            for source in sources:
                image = flysch.open(source)
                self.assertEqual([v.format for v in image.volumes], ["ubifs"])
                self.same_as_tree(image["ubifs"])
        with self.assertRaisesRegex(TypeError, "binary mode"):
            flysch.open(io.StringIO("text"))
        with self.assertRaises(TypeError):
            flysch.open(7)

    def test_a_file_is_read_from_its_start_however_often(self):
        with open(self.ubifs(), "rb") as file:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                for source in (mapped, mapped, file, file):
                    self.assertEqual(list(flysch.open(source)), ["ubifs"])
        with self.assertRaises(ValueError):
            flysch.open(file)
        # What cannot seek is read from where it is.
        reader, writer = os.pipe()
        with os.fdopen(reader, "rb") as pipe:
            os.close(writer)
            with self.assertRaisesRegex(flysch.OpenError, "is empty"):
                flysch.open(pipe)

    def test_a_path_may_be_anything_that_names_one(self):
        class Named:
            def __fspath__(self):
                return self.path

        source = Named()
        with self.assertRaises(AttributeError):
            flysch.open(source)
        source.path = os.fsencode(self.ubifs())
        self.assertEqual(list(flysch.open(source)), ["ubifs"])
        with self.assertRaisesRegex(ValueError, "null byte"):
            flysch.open("a\0b")

    def test_an_image_is_a_mapping_and_closes(self):
        path = self.ubifs()
        content = bytearray(path.read_bytes())
        content[content.find((self.tree / "lib/deep/er/blob").read_bytes()[40:60])] ^= 0xFF
        path.write_bytes(content)
        with flysch.open(path) as image:
            volume, names = image["ubifs"], list(image)
            self.assertEqual((names, len(image), image.closed), (["ubifs"], 1, False))
            self.assertTrue("ubifs" in image and "none" not in image and 0 not in image)
            file = flysch.open_file(volume, "/holes")
            # Only one of two may change it, and no one waits for himself.
            with self.assertRaisesRegex(flysch.RepairError, "this program has it open once more"):
                flysch.open(path).repair("ubifs", level="danger-default")
        self.assertTrue(image.closed)
        self.assertIn("closed", repr(image) + repr(volume))
        image.close()
        uses = [
            lambda: image.volumes,
            lambda: image.size,
            lambda: image.check(),
            lambda: image.repair("ubifs"),
            lambda: image["ubifs"],
            lambda: "ubifs" in image,
            lambda: list(image),
            lambda: len(image),
            lambda: image.__enter__(),
            lambda: volume.name,
            lambda: volume.read("/etc/passwd"),
            lambda: volume.extract(self.folder / "out"),
            lambda: file.read(),
        ]
        for use in uses:
            with self.assertRaisesRegex(ValueError, "the image is closed"):
                use()
        self.assertTrue(flysch.open(path).repair("ubifs", level="danger-default"))

    def test_numbers_are_refused_by_name(self):
        path = self.ubifs()
        volume = flysch.open(path)["ubifs"]
        sizes = [(name, bad) for name in ("erase_size", "page_size", "oob_size") for bad in (0, -1)]
        for name, bad in sizes + [("offset", -1), ("erase_size", 2**32), ("page_size", 2**200)]:
            with self.assertRaisesRegex(ValueError, f"^{name} cannot be"):
                flysch.open(path, **{name: bad})
        for name, bad in (("erase_size", "x"), ("no_oob", 1), ("master_keys", "x")):
            with self.assertRaisesRegex(TypeError, f"^{name}: "):
                flysch.open(path, **{name: bad})
        for bad in (-1, 1025, 2**62, 2**200):
            with self.assertRaisesRegex(ValueError, "^threads cannot be"):
                volume.extract(self.folder / "out", threads=bad)
        for name in ("offset", "size"):
            with self.assertRaisesRegex(ValueError, f"^{name} cannot be -1"):
                volume.read("/etc/passwd", **{name: -1})
        for name in ("min_io_size", "leb_size", "max_lebs"):
            options = {"min_io_size": 2048, "leb_size": 126976, name: -1}
            with self.assertRaisesRegex(ValueError, f"^{name} cannot be -1"):
                flysch.create_ubifs(self.tree, "x", **options)
        with self.assertRaisesRegex(TypeError, "^pad: 'str'"):
            flysch.create_jffs2(self.tree, "x", pad="x")
        for options in ({"erase_size": 0}, {"pad": -1}):
            with self.assertRaisesRegex(ValueError, "cannot be"):
                flysch.create_jffs2(self.tree, "x", **options)

    def test_jffs2_of_both_orders(self):
        for big in (False, True):
            path = self.folder / "image.jffs2"
            flysch.create_jffs2(self.tree, path, erase_size=65536, big_endian=big, pad=True)
            self.assertEqual(path.stat().st_size % 65536, 0)
            self.same_as_tree(flysch.open(path)["jffs2"])
        sizes = []
        for pad in (None, False, True, 3 << 20):
            flysch.create_jffs2(self.tree, path, pad=pad)
            sizes.append(path.stat().st_size)
        self.assertEqual(sizes[0], sizes[1])
        self.assertEqual(sizes[2], -(-sizes[0] // 65536) * 65536)
        self.assertEqual(sizes[3], 3 << 20)

    @unittest.skipUnless(shutil.which("ubinize"), "no mtd-utils")
    def test_two_volumes_of_one_name(self):
        path = self.twice()
        image = flysch.open(path)
        self.assertEqual([volume.name for volume in image.volumes], ["data", "data"])
        self.assertEqual(list(image), ["data", "data-2"])
        for name in image:
            self.assertEqual(image[name].unique_name, name)
            self.same_as_tree(image[name])
        command = [sys.executable, HANDLER, path, self.folder / "out"]
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for name in image:
            self.assertTrue((self.folder / "out" / name / "lib/deep/er/blob").is_file())
        # What stops one volume does not stop the other.
        shutil.rmtree(self.folder / "out/data-2")
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "^data: .*not empty.*\n$")
        self.assertTrue((self.folder / "out/data-2/etc/passwd").is_file())

    @unittest.skipUnless(shutil.which("mkfs.ubifs") and shutil.which("ubinize"), "no mtd-utils")
    def test_what_mtd_utils_made(self):
        made = self.folder / "u.ubifs"
        subprocess.run(["mkfs.ubifs", *UBIFS, "-r", self.tree, "-o", made], check=True)
        ini = f"[data]\nmode=ubi\nimage={made}\nvol_id=2\nvol_type=dynamic\nvol_name=data\n"
        (self.folder / "ini").write_text(ini + "vol_size=8MiB\n")
        ubi = self.folder / "ubi"
        shape = ["-m", "2048", "-p", "128KiB"]
        subprocess.run(["ubinize", *shape, "-o", ubi, self.folder / "ini"], check=True)
        image = flysch.open(ubi)
        self.assertEqual([(v.name, v.id, v.format) for v in image.volumes], [("data", 2, "ubifs")])
        self.same_as_tree(image["data"])
        self.assertEqual([f for f in image.check() if f.severity != "note"], [])
        done = image["data"].extract(self.folder / "out")
        self.assertEqual(done.failures, [])
        diff = subprocess.run(
            ["diff", "-r", "--no-dereference", "-x", "fifo", self.tree, self.folder / "out"],
            capture_output=True,
        )
        self.assertEqual((diff.returncode, diff.stdout), (0, b""))

    def test_a_handler_for_unpackers(self):
        """Beside jefferson, if it is installed."""
        image = self.folder / "image.jffs2"
        flysch.create_jffs2(self.tree, image, pad=True)
        firmware = self.folder / "firmware"
        firmware.write_bytes(bytes(65536) + image.read_bytes() + bytes(1000))

        def run(source, folder):
            command = [sys.executable, HANDLER, source, folder]
            return subprocess.run(command, capture_output=True, text=True)

        done = run(firmware, self.folder / "deep/out")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        ours = self.folder / "deep/out/jffs2"
        self.assertEqual((ours / "etc/passwd").read_bytes(), (self.tree / "etc/passwd").read_bytes())
        if peer := shutil.which("jefferson"):
            theirs = self.folder / "theirs"
            subprocess.run([peer, "-d", theirs, image], check=True, capture_output=True)
            diff = ["diff", "-r", "--no-dereference", "-x", "fifo", ours, theirs]
            self.assertEqual(subprocess.run(diff, capture_output=True).stdout, b"")
        done = run(self.tree / "empty", self.folder / "nothing")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "empty: is empty")

    def test_paths_lead_where_linux_would(self):
        volume = flysch.open(self.ubifs())["ubifs"]
        self.assertEqual(volume.read("/lib/link"), (self.tree / "etc/passwd").read_bytes())
        self.assertEqual(volume.listdir("/dir"), ["passwd"])
        self.assertTrue(volume.exists("/dir/passwd") and not volume.exists("/dir/none"))
        with self.assertRaises(FileNotFoundError) as absent:
            volume.read("/etc/none")
        self.assertEqual(absent.exception.filename, "/etc/none")
        with self.assertRaises(NotADirectoryError):
            volume.listdir("/etc/passwd")
        with self.assertRaises(IsADirectoryError):
            volume.read("/etc")
        with self.assertRaises(OSError):
            volume.read("/fifo")
        with self.assertRaises(OSError):
            volume.readlink("/etc")
        for path in ("/etc/passwd/", "/etc/passwd/.", "/lib/link/", "/etc/passwd/../passwd"):
            with self.assertRaises(NotADirectoryError):
                volume.read(path)
            self.assertFalse(volume.exists(path))
        self.assertEqual(volume.listdir("/etc/."), ["passwd"])
        with self.assertRaises(FileNotFoundError):
            volume.stat("")
        self.assertFalse(volume.exists(""))
        with self.assertRaisesRegex(ValueError, "null byte"):
            volume.stat("a\0b")
        for name in ("/\xe9", os.fsdecode(b"/\xff"), "none", "/etc/passwd/x"):
            with self.assertRaises(OSError) as refused:
                volume.stat(name)
            self.assertEqual(refused.exception.filename, name)

    def test_one_damaged_name_hides_no_others(self):
        many = self.tree / "many"
        many.mkdir()
        for number in range(100):
            (many / f"name{number:03}").touch()
        for make in ("ubifs", "jffs2"):
            path = self.folder / "image"
            if make == "ubifs":
                path = self.ubifs()
            else:
                flysch.create_jffs2(self.tree, path)
            image = bytearray(path.read_bytes())
            at = image.find(b"name042")
            image[at] ^= 1
            volume = flysch.open(bytes(image))[make]
            left = [f"name{number:03}" for number in range(100) if number != 42]
            if make == "jffs2":
                # It has no node that says how many there were.
                self.assertEqual(volume.listdir("/many"), left)
                continue
            with self.assertRaises(flysch.DamagedError) as damaged:
                volume.listdir("/many")
            self.assertEqual(damaged.exception.filename, "/many")
            self.assertEqual(damaged.exception.entries, left)
            with self.assertRaises(flysch.DamagedError) as damaged:
                volume.scandir("/many")
            self.assertEqual([entry.name for entry in damaged.exception.entries], left)
            with self.assertRaises(flysch.DamagedError):
                list(flysch.walk(volume))
            errors = []
            walked = {path: files for path, _, files in flysch.walk(volume, onerror=errors.append)}
            self.assertEqual((walked["/many"], walked["/etc"]), (left, ["passwd"]))
            self.assertEqual([error.filename for error in errors], ["/many"])
            self.assertEqual(list(flysch.walk(volume, "/none", errors.append)), [])
            self.assertIsInstance(errors[1], FileNotFoundError)

    def test_a_walk_is_as_deep_as_the_tree(self):
        deep = self.folder / "deep"
        self.addCleanup(subprocess.run, ["rm", "-rf", deep])
        subprocess.run(["mkdir", "-p", str(deep) + "/d" * 1010], check=True)
        path = self.folder / "image"
        flysch.create_ubifs(deep, path, min_io_size=2048, leb_size=126976)
        volume = flysch.open(path)["ubifs"]
        self.assertEqual(sum(1 for _ in flysch.walk(volume)), 1011)
        # In order, and without what the caller takes out.
        walk = flysch.walk(flysch.open(self.ubifs())["ubifs"], "/")
        seen = []
        for path, directories, _ in walk:
            seen.append(path)
            if path == "/lib":
                directories.remove("deep")
        self.assertEqual(seen, ["/", "/etc", "/lib"])

    def test_files_are_files(self):
        volume = flysch.open(self.ubifs())["ubifs"]
        real = (self.tree / "lib/deep/er/blob").read_bytes()
        with flysch.open_file(volume, "/lib/deep/er/blob") as file:
            self.assertEqual(file.read(10), real[:10])
            self.assertEqual(file.seek(-5, io.SEEK_END), len(real) - 5)
            self.assertEqual(file.read(), real[-5:])
            self.assertEqual(file.seek(200_000), 200_000)
            self.assertEqual(file.read(), real[200_000:])
            self.assertEqual(file.read(), b"")
        with self.assertRaises(ValueError):
            file.read()
        with self.assertRaises(IsADirectoryError):
            flysch.open_file(volume, "/etc")

    def test_threads_read_at_once(self):
        volume = flysch.open(self.ubifs())["ubifs"]
        real, wrong = (self.tree / "lib/deep/er/blob").read_bytes(), []

        def read():
            for at in range(0, len(real), 7777):
                if volume.read("/lib/deep/er/blob", offset=at, size=9000) != real[at : at + 9000]:
                    wrong.append(at)

        threads = [threading.Thread(target=read) for _ in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        self.assertEqual(wrong, [])

    def test_damage_is_an_exception_and_a_finding(self):
        path = self.ubifs()
        image = bytearray(path.read_bytes())
        at = image.find((self.tree / "lib/deep/er/blob").read_bytes()[40:60])
        self.assertGreater(at, 0, "random bytes are stored as they are")
        image[at] ^= 0xFF
        damaged = flysch.open(bytes(image))
        with self.assertRaises(flysch.DamagedError):
            damaged["ubifs"].read("/lib/deep/er/blob")
        self.assertEqual(damaged["ubifs"].read("/etc/passwd")[:4], b"root")
        lost = [finding for finding in damaged.check() if finding.severity == "lost"]
        self.assertEqual({finding.path for finding in lost}, {"/lib/deep/er/blob"})
        self.assertIn("data node", str(lost[0]))
        done = damaged["ubifs"].extract(self.folder / "out")
        self.assertEqual([name for name, _ in done.failures], ["lib/deep/er/blob"])
        # What is in memory is not repaired; a file is.
        with self.assertRaisesRegex(flysch.RepairError, "in memory"):
            damaged.repair("ubifs", level="danger-default")
        path.write_bytes(image)
        plan = flysch.open(path).repair("ubifs", dry_run=True)
        self.assertEqual({change.level for change in plan}, {"danger-default"})
        with self.assertRaisesRegex(flysch.RepairError, "danger-default"):
            flysch.open(path).repair("ubifs")
        self.assertEqual(path.read_bytes(), bytes(image), "a refused repair writes nothing")
        self.assertTrue(flysch.open(path).repair("ubifs", level="danger-default"))
        self.assertEqual([f for f in flysch.open(path).check() if f.severity != "note"], [])

    def test_what_cannot_be_opened_or_made(self):
        for source in (b"", b"\0" * 4096, self.folder / "none", self.tree):
            with self.assertRaises(flysch.OpenError):
                flysch.open(source)
        with self.assertRaises(FileNotFoundError) as none:
            flysch.open(self.folder / "none")
        self.assertIsInstance(none.exception, flysch.OpenError)
        self.assertEqual(none.exception.errno, errno.ENOENT)
        self.assertEqual(none.exception.filename, str(self.folder / "none"))
        again = pickle.loads(pickle.dumps(none.exception))
        self.assertEqual((type(again), again.args), (type(none.exception), none.exception.args))
        with self.assertRaises(IsADirectoryError):
            flysch.open(self.tree)
        with self.assertRaisesRegex(flysch.OpenError, r"\(erase_size, page_size\)"):
            flysch.open(b"\0" * 4096)
        with self.assertRaisesRegex(KeyError, "there are ubifs"):
            flysch.open(self.ubifs())["root"]
        with self.assertRaisesRegex(ValueError, "lzo, zlib, zstd"):
            flysch.create_ubifs(self.tree, "x", min_io_size=8, leb_size=65536, compression="xz")
        volume = flysch.open(self.ubifs())["ubifs"]
        (self.folder / "full").mkdir()
        (self.folder / "full/file").touch()
        with self.assertRaisesRegex(FileExistsError, "not empty") as full:
            volume.extract(self.folder / "full")
        self.assertEqual(full.exception.errno, errno.EEXIST)
        with self.assertRaises(FileNotFoundError):
            volume.extract(self.folder / "no/such/folder")
        with self.assertRaises(NotADirectoryError):
            volume.extract(self.tree / "empty")
        with self.assertRaisesRegex(ValueError, "null byte"):
            volume.extract("a\0")
        output = self.folder / "there"
        output.write_text("as it was")
        with self.assertRaisesRegex(flysch.MakeError, f"^{output}: ") as request:
            flysch.create_ubifs(self.tree, output, min_io_size=2048, leb_size=1000)
        self.assertNotIsInstance(request.exception, OSError)
        self.assertEqual(output.read_text(), "as it was")
        for bad in ("nonsense", "bch99"):
            with self.assertRaisesRegex(ValueError, "ecc: "):
                flysch.open(self.ubifs(), ecc=bad)

    def test_files_that_the_system_refuses_to_a_maker(self):
        there = self.folder / "there"
        there.write_text("as it was")
        there.chmod(0o400)
        for source, output, kind, number, path in (
            ("/none", "x", FileNotFoundError, errno.ENOENT, "/none"),
            (there, "x", NotADirectoryError, errno.ENOTDIR, there),
            (self.tree, self.folder / "no/x", FileNotFoundError, errno.ENOENT, None),
            (self.tree, self.tree, IsADirectoryError, errno.EISDIR, None),
            (self.tree, there, PermissionError, errno.EACCES, None),
            (self.tree, "", FileNotFoundError, errno.ENOENT, None),
        ):
            for make in (
                lambda: flysch.create_jffs2(source, output),
                lambda: flysch.create_ubifs(source, output, min_io_size=2048, leb_size=126976),
            ):
                with self.subTest(source=source, output=output), self.assertRaises(kind) as refused:
                    make()
                error = refused.exception
                self.assertIsInstance(error, flysch.MakeError)
                self.assertEqual((error.errno, error.filename), (number, str(path or output)))
                self.assertEqual(str(error), str(OSError(*error.args, error.filename)))
                again = pickle.loads(pickle.dumps(error))
                self.assertEqual((type(again), str(again)), (type(error), str(error)))
        self.assertEqual(there.read_text(), "as it was")

    def test_a_file_of_the_source_that_may_not_be_read(self):
        (self.tree / "etc/passwd").chmod(0)
        self.folder.chmod(0o777)
        if os.geteuid() == 0:  # To whom nothing is forbidden.
            os.seteuid(65534)
            self.addCleanup(os.seteuid, 0)
        with self.assertRaises(PermissionError) as refused:
            flysch.create_jffs2(self.tree, self.folder / "x")
        self.assertEqual(refused.exception.filename, str(self.tree / "etc/passwd"))
        self.assertFalse((self.folder / "x").exists())

    def test_the_version_is_that_of_the_sources(self):
        manifest = pathlib.Path(__file__).parents[3] / "Cargo.toml"
        self.assertIn(f'\nversion = "{flysch.__version__}"\n', manifest.read_text())


if __name__ == "__main__":
    unittest.main()
