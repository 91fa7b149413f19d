//! `flysch export`: NBD and vhost-user clients of other projects on our disks.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use flysch_tests::command::{flysch, lacks, ran, run_in};
use rustix::process::{Pid, Signal, kill_process};

/// A running export, and the lines it prints.
struct Exported {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    ready: String,
}

impl Exported {
    fn start(words: &str, folder: &Path) -> Self {
        let mut child = flysch()
            .arg("export")
            .args(words.split_whitespace())
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = lines.next().expect("it gets ready").unwrap();
        Self { child, lines, ready }
    }

    /// Ends it as a system does; returns its last line.
    fn end(mut self) -> String {
        kill_process(Pid::from_raw(self.child.id() as i32).unwrap(), Signal::TERM).unwrap();
        let last = self.lines.by_ref().map(Result::unwrap).last();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        last.expect("it says what it did")
    }
}

/// Runs another program in `folder`; returns whether it succeeded, and all its output.
fn other(folder: &Path, program: &str, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(program);
    let output = command.args(arguments).current_dir(folder).stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    (output.status.success(), text.concat())
}

const DISK: &str = "nbd+unix:///disk?socket=s";

#[test]
fn qemu_libnbd_and_fio_work_on_one_disk() {
    if ["qemu-io", "nbdcopy", "fio"].into_iter().any(lacks) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let words = "ufs,size=64M --nbd unix:s --nbd tcp:127.0.0.1:0 --name disk";
    let exported = Exported::start(words, folder);
    let (_, tcp) = exported.ready.rsplit_once("unix:s and tcp:").expect(&exported.ready);
    let tcp = format!("nbd://{tcp}/disk");
    let (ok, said) = other(folder, "nbdinfo", &["--size", DISK]);
    assert_eq!((ok, said.trim()), (true, "67108864"));
    let (ok, said) = other(folder, "nbdinfo", &["nbd+unix:///other?socket=s"]);
    assert!(!ok && said.contains("No such file"), "{said}");
    // Aligned and not, zeroes, trims, with and without FUA; qemu-io compares each read.
    let script = [
        "write -P 7 0 64k",
        "write -f -P 1 4k 4k",
        "write -z 128k 64k",
        "write -z -u 192k 1M",
        "discard 2M 1M",
        "write -P 5 1000 3000",
        "write -f -P 9 65535 2",
        "flush",
        "read -P 7 0 1000",
        "read -P 5 1000 3000",
        "read -P 1 4k 4k",
        "read -P 7 8k 57343",
        "read -P 9 65535 2",
        "read -P 0 128k 1088k",
    ];
    let mut arguments = vec!["-f", "raw"];
    script.iter().for_each(|line| arguments.extend(["-c", line]));
    arguments.push(DISK);
    let (ok, said) = other(folder, "qemu-io", &arguments);
    assert!(ok && !said.contains("failed"), "{said}");
    // Written over one kind of socket with two connections, read over the other.
    let content: Vec<u8> = (0..64 << 20).map(|at: u32| (at / 4099 * 31 + at % 251) as u8).collect();
    fs::write(folder.join("in"), &content).unwrap();
    assert_eq!(other(folder, "nbdcopy", &["--flush", "in", &tcp]), (true, String::new()));
    assert_eq!(other(folder, "nbdcopy", &[DISK, "out"]), (true, String::new()));
    assert!(fs::read(folder.join("out")).unwrap() == content);
    let job = "--name=j --ioengine=nbd --rw=randrw --bs=4k --iodepth=32 --verify=crc32c \
               --verify_fatal=1 --size=16M --number_ios=2000 --uri=nbd+unix:///disk?socket=s";
    let (ok, said) = other(folder, "fio", &job.split_whitespace().collect::<Vec<_>>());
    assert!(ok && said.contains("err= 0"), "{said}");
    let last = exported.end();
    assert!(last.starts_with("ended; ") && !last.contains("failed"), "{last}");
    assert!(!folder.join("s").exists(), "the socket is gone");
}

