use super::*;

fn chart(kind: Kind, scale: Scale, values: &[Option<f64>]) -> Chart {
    let series = Series {
        name: "a <b>".into(),
        class: "s0".into(),
        values: values.to_vec(),
        hints: values.iter().map(|v| format!("{v:?} & more")).collect(),
    };
    Chart {
        id: "c".into(),
        title: "t".into(),
        y_title: "MiB/s".into(),
        scale,
        kind,
        x: (0..values.len() as u32).map(|n| 1 << n).collect(),
        series: vec![series.clone(), series],
    }
}

/// Every number in the drawing's coordinates.
fn places(svg: &str) -> Vec<f64> {
    let parts = svg.split(" d=\"").skip(1).filter_map(|rest| rest.split('"').next());
    parts.flat_map(|path| path.split(['M', 'L', 'Z', ' '])).flat_map(str::parse).collect()
}

#[test]
fn every_point_lies_in_the_plot_whatever_the_values() {
    let values = [Some(0.0), None, Some(1e-9), Some(7.0), Some(123_456_789.0)];
    for scale in [Scale::Linear, Scale::Microseconds] {
        for values in [&values[..], &values[..1], &[Some(0.0)], &[]] {
            let svg = chart(Kind::Lines, scale, values).svg();
            for place in places(&svg) {
                assert!((0.0..=WIDTH).contains(&place), "{scale:?} {values:?}: {svg}");
            }
        }
    }
}

#[test]
fn areas_stand_on_each_other() {
    let chart = chart(Kind::Areas, Scale::Linear, &[Some(1.0), Some(2.0)]);
    assert_eq!(chart.stacked(), [[1.0, 2.0], [2.0, 4.0]]);
    assert_eq!(chart.svg().matches("class=\"area s0\"").count(), 2);
}

#[test]
fn missing_values_break_the_line() {
    let values = [Some(1.0), None, Some(2.0), Some(3.0)];
    let svg = chart(Kind::Lines, Scale::Linear, &values).svg();
    let path = svg.split(" d=\"").nth(1).unwrap().split('"').next().unwrap();
    assert_eq!((path.matches('M').count(), path.matches('L').count()), (2, 1));
}

#[test]
fn a_single_depth_has_width() {
    for kind in [Kind::Lines, Kind::Areas] {
        let svg = chart(kind, Scale::Linear, &[Some(1.0)]).svg();
        let path = svg.split(" d=\"").nth(1).unwrap().split('"').next().unwrap();
        let x: Vec<f64> =
            path.split(['M', 'L']).filter_map(|c| c.split(' ').next()?.parse().ok()).collect();
        let width =
            x.iter().fold(f64::MIN, |a, b| a.max(*b)) - x.iter().fold(f64::MAX, |a, b| a.min(*b));
        assert!(width > 100.0, "{kind:?}: {path}");
    }
}

#[test]
fn text_is_escaped() {
    let svg = chart(Kind::Lines, Scale::Linear, &[Some(1.0)]).svg();
    assert!(svg.contains("Some(1.0) &amp; more") && !svg.contains("& more"));
    assert_eq!(escape("<a href=\"x\">\u{7}"), "&lt;a href=&quot;x&quot;&gt;\u{fffd}");
}

#[test]
fn ticks_are_round_and_hold_the_values() {
    assert_eq!(linear_ticks(1417.0), [0.0, 250.0, 500.0, 750.0, 1000.0, 1250.0, 1500.0]);
    assert_eq!(linear_ticks(100.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
    assert_eq!(linear_ticks(0.0).last(), Some(&1.0));
    assert_eq!(decades(30.0, 9000.0), [10.0, 100.0, 1000.0, 10000.0]);
    assert_eq!(decades(30.0, 150.0), [20.0, 50.0, 100.0, 200.0]);
    assert_eq!(decades(10.0, 10.0), [10.0, 20.0]);
    for most in [0.001, 0.3, 1.0, 6.1, 99.0, 1e12] {
        let ticks = linear_ticks(most);
        assert!((2..=8).contains(&ticks.len()), "{most}: {ticks:?}");
        assert!(*ticks.last().unwrap() >= most * 0.999, "{most}: {ticks:?}");
    }
}

#[test]
fn labels_are_short() {
    for (value, label) in
        [(0.0, "0"), (0.25, "0.25"), (2.5, "2.5"), (1500.0, "1500"), (25000.0, "25\u{202f}000")]
    {
        assert_eq!(number(value), label);
    }
    for (us, label) in [(0.2, "200 ns"), (50.0, "50 µs"), (2e3, "2 ms"), (1e7, "10 s")] {
        assert_eq!(duration(us), label);
    }
}
