//! The command line of `test`.

use super::*;

fn parse(words: &[&str]) -> Result<Options, Failure> {
    let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
    Options::parse(&words)
}

#[test]
fn steps_are_chosen_by_name() {
    let chosen = |words: &[&str]| {
        let Ok(options) = parse(words) else { panic!("{words:?} refused") };
        STEPS.iter().filter(|step| options.wants(step.name)).count()
    };
    assert_eq!(chosen(&[]), STEPS.len());
    assert_eq!(chosen(&["--only", "tidy", "--only", "layers"]), 2);
    assert_eq!(chosen(&["--skip", "qemu", "--no-install"]), STEPS.len() - 1);
}

#[test]
fn unknown_steps_and_options_are_wrong_use() {
    for words in [&["--only", "tidi"][..], &["--only"], &["--fast"]] {
        assert!(matches!(parse(words), Err(Failure::Usage(_))), "{words:?}");
    }
}
