//! The processor time that the page costs, in software rendering.

use crate::browser::Browser;
use crate::process::Process;
use serde_json::json;
use std::time::{Duration, Instant};

/// The part of a core that the browser takes.
async fn load(browser: &Browser, over: Duration) -> f64 {
    let (began, before) = (Instant::now(), browser.cpu_time());
    tokio::time::sleep(over).await;
    (browser.cpu_time() - before).as_secs_f64() / began.elapsed().as_secs_f64()
}

/// Counts from now on the frames that the page asks for, and how often each picture is drawn.
const COUNT: &str = "window.asked = 0; const ask = requestAnimationFrame; \
    window.requestAnimationFrame = then => { window.asked++; return ask(then); }; \
    window.frames_drawn = { rates: 0, track: 0, rovers: 0 }; \
    const clear = CanvasRenderingContext2D.prototype.setTransform; \
    CanvasRenderingContext2D.prototype.setTransform = function (...all) { \
    if (this.canvas.id in window.frames_drawn) window.frames_drawn[this.canvas.id]++; \
    return clear.apply(this, all); }; window.began = shown.at;";

/// The bound is one on the drawings, because a slow machine takes longer for each. The load is printed; docs/BENCHMARKS.md
/// has what it was.
#[tokio::test]
async fn a_busy_gateway_is_drawn_once_for_each_sample_that_is_shown() {
    let gateway = Process::demo().await;
    let browser = Browser::start().await;
    browser.open(&gateway.page).await;
    browser
        .until("it shows requests", "return shown !== null && +document.getElementById('refused').textContent > 0")
        .await;
    browser.run(COUNT).await;
    let load = load(&browser, Duration::from_secs(20)).await;
    println!("the page of the demo: {:.1} % of a core", load * 100.0);
    let seen = browser.run("return [window.asked, window.frames_drawn, (shown.at - window.began) / 1000]").await;
    assert_eq!(seen[0], 0, "no frame is asked for");
    // A sample is shown once a second.
    let most = seen[2].as_f64().unwrap() + 2.0;
    for id in ["rates", "track", "rovers"] {
        let drawn = seen[1][id].as_f64().unwrap();
        assert!(1.0 <= drawn && drawn <= most, "{id} was drawn {drawn} times in {most} s");
    }
    browser.close().await;
}

#[tokio::test]
async fn a_quiet_gateway_costs_a_browser_next_to_nothing() {
    let file = "listen = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\nupstream = \"http://127.0.0.1:1\"\nquota = \"9/s\"\n\
                in_flight = 9\nmax_wait = \"1s\"\n[keys]\nheader = \"x-api-key\"\nquota = \"9/s\"\n";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.toml");
    std::fs::write(&path, file).unwrap();
    let gateway = Process::with(&["--config", path.to_str().unwrap()]).await;
    let browser = Browser::start().await;
    browser.open(&gateway.page).await;
    browser.until("it shows numbers", "return shown !== null && shownPoints.length > 8").await;
    // No picture is drawn twice, and no frame is asked for.
    browser.run(COUNT).await;
    let at = browser.run("return shown.at").await;
    browser.until_with("later samples", "return shown.at > arguments[0] + 3000", at).await;
    let drawn = browser.run("return [window.asked, window.frames_drawn.rates, window.frames_drawn.track]").await;
    assert_eq!(drawn, json!([0, 0, 0]));
    let load = load(&browser, Duration::from_secs(8)).await;
    println!("a quiet gateway: {:.1} % of a core", load * 100.0);
    assert!(load < 0.05, "it takes {:.1} % of a core", load * 100.0);
    gateway.terminate();
    browser.close().await;
    assert!(gateway.ended().await);
}
