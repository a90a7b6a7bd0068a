//! The gateway's page in a real browser, with the traffic of the demo.
//!
//! `GATEWAY` names the gateway's binary, `PICTURES` the folder for the screenshots.

mod browser;
mod cost;
mod freshness;
mod process;
mod reading;

use browser::Browser;
use process::Process;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

const SIZES: [(&str, u32, u32, &str); 3] =
    [("light", 1180, 1060, "light"), ("dark", 1180, 1060, "dark"), ("phone", 390, 844, "light")];

fn pictures() -> PathBuf {
    std::env::var_os("PICTURES").map_or_else(|| PathBuf::from("target"), PathBuf::from)
}

/// The series of `/metrics`, by name and labels.
async fn metrics(gateway: &Process) -> BTreeMap<String, f64> {
    let text = reqwest::get(format!("{}metrics", gateway.page)).await.unwrap().text().await.unwrap();
    let series = |line: &str| line.rsplit_once(' ').map(|(name, value)| (name.to_owned(), value.parse().unwrap()));
    text.lines().filter(|line| !line.starts_with('#')).filter_map(series).collect()
}

/// The elements of the page, and the series of `/metrics` with the same values.
const SAME: [(&str, &str); 8] = [
    ("total-came", "gateway_received_total"),
    ("total-answered", "gateway_requests_total{outcome=\"answered\"}"),
    ("total-refused_each", "gateway_requests_total{outcome=\"refused_each\"}"),
    ("total-refused_all", "gateway_requests_total{outcome=\"refused_all\"}"),
    ("total-unknown", "gateway_requests_total{outcome=\"unknown\"}"),
    ("total-failed", "gateway_requests_total{outcome=\"failed\"}"),
    ("total-left", "gateway_requests_total{outcome=\"left\"}"),
    // There are no refunds here, so the ceiling is the cap plus the released tokens.
    ("granted", "rate_limit_acquire_total{key=\"all\",result=\"allow\"}"),
];

/// The values that the page shows at one moment.
async fn said(browser: &Browser) -> BTreeMap<String, f64> {
    let script = "const seen = {}; for (const dd of document.querySelectorAll('#totals dd')) seen[dd.id] = dd.textContent; \
                  seen.granted = String(shown.all.granted); seen.at = String(shown.at); return seen;";
    let seen = browser.run(script).await;
    let number = |value: &Value| value.as_str().unwrap().replace(',', "").parse().unwrap();
    seen.as_object().unwrap().iter().map(|(name, value)| (name.clone(), number(value))).collect()
}

