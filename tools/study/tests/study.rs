//! The study in its short form: what does not depend on this machine's speed.

use flysch_study::{page, study, text};

#[test]
fn the_short_study_says_what_the_protocols_make_of_it() {
    let mut steps = 0;
    let study = study::run(("test".into(), 0), true, |done| {
        assert_eq!(done, steps);
        steps += 1;
    });
    let study = study.expect("everything can be measured");
    assert_eq!(steps, study::STEPS);
    let text = text::render(&study);
    println!("{text}");
    let answers = study.answers;
    assert_eq!(answers.micron_percent.round(), 16.0);
    assert!(answers.ours_percent.abs() < 1.0);
    // Both directions at once, and a queue: the clock is virtual, so no figure depends on this
    // machine.
    assert!(answers.mixed_ratio > 1.5 && answers.game_ratio > 1.5, "{answers:?}");
    // Every device takes less energy if it may sleep.
    for day in &study.days {
        let saved = day.saved_percent();
        assert!((20.0..100.0).contains(&saved), "{}: {saved} %", day.device);
        let parts: f64 = day.parts.iter().map(|part| part.asleep_joules).sum();
        assert!((parts / 86.4 - day.asleep_milliwatts).abs() < 0.01, "{}", day.device);
    }
    for row in &study.areas {
        assert!(row.iops > 0.0 && row.joules_per_gib > 0.0, "{row:?}");
        assert!(row.device_time.p50 <= row.device_time.p99, "{row:?}");
    }
    let page = page::render(&study, "flysch bench study --quick");
    for part in ["<h2>What it says</h2>", "id=\"equal\"", "id=\"day\"", "flysch bench --on ufs"] {
        assert!(page.contains(part), "{part}");
    }
    // A protocol that is behind has a bar without length, but its figure is shown.
    for column in &study.equal {
        for ahead in column.ahead_percent.iter().flatten() {
            let told = format!("class=\"value\">{ahead:+.1} %<");
            assert!(page.contains(&told), "{}: {told}", column.name);
        }
    }
}