/// libnbd's programs start our server themselves, and it ends with them.
#[test]
fn clients_start_it_by_socket_activation() {
    if ["nbdinfo", "nbdcopy"].into_iter().any(lacks) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let content: Vec<u8> = (0..1 << 20).map(|at: u32| (at / 97 * 29 + at % 253) as u8).collect();
    fs::write(folder.join("disk"), &content).unwrap();
    let program = flysch().get_program().to_str().unwrap().to_owned();
    let server = ["[", &program, "export", "file:disk", "--nbd", "systemd", "]"];
    let by = |client: &[&str], rest: &[&str]| {
        let words = [&client[1..], &server, rest].concat();
        let output = Command::new(client[0]).args(words).current_dir(folder).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output
    };
    assert_eq!(by(&["nbdinfo", "--size", "--"], &[]).stdout, b"1048576\n");
    // The copy has standard output to itself; the server's messages go to standard error.
    let copy = by(&["nbdcopy", "--"], &["-"]);
    assert!(copy.stdout == content, "{} bytes", copy.stdout.len());
    let said = String::from_utf8(copy.stderr).unwrap();
    assert!(said.contains("exporting 1 MiB in blocks of 4096 bytes, at passed:0"), "{said}");
    assert!(said.contains("ended; ") && said.contains("(1 MiB)"), "{said}");
    // No socket was passed, or one that does not listen.
    let refused = run_in("export file:disk --nbd systemd", folder);
    assert_eq!(refused.status, 1, "{refused:?}");
    assert!(refused.stderr.contains("no socket was passed (LISTEN_FDS)"), "{refused:?}");
    let passing = |socket: OwnedFd| {
        let mut server = flysch();
        server.args(["export", "file:disk", "--nbd", "systemd"]).current_dir(folder);
        server.env("LISTEN_FDS", "1").env("LISTEN_FDS_FIRST_FD", "0").stdin(socket);
        server
    };
    let (one, _other) = UnixStream::pair().unwrap();
    let refused = ran(passing(one.into()).output().unwrap());
    assert!(refused.stderr.contains("passed:0: the socket does not listen"), "{refused:?}");
    // A client that dies leaves no server behind.
    let listener = UnixListener::bind(folder.join("s")).unwrap();
    let mut server = passing(listener.into()).stderr(Stdio::null()).spawn().unwrap();
    drop(UnixStream::connect(folder.join("s")).unwrap());
    assert_eq!(server.wait().unwrap().code(), Some(0));
}

/// What libnbd's programs discover, copy and mount, and nbdkit's filters in front of our server.
#[test]
fn libnbds_and_nbdkits_programs_agree_with_it() {
    if ["nbdinfo", "nbdcopy", "nbdfuse", "nbdkit", "fusermount3"].into_iter().any(lacks) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let exported = Exported::start("ufs,size=16M --nbd unix:s --name disk", folder);
    let (ok, said) = other(folder, "nbdinfo", &["--json", DISK]);
    assert!(ok, "{said}");
    let info: serde_json::Value = serde_json::from_str(&said).unwrap();
    let disk = &info["exports"][0];
    assert_eq!((&info["structured"], &disk["export-size"]), (&true.into(), &(16 << 20).into()));
    assert_eq!(
        (&disk["contexts"][0], &disk["block_size_minimum"], &disk["block_size_preferred"]),
        (&"base:allocation".into(), &1.into(), &4096.into())
    );
    for can in ["write", "flush", "fua", "trim", "zero", "cache", "df", "multi-conn"] {
        assert!(other(folder, "nbdinfo", &["--can", can, DISK]).0, "{can}");
    }
    let (ok, said) = other(folder, "nbdinfo", &["--map", "--totals", DISK]);
    assert!(ok && said.contains("100.0%") && said.contains("data"), "{said}");
    let content: Vec<u8> = (0..16 << 20).map(|at: u32| (at / 4099 * 29 + at % 253) as u8).collect();
    fs::write(folder.join("in"), &content).unwrap();
    let copied =
        |words: &[&str]| assert_eq!(other(folder, "nbdcopy", words), (true, String::new()));
    // nbdkit's check of writes to a disk that already has that content, and a part of the disk
    // behind three filters, one of which keeps writes to itself.
    copied(&["--destination-is-zero", "in", DISK]);
    copied(&["--connections=4", "--requests=64", DISK, "out"]);
    assert!(fs::read(folder.join("out")).unwrap() == content);
    let kit = Nbdkit::start(folder, "--filter=checkwrite nbd socket=s export=disk shared=true");
    copied(&["in", Nbdkit::URI]);
    drop(kit);
    let part = "--filter=cow --filter=blocksize --filter=offset nbd socket=s export=disk \
                offset=4096 range=1M minblock=512 maxdata=64K";
    let kit = Nbdkit::start(folder, part);
    copied(&[Nbdkit::URI, "part"]);
    assert!(fs::read(folder.join("part")).unwrap() == content[4096..][..1 << 20]);
    fs::write(folder.join("other"), vec![7; 1 << 20]).unwrap();
    copied(&["other", Nbdkit::URI]);
    drop(kit);
    let (seen, changed) = changed_as_a_file(folder);
    assert!(seen == content);
    copied(&[DISK, "out"]);
    assert!(fs::read(folder.join("out")).unwrap() == changed);
    let last = exported.end();
    assert!(last.starts_with("ended; ") && !last.contains("failed"), "{last}");
}

