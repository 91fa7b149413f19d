//! Ctrl-C: status 130, and no partly written file remains.

use std::fs;
use std::io::Write;
use std::process::{Child, Stdio};

use flysch_tests::command::flysch;
use flysch_tests::wait::wait_until;
use rustix::process::{Pid, Signal, kill_process};

fn interrupt(child: &Child) {
    let pid = Pid::from_raw(child.id() as i32).expect("a child has a process id");
    kill_process(pid, Signal::INT).expect("our own child can be signalled");
}

#[test]
fn an_interrupted_copy_leaves_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("out"), b"old").unwrap();
    let mut child = flysch()
        .args(["copy", "-", "out"])
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&vec![7; 16 << 20]).unwrap();
    let files = || fs::read_dir(folder).unwrap().count();
    wait_until("the copy has begun a file of its own", || files() == 2);
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    drop(stdin);
    assert_eq!((files(), fs::read(folder.join("out")).unwrap()), (1, b"old".to_vec()));
}

#[test]
fn an_interrupted_benchmark_leaves_no_image_and_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // One pass over the first target finishes at once; its trace waits for the second target.
    let words = "bench --on null,size=64k --on ufs,clock=real,image=new.img,size=8G --rw=randread \
                 --bs=4k --trace tr --csv a.csv --report r/s";
    let mut child = flysch()
        .args(words.split_whitespace())
        .current_dir(folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("the image was made", || folder.join("new.img").exists());
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(fs::read_dir(folder).unwrap().count(), 0);
}