#[tokio::test]
async fn the_page_shows_what_happens_and_what_the_metrics_say() {
    let gateway = Process::demo().await;
    let browser = Browser::start().await;
    browser.open(&gateway.page).await;
    let is_busy = "return document.getElementById('state').textContent === 'live' \
                   && +document.getElementById('refused').textContent > 0 \
                   && +document.getElementById('passed').textContent > 0";
    browser.until("live, with a refusal", is_busy).await;

    // The numbers and the drawings change.
    let look = "return ['tail', 'head', 'ceiling', 'total-answered'].map(id => document.getElementById(id).textContent) \
                .concat(['track', 'rovers', 'rates'].map(id => document.getElementById(id).toDataURL()))";
    let before = browser.run(look).await;
    assert!(before.as_array().unwrap().iter().all(|seen| seen.as_str().is_some_and(|seen| !seen.is_empty())));
    for index in 0..7 {
        let moved = format!("{}[{index}] !== arguments[0]", look.replace("return ", "return (").to_owned() + ")");
        browser.until_with("it changed", &moved, before[index].clone()).await;
    }
    let blank = "const node = document.createElement('canvas'), like = document.getElementById(arguments[0]); \
                 node.width = like.width; node.height = like.height; return node.toDataURL() !== like.toDataURL()";
    for id in ["track", "rovers", "rates"] {
        assert_eq!(browser.run_with(blank, id.into()).await, Value::Bool(true), "{id} is blank");
    }

    // All values only grow. So a value that the page showed between two scrapes lies between theirs.
    for _ in 0..3 {
        let first = metrics(&gateway).await;
        let at = said(&browser).await["at"];
        browser.until_with("newer samples", "return shown.at > arguments[0] + 500", at.into()).await;
        let page = said(&browser).await;
        let second = metrics(&gateway).await;
        for (id, name) in SAME {
            let (least, seen, most) = (first[name], page[id], second[name]);
            assert!(least <= seen && seen <= most, "{id} is {seen}, and {name} {least} before and {most} after");
        }
        assert!(page["total-answered"] > 0.0 && page["total-refused_each"] > 0.0 && page["total-failed"] == 0.0);
    }
    // What is drawn is what is printed: one sample.
    let same = "return JSON.parse(drawn.rovers)[0] === shown.at && shownPoints.at(-1).at === shown.at \
                && document.getElementById('tail').textContent === whole.format(shown.all.tail) \
                && document.getElementById('refused').textContent === short(barsOf(shownPoints).at(-1).refused)";
    assert_eq!(browser.run(same).await, true);
    // What is refused, for which client and why, and which setting to change.
    let refused = browser.run("return document.getElementById('refused-saying').textContent").await;
    assert!(refused.as_str().unwrap().contains("from scraper"), "{refused}");
    let first = browser.run("return document.querySelector('#refusals li').textContent").await;
    for part in ["scraper", "asks for more than its quota", "keys.quota (20/s, burst 20)", "max_wait"] {
        assert!(first.as_str().unwrap().contains(part), "{first}");
    }
    // The upstream of the demo takes 20 ms at least.
    let upstream = "const { upstream, latency } = shown.recent; return upstream.state === 'up' && latency.p50 >= 15 \
                    && latency.p99 >= latency.p50 && shown.recent.wait.p99 >= 0 \
                    && document.getElementById('upstream-state').textContent === '\u{2713} up' \
                    && document.getElementById('latency-p50').textContent === millis(latency.p50)";
    browser.until("the upstream is up", upstream).await;
    // The values of the tiles are possible under the demo's limits.
    let tiles = browser.run("return ['waiting', 'flight'].map(id => +document.getElementById(id).textContent)").await;
    let [line, flight] = [0, 1].map(|index| tiles[index].as_f64().unwrap());
    assert!((0.0..=2_000.0).contains(&line) && (0.0..=60.0).contains(&flight), "{tiles}");

    // The busiest client of the last seconds is listed by name, and its name is shown as text.
    gateway.ask("<img src=x onerror=document.title=1>".repeat(3).as_str(), 30).await;
    let keys = "return document.getElementById('busiest').textContent";
    browser.until("the strange key", &format!("{keys}.includes('<img\u{2026}')",)).await;
    let names = browser.run(keys).await;
    for name in ["scraper", "storefront", "mobile-app"] {
        assert!(names.as_str().unwrap().contains(name), "{names}");
    }
    let harm = browser.run("return [document.images.length, document.title]").await;
    assert_eq!(harm, serde_json::json!([0, "tollgate gateway"]));

    for (name, width, height, scheme) in SIZES {
        browser.resize(width, height, scheme, name == "phone").await;
        // Repaints in these colors and this width.
        let painted =
            "return new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))";
        browser.until("repainted", painted).await;
        let page = "return [document.documentElement.scrollWidth, getComputedStyle(document.body).backgroundColor]";
        let page = browser.run(page).await;
        assert!(page[0].as_u64().unwrap() <= u64::from(width), "{name}: it is {page} wide");
        let dark = page[1].as_str().unwrap().starts_with("rgb(1");
        assert_eq!(dark, scheme == "dark", "{name}: {page}");
        if name == "phone" {
            let small = "return [...document.querySelectorAll('p, dd, dt, td, th, span, small')].filter(node => \
                         node.textContent.trim() && node.offsetParent \
                         && parseFloat(getComputedStyle(node).fontSize) < 12).length";
            assert_eq!(browser.run(small).await, 0, "no text is too small to read");
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        browser.picture(&pictures().join(format!("gateway-{name}.png"))).await;
    }

    let asked = browser.requests().await;
    let is_ours = |url: &String| url.starts_with(&gateway.page) || url.starts_with("data:");
    assert!(asked.len() >= 2 && asked.iter().all(is_ours), "{asked:?}");
    assert_eq!(browser.complaints().await, Vec::<String>::new());

    // The page shows the shutdown too.
    gateway.terminate();
    browser.until("the end", "return document.getElementById('state').textContent === 'connection lost'").await;
    browser.close().await;
    assert!(gateway.ended().await, "the checks of the demo failed");
}

#[tokio::test]
async fn a_file_that_was_refused_is_shown_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    let right = "listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nupstream = \"http://127.0.0.1:1\"\nquota = \"9/s\"\n\
                 max_wait = \"1s\"\n[keys]\nheader = \"x-api-key\"\nquota = \"9/s\"\n";
    std::fs::write(&file, right).unwrap();
    let gateway = Process::with(&["--config", file.to_str().unwrap()]).await;
    let browser = Browser::start().await;
    browser.open(&gateway.page).await;
    browser.until("live", "return document.getElementById('state').textContent === 'live'").await;
    assert_eq!(browser.run("return document.getElementById('problem').hidden").await, true);
    std::fs::write(&file, right.replace("1s", "soon")).unwrap();
    let shown = "return document.getElementById('problem').textContent.includes('line 5: `soon` is not a duration')";
    browser.until("told", shown).await;
    std::fs::write(&file, right.replace("9/s", "8/s")).unwrap();
    browser.until("the problem is hidden", "return document.getElementById('problem').hidden").await;
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    browser.close().await;
    gateway.terminate();
    assert!(gateway.ended().await);
}
