//! Whether the page says that its numbers are not of now.

use crate::browser::Browser;
use crate::process::Process;

const STATE: &str = "return document.getElementById('state').textContent === arguments[0]";

#[tokio::test]
async fn a_gateway_that_hangs_or_is_killed_does_not_look_alive() {
    let gateway = Process::demo().await;
    let browser = Browser::start().await;
    browser.open(&gateway.page).await;
    browser.until_with("live", STATE, "live".into()).await;
    browser.until("it shows numbers", "return shown !== null && shownPoints.length > 4").await;
    // The page looks twice a second.
    assert_eq!(browser.run("return OLD + 500 < 3000").await, true);
    let role = "const { role, ariaLive } = document.getElementById('state'); return role + ' ' + ariaLive";
    assert_eq!(browser.run(role).await, "status polite");

    gateway.signal("STOP");
    browser.until_with("it says so", STATE, "no data".into()).await;
    println!("no data after {} ms", browser.run("return Math.round(performance.now() - arrived)").await);
    let grey = "const colors = [...document.querySelectorAll('.number, #refusals .count, #totals dd, td')] \
                .map(node => getComputedStyle(node).color); const probe = document.createElement('p'); \
                probe.style.color = 'var(--soft)'; document.body.append(probe); \
                const soft = getComputedStyle(probe).color; probe.remove(); \
                return colors.length > 10 && colors.every(color => color === soft)";
    assert_eq!(browser.run(grey).await, true);
    assert_eq!(browser.run("return document.title").await, "No data \u{b7} tollgate gateway");
    let age = "return /^numbers of \\d+ s ago$/.test(document.getElementById('age').textContent)";
    browser.until("how old they are", age).await;

    gateway.signal("CONT");
    browser.until_with("it is back", STATE, "live".into()).await;
    assert_eq!(browser.run("return document.title").await, "tollgate gateway");
    assert_eq!(browser.run(grey).await, false);

    gateway.signal("KILL");
    browser.until_with("it is gone", STATE, "connection lost".into()).await;
    assert_eq!(browser.run("return document.title").await, "Connection lost \u{b7} tollgate gateway");
    assert_eq!(browser.run(grey).await, true);
    browser.close().await;
}