/// The disk as a file of this machine by nbdfuse, part of which is written: the contents before and
/// after.
fn changed_as_a_file(folder: &Path) -> (Vec<u8>, Vec<u8>) {
    fs::create_dir(folder.join("m")).unwrap();
    let mut mount = Command::new("nbdfuse");
    let mut mounted = mount.args(["m", DISK]).current_dir(folder).spawn().unwrap();
    let file = folder.join("m/nbd");
    while !file.exists() && mounted.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(10));
    }
    // Whole blocks: libnbd observes the server's block size.
    let change = || -> std::io::Result<(Vec<u8>, Vec<u8>)> {
        let seen = fs::read(&file)?;
        let writer = fs::OpenOptions::new().write(true).open(&file)?;
        writer.write_all_at(&[0x5A; 12288], 8192)?;
        let mut changed = seen.clone();
        changed[8192..20480].fill(0x5A);
        Ok((seen, changed))
    };
    let done = change();
    assert!(other(folder, "fusermount3", &["-u", "m"]).0);
    assert!(mounted.wait().unwrap().success());
    done.unwrap()
}

/// nbdkit on a socket of its own, until it is dropped.
struct Nbdkit(Child, PathBuf);

impl Nbdkit {
    const URI: &str = "nbd+unix:///?socket=kit";

    fn start(folder: &Path, words: &str) -> Self {
        let mut kit = Command::new("nbdkit");
        kit.args(["--foreground", "--unix", "kit"]).args(words.split_whitespace());
        let mut kit = Self(kit.current_dir(folder).spawn().unwrap(), folder.join("kit"));
        while !kit.1.exists() && kit.0.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(10));
        }
        kit
    }
}

impl Drop for Nbdkit {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = fs::remove_file(&self.1);
    }
}

