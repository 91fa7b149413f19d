//! Names of worlds.

use super::*;

#[test]
fn worlds_are_read_as_they_are_written() {
    for text in [
        "ubifs/die4/bad0/new/unstable/tool/plain/1",
        "jffs2-full/nor-parallel/bad0/new/fading/hasty/plain/20",
    ] {
        assert_eq!(text.parse::<World>().unwrap().to_string(), text);
    }
    for (text, says) in [
        ("ubifs/die4", "looks like"),
        ("ubifs/die5/bad0/new/unstable/tool/plain/1", "there is no chip 'die5'"),
        ("none/die4/bad0/new/unstable/tool/plain/1", "there is no workload 'none'"),
    ] {
        let problem = text.parse::<World>().unwrap_err();
        assert!(problem.contains(says), "{problem}");
    }
}

#[test]
fn the_suggested_world_is_one() {
    let problem = "ubifs/die4".parse::<World>().unwrap_err();
    let suggested = problem.split_whitespace().last().unwrap();
    assert_eq!(suggested.parse::<World>().unwrap().to_string(), suggested);
}
