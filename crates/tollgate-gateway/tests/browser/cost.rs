//! The processor time that the page costs, in software rendering.

use crate::browser::Browser;
use crate::process::Process;
use std::time::{Duration, Instant};

/// The part of a core that the browser takes.
async fn load(browser: &Browser, over: Duration) -> f64 {
    let (began, before) = (Instant::now(), browser.cpu_time());
    tokio::time::sleep(over).await;
    (browser.cpu_time() - before).as_secs_f64() / began.elapsed().as_secs_f64()
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
    browser
        .run(
            "window.asked = 0; const ask = requestAnimationFrame; \
              window.requestAnimationFrame = then => { window.asked++; return ask(then); }; \
              window.frames_drawn = 0; const clear = CanvasRenderingContext2D.prototype.setTransform; \
              CanvasRenderingContext2D.prototype.setTransform = function (...all) { \
              if (this.canvas.id === 'rates' || this.canvas.id === 'track') window.frames_drawn++; \
              return clear.apply(this, all); };",
        )
        .await;
    let at = browser.run("return shown.at").await;
    browser.until_with("later samples", "return shown.at > arguments[0] + 3000", at).await;
    assert_eq!(browser.run("return [window.asked, window.frames_drawn]").await, serde_json::json!([0, 0]));
    let load = load(&browser, Duration::from_secs(8)).await;
    println!("a quiet gateway: {:.1} % of a core", load * 100.0);
    assert!(load < 0.05, "it takes {:.1} % of a core", load * 100.0);
    gateway.terminate();
    browser.close().await;
    assert!(gateway.ended().await);
}