#[test]
fn what_was_written_is_in_the_file_and_errors_reach_the_client() {
    if ["qemu-io", "nbdcopy"].into_iter().any(lacks) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("disk"), vec![0; 1 << 20]).unwrap();
    let exported = Exported::start("file:disk --nbd unix:s", folder);
    let script = ["-f", "raw", "-c", "write -P 3 5000 10000", "nbd+unix:///?socket=s"];
    assert!(other(folder, "qemu-io", &script).0);
    let last = exported.end();
    assert!(last.contains(" 1 write ("), "{last}");
    let disk = fs::read(folder.join("disk")).unwrap();
    assert_eq!(disk.iter().position(|byte| *byte == 3), Some(5000));
    assert!(disk[5000..15000].iter().all(|byte| *byte == 3) && disk[15000] == 0);
    // A read-only disk.
    let exported = Exported::start("file:disk --nbd unix:s --read-only --json", folder);
    assert!(exported.ready.contains(r#""read_only":true"#), "{}", exported.ready);
    let (ok, _) = other(folder, "qemu-io", &script);
    assert!(!ok, "qemu-io cannot even open it for writing");
    assert_eq!(other(folder, "nbdcopy", &["nbd+unix:///?socket=s", "out"]), (true, String::new()));
    assert!(fs::read(folder.join("out")).unwrap() == disk);
    assert!(exported.end().contains(r#""failed":0"#));
    // A disk with a failing medium: the client gets an error, and the next request is served.
    let exported = Exported::start("ufs,size=16M,faults=medium:lba2 --nbd unix:s", folder);
    let reads = ["read 0 4k", "read 4k 4k", "read 8k 4k", "read 12k 4k", "read 16k 4k"];
    let mut script = vec!["-f", "raw"];
    reads.iter().for_each(|line| script.extend(["-c", line]));
    script.push("nbd+unix:///?socket=s");
    let (_, said) = other(folder, "qemu-io", &script);
    assert!(said.contains("read failed: Input/output error"), "{said}");
    assert!(said.contains("read 4096/4096 bytes at offset 16384"), "{said}");
    assert!(exported.end().contains("1 failed"));
}

/// An authority, a server and a client, in files named as QEMU expects.
fn certificates(folder: &Path) {
    let openssl = |words: &str| {
        let (ok, said) = other(folder, "openssl", &words.split_whitespace().collect::<Vec<_>>());
        assert!(ok, "openssl {words}: {said}");
    };
    let new = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    openssl(&format!(
        "req -x509 {new} -keyout ca-key.pem -out ca-cert.pem -days 2 -subj /CN=ca \
         -addext basicConstraints=critical,CA:TRUE"
    ));
    for (who, usage) in [("server", "serverAuth"), ("client", "clientAuth")] {
        let text = format!(
            "subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\nextendedKeyUsage={usage}\n"
        );
        fs::write(folder.join("extensions"), text).unwrap();
        openssl(&format!("req {new} -keyout {who}-key.pem -out {who}.csr -subj /CN={who}"));
        openssl(&format!(
            "x509 -req -in {who}.csr -CA ca-cert.pem -CAkey ca-key.pem -CAcreateserial -days 2 \
             -out {who}-cert.pem -extfile extensions"
        ));
    }
}

#[test]
fn tls_is_for_those_with_a_certificate() {
    if ["qemu-io", "nbdcopy", "openssl"].into_iter().any(lacks) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    certificates(folder);
    fs::create_dir(folder.join("none")).unwrap();
    fs::copy(folder.join("ca-cert.pem"), folder.join("none/ca-cert.pem")).unwrap();
    let exported =
        Exported::start("ufs,size=16M --nbd tcp:127.0.0.1:0 --tls-certificates .", folder);
    let (_, tcp) = exported.ready.rsplit_once("tcp:127.0.0.1:").expect(&exported.ready);
    let uri = |certificates: &str| {
        let at = folder.display();
        format!("nbds://localhost:{tcp}/?tls-certificates={at}/{certificates}")
    };
    let content: Vec<u8> = (0..16 << 20).map(|at: u32| (at / 4099 * 31 + at % 251) as u8).collect();
    fs::write(folder.join("in"), &content).unwrap();
    assert_eq!(other(folder, "nbdcopy", &["--flush", "in", &uri("")]), (true, String::new()));
    assert_eq!(other(folder, "nbdcopy", &[&uri(""), "out"]), (true, String::new()));
    assert!(fs::read(folder.join("out")).unwrap() == content);
    let (ok, said) = other(folder, "nbdinfo", &["--size", &format!("nbd://localhost:{tcp}")]);
    assert!(!ok && said.contains("requires TLS"), "{said}");
    assert!(!other(folder, "nbdinfo", &["--size", &uri("none")]).0, "no certificate");
    let disk = format!(
        "driver=nbd,server.type=inet,server.host=localhost,server.port={tcp},tls-creds=tls"
    );
    let arguments = [
        "--object",
        "tls-creds-x509,id=tls,endpoint=client,dir=.",
        "--image-opts",
        "-c",
        "write -P 7 1000 70000",
        "-c",
        "read -P 7 1000 70000",
        &disk,
    ];
    let (ok, said) = other(folder, "qemu-io", &arguments);
    assert!(ok && !said.contains("failed"), "{said}");
    assert!(exported.end().starts_with("ended; "));
    // What is missing is named.
    let refused = run_in("export null,size=1M --nbd unix:s --tls-certificates none", folder);
    assert!(refused.stderr.contains("none/server-cert.pem"), "{}", refused.stderr);
    fs::write(folder.join("none/keys.psk"), "me:00").unwrap();
    let refused = run_in("export null,size=1M --nbd unix:s --tls-certificates none", folder);
    assert!(refused.stderr.contains("use certificates"), "{}", refused.stderr);
    assert!(!folder.join("s").exists());
}

#[test]
fn libblkio_works_on_a_virtio_disk() {
    if lacks("qemu-io") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let disk = "driver=virtio-blk-vhost-user,path=s,cache.direct=on";
    let (_, said) = other(folder, "qemu-io", &["--image-opts", "-c", "flush", disk]);
    if said.contains("Unknown driver") || said.contains("Failed to open module") {
        // Debian 12 has no libblkio.
        eprintln!("skipped: this qemu-io has no virtio-blk-vhost-user");
        return;
    }
    let exported = Exported::start("ufs,size=64M --vhost-user s --name serial", folder);
    assert!(exported.ready.ends_with("at s"), "{}", exported.ready);
    let script = [
        "write -P 9 0 64k",
        "write -z 64k 64k",
        "write -P 5 512 1024",
        "discard 1M 1M",
        "flush",
        "read -P 9 0 512",
        "read -P 5 512 1024",
        "read -P 9 1536 64000",
        "read -P 0 64k 64k",
        "write -P 3 10M 8M",
        "read -P 3 10M 8M",
    ];
    let mut arguments = vec!["--image-opts"];
    script.iter().for_each(|line| arguments.extend(["-c", line]));
    arguments.push(disk);
    let (ok, said) = other(folder, "qemu-io", &arguments);
    assert!(ok && !said.contains("failed"), "{said}");
    let last = exported.end();
    assert!(last.starts_with("ended; ") && !last.contains("failed"), "{last}");
    assert!(!folder.join("s").exists(), "the socket is gone");
}

#[test]
fn what_is_in_the_way_is_told_and_stays() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let refused = |words: &str, status: i32, says: &str| {
        let ran = run_in(&format!("export {words}"), folder);
        assert_eq!(ran.status, status, "{words}: {}", ran.stderr);
        assert!(ran.stderr.contains(says), "{words}: {}", ran.stderr);
    };
    refused("null,size=1M", 2, "--nbd");
    refused("null,size=1M --nbd unix:s --vhost-user t", 2, "cannot be used with");
    refused("null,size=1M --nbd unix:s --ublk", 2, "cannot be used with");
    refused("null,size=1M --nbd unix:s --ublk-depth 4", 2, "cannot be used with");
    refused("null,size=1M --vhost-user s --ublk-recover", 2, "cannot be used with");
    if !Path::new("/dev/ublk-control").exists() {
        refused("ufs,image=new.img,size=16M --ublk", 1, "`modprobe ublk_drv`");
    }
    refused("null,size=1M --nbd disk.sock", 2, "is neither unix:PATH nor tcp:HOST:PORT");
    refused("nul --nbd unix:s", 2, "nul");
    refused("file:none --nbd unix:s", 1, "none");
    refused("null,size=1M --nbd tcp:127.0.0.1:none", 2, "`none` is no port");
    refused("null,size=1M --nbd tcp:127.0.0.1:65536", 2, "`65536` is no port");
    refused("null,size=1M --nbd tcp:no.such.host.invalid:1", 1, "no.such.host.invalid:1");
    fs::write(folder.join("file"), "mine").unwrap();
    refused("null,size=1M --nbd unix:file", 1, "file: exists and is not a socket");
    assert_eq!(fs::read(folder.join("file")).unwrap(), b"mine");
    let exported = Exported::start("null,size=1M --nbd unix:s", folder);
    refused("null,size=1M --nbd unix:s", 1, "s: another process serves this socket");
    refused("ufs,image=new.img,size=16M --nbd unix:t --nbd unix:s", 1, "another process");
    assert_eq!(exported.end(), "ended; 0 reads (0 B), 0 writes (0 B), 0 flushes");
    let left: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["file"], "no socket and no image");
}
