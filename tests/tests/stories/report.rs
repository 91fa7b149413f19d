//! The HTML report in a real browser: the charts are there, in light and in dark mode.
//!
//! Headless Chromium does the layout; a script added for the test records what it sees.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use flysch_tests::command::run_in;
use serde_json::Value;

/// Writes the positions of all charts, of their drawings and of their texts into the document.
const PROBE: &str = r#"<script>
function box(e) {
  const b = e.getBoundingClientRect();
  return { x: b.x, y: b.y, width: b.width, height: b.height };
}
addEventListener("load", () => {
  const charts = [...document.querySelectorAll("svg.chart")].map(svg => ({
    id: svg.id,
    box: box(svg),
    lines: [...svg.querySelectorAll(".line")].map(e => ({
      length: e.getTotalLength(), dash: getComputedStyle(e).strokeDasharray,
      colour: getComputedStyle(e).stroke, box: box(e) })),
    areas: [...svg.querySelectorAll(".area")].map(e => ({
      colour: getComputedStyle(e).fill, box: box(e) })),
    texts: [...svg.querySelectorAll("text")].map(e => ({ text: e.textContent, box: box(e) })),
  }));
  const body = getComputedStyle(document.body);
  const result = {
    background: body.backgroundColor, text: body.color, charts,
    scroll_width: document.documentElement.scrollWidth, width: innerWidth,
    tables: [...document.querySelectorAll("table")].map(t => t.rows.length),
  };
  const out = document.createElement("pre");
  out.id = "probe";
  out.textContent = JSON.stringify(result);
  document.body.append(out);
});
</script></body>"#;

/// The browser, if there is one; otherwise prints what was skipped.
fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|f| f.join("chromium")).find(|f| f.is_file());
    if found.is_none() {
        let line = "skipped: chromium is not installed (apt install chromium)";
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{line}");
        eprintln!("{line}");
    }
    found
}

/// What the browser sees of the page.
fn look(browser: &Path, page: &Path, dark: bool, width: u32) -> Value {
    let scheme = if dark { 0 } else { 1 };
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"])
        .args(["--disable-dev-shm-usage", "--hide-scrollbars", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
        .arg(format!("--window-size={width},2000"))
        .arg(format!("file://{}", page.display()))
        .output()
        .expect("the browser runs");
    let document = String::from_utf8_lossy(&output.stdout);
    let probe = document.split("<pre id=\"probe\">").nth(1);
    let probe = probe.and_then(|rest| rest.split("</pre>").next());
    let probe = probe.unwrap_or_else(|| {
        panic!("the probe did not run: {}", String::from_utf8_lossy(&output.stderr))
    });
    serde_json::from_str(&probe.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
        .expect("the probe writes JSON")
}

/// A report of real runs on two targets, with the probe in it.
fn page(folder: &Path) -> PathBuf {
    let words = "bench --on ufs,clock=virtual --on ufs,clock=virtual,mcq=2 --report out";
    let ran = run_in(words, folder);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let page = fs::read_to_string(folder.join("out/index.html")).unwrap();
    assert!(!page.contains("http") && !page.contains("<script"), "the page is self-contained");
    let probed = folder.join("probed.html");
    fs::write(&probed, page.replace("</body>", PROBE)).unwrap();
    probed
}

fn number(value: &Value, name: &str) -> f64 {
    value[name].as_f64().unwrap_or_else(|| panic!("{name} of {value}"))
}

fn assert_inside(inner: &Value, outer: &Value, what: &str) {
    let slack = 1.0;
    let end = |v: &Value, at, size| number(v, at) + number(v, size);
    let inside = number(inner, "x") >= number(outer, "x") - slack
        && number(inner, "y") >= number(outer, "y") - slack
        && end(inner, "x", "width") <= end(outer, "x", "width") + slack
        && end(inner, "y", "height") <= end(outer, "y", "height") + slack;
    assert!(inside, "{what}: {inner} is not inside {outer}");
}

fn overlap(a: &Value, b: &Value) -> bool {
    let apart = |at, size| {
        number(a, at) + number(a, size) <= number(b, at)
            || number(b, at) + number(b, size) <= number(a, at)
    };
    !apart("x", "width") && !apart("y", "height")
}

fn check_chart(chart: &Value) {
    let id = chart["id"].as_str().unwrap();
    let frame = &chart["box"];
    assert!(number(frame, "width") > 200.0 && number(frame, "height") > 100.0, "{id}: {frame}");
    let (lines, areas) = (chart["lines"].as_array().unwrap(), chart["areas"].as_array().unwrap());
    let texts = chart["texts"].as_array().unwrap();
    assert!(texts.len() > 8, "{id} has axes with labels");
    for (n, text) in texts.iter().enumerate() {
        assert_inside(&text["box"], frame, &format!("{id}: {}", text["text"]));
        for other in &texts[..n] {
            assert!(!overlap(&text["box"], &other["box"]), "{id}: {text} lies on {other}");
        }
    }
    for shape in lines.iter().chain(areas) {
        assert_inside(&shape["box"], frame, id);
    }
    match id.split('-').next() {
        Some("throughput") => {
            let dashed = lines.iter().filter(|line| line["dash"] != "none").count();
            assert_eq!((lines.len() - dashed, dashed), (2, 2), "{id}: ours and published");
        }
        Some("latency") => assert_eq!(lines.len(), 3, "{id}: three percentiles"),
        Some("areas") => assert_eq!(areas.len(), 3, "{id}: submission, device, completion"),
        _ => assert_eq!(areas.len(), 2, "{id}: submission, completion"),
    }
    for line in lines {
        assert!(number(line, "length") > 100.0, "{id}: {line}");
    }
}

#[test]
fn charts_are_laid_out_in_light_and_dark_on_wide_and_small_screens() {
    let Some(browser) = browser() else { return };
    let folder = tempfile::tempdir().unwrap();
    let page = page(folder.path());
    let mut backgrounds = Vec::new();
    for (dark, width) in [(false, 1280), (true, 1280), (false, 500)] {
        let seen = look(&browser, &page, dark, width);
        let charts = seen["charts"].as_array().unwrap();
        // Four jobs: throughput once, the others for each of two targets.
        assert_eq!(charts.len(), 4 + 3 * 4 * 2);
        charts.iter().for_each(check_chart);
        let colours = |chart: &Value, shapes: &str| -> Vec<String> {
            let shapes = chart[shapes].as_array().unwrap().iter();
            shapes.map(|s| s["colour"].to_string()).collect()
        };
        for chart in charts {
            let mut all = colours(chart, "lines");
            all.extend(colours(chart, "areas"));
            let count = all.len();
            all.sort();
            all.dedup();
            assert_eq!(all.len(), count, "each series has a colour of its own");
        }
        // Heading and 2 x 6 rows each; and what the two devices took from their supply.
        assert_eq!(seen["tables"], serde_json::json!([13, 13, 13, 13, 3]));
        assert!(
            number(&seen, "scroll_width") <= number(&seen, "width") + 1.0,
            "no sideways scroll"
        );
        assert_ne!(seen["background"], seen["text"]);
        backgrounds.push(seen["background"].to_string());
    }
    assert_ne!(backgrounds[0], backgrounds[1], "dark is not light");
    assert_eq!(backgrounds[0], backgrounds[2]);
}
