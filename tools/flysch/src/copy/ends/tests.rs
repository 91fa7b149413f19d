use super::*;

#[test]
fn targets_and_files_are_told_apart() {
    for text in ["ufs", "ufs,size=1G", "ufs@qemu", "ufs@qmu", "file:a/b", "null", "ufz,size=1G"] {
        assert!(looks_like_target(text), "{text}");
    }
    for text in ["disk.img", "./ufs", "a/b,c=d", "ufs.img", "nullary"] {
        assert!(!looks_like_target(text), "{text}");
    }
    assert!(matches!(End::parse("ufz,size=1G"), Err(Failure::Usage(_))));
    assert!(matches!(End::parse("-"), Ok(End::Stream)));
}
