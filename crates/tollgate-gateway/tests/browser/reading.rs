//! Whether everybody can read and use the page: contrast, keyboard, narrow windows, less motion.

use crate::browser::Browser;
use crate::process::Process;
use serde_json::{Value, json};

/// The texts with a contrast below 4.5:1 (WCAG 2.2, 1.4.3) to the background behind them, by the computed styles. The
/// drawings have texts in `soft` on a card, and in the color of a card on those of the rovers.
const FAINT: &str = "
    const parse = color => { const [r, g, b, a = 1] = color.match(/[\\d.]+/g).map(Number); return { r, g, b, a }; };
    const over = (top, below) => ({ r: top.r * top.a + below.r * (1 - top.a), g: top.g * top.a + below.g * (1 - top.a),
        b: top.b * top.a + below.b * (1 - top.a), a: 1 });
    const behind = node => {
        const own = node ? parse(getComputedStyle(node).backgroundColor) : { r: 255, g: 255, b: 255, a: 1 };
        return own.a === 1 ? own : over(own, behind(node.parentElement));
    };
    const light = ({ r, g, b }) => {
        const linear = value => value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4;
        return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
    };
    const ratio = (one, other) => {
        const [dark, bright] = [light(one), light(other)].sort((a, b) => a - b);
        return (bright + 0.05) / (dark + 0.05);
    };
    const faint = [], seen = new Set();
    const check = (what, front, back) => { seen.add(what); const r = ratio(over(front, back), back);
        if (r < 4.5) faint.push(`${what}: ${r.toFixed(2)}`); };
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const node = texts.currentNode.parentElement;
        if (!texts.currentNode.textContent.trim() || !node.getClientRects().length) continue;
        check(`${node.localName}#${node.id}.${node.className} in ${node.parentElement.className}`,
            parse(getComputedStyle(node).color), behind(node));
    }
    const card = getComputedStyle(document.querySelector('section')).backgroundColor;
    const probe = document.body.appendChild(document.createElement('p'));
    for (const name of ['soft', 'head', 'tail', 'ceiling']) {
        probe.style.color = `var(--${name})`;
        check(`drawn ${name}`, parse(getComputedStyle(probe).color), parse(card));
    }
    probe.remove();
    return { faint, count: seen.size };";

#[tokio::test]
async fn all_texts_have_enough_contrast_in_each_state_and_both_schemes() {
    let gateway = Process::demo().await;
    let browser = Browser::start().await;
    browser.open(&gateway.page).await;
    browser.until("refusals", "return shown !== null && shown.refusals.count > 0 && shown.busiest.length > 3").await;
    browser
        .run(
            "document.querySelector('details').open = true; document.getElementById('problem').hidden = false; \
                 document.getElementById('problem').textContent = 'a problem'",
        )
        .await;
    for scheme in ["light", "dark"] {
        browser.resize(1180, 1060, scheme, false).await;
        for state in ["live", "paused"] {
            let is_so = "return document.getElementById('state').textContent === arguments[0]";
            if browser.run_with(is_so, state.into()).await != Value::Bool(true) {
                browser.run("document.getElementById('pause').click()").await;
            }
            browser.until_with("the state", is_so, state.into()).await;
            let found = browser.run(FAINT).await;
            assert_eq!(found["faint"], json!([]), "{scheme}, {state}");
            assert!(found["count"].as_u64().unwrap() > 40, "{found}");
        }
    }
    browser.run("document.getElementById('pause').click()").await;
    gateway.signal("KILL");
    browser.until("it is lost", "return document.body.classList.contains('old')").await;
    for scheme in ["light", "dark"] {
        browser.resize(1180, 1060, scheme, false).await;
        assert_eq!(browser.run(FAINT).await["faint"], json!([]), "{scheme}, lost");
    }
    browser.close().await;
}

#[tokio::test]
async fn the_page_can_be_used_by_keyboard_in_a_narrow_window_and_with_less_motion() {
    let gateway = Process::demo().await;
    let browser = Browser::start().await;
    browser.open(&gateway.page).await;
    let is_live = "return document.getElementById('state').textContent === 'live' && shownPoints.length > 4";
    browser.until("live", is_live).await;

    // Tab leads to the button and to the explanation, and the focus is visible.
    let focus = "const node = document.activeElement; return [node.id || node.localName, \
                 parseFloat(getComputedStyle(node).outlineWidth) >= 2]";
    browser.press("Tab").await;
    assert_eq!(browser.run(focus).await, json!(["pause", true]));
    browser.press("Enter").await;
    let paused = "return document.getElementById('state').textContent === 'paused' \
                  && document.getElementById('pause').ariaPressed === 'true'";
    browser.until("paused", paused).await;
    let at = browser.run("return shown.at").await;
    browser.until_with("a newer sample", "return newest.at > arguments[0] + 1500", at.clone()).await;
    assert_eq!(browser.run("return shown.at").await, at, "the numbers stand still");
    browser.press(" ").await;
    browser.until("live again", is_live).await;
    browser.press("Tab").await;
    assert_eq!(browser.run(focus).await, json!(["summary", true]));
    browser.press("Enter").await;
    assert_eq!(browser.run("return document.querySelector('details').open").await, true);

    for width in [320, 390, 700, 1180] {
        browser.resize(width, 700, "light", width < 400).await;
        let fits = "const wide = [...document.querySelectorAll('main *, header *')].filter(node => \
                    node.getClientRects().length && node.getBoundingClientRect().right > arguments[0] + 0.5); \
                    return [document.documentElement.scrollWidth <= arguments[0], wide.map(node => node.outerHTML.slice(0, 90))]";
        assert_eq!(browser.run_with(fits, width.into()).await, json!([true, []]), "{width} px");
    }

    // By default each fourth sample is shown. With less motion fewer are, and nothing is animated.
    browser.set_reduced_motion(true).await;
    browser.until("fewer samples are shown", "return sinceShown > 6").await;
    let animated = "return document.getAnimations().length === 0 && [...document.querySelectorAll('*')].every(node => \
                    getComputedStyle(node).transitionDuration === '0s')";
    assert_eq!(browser.run(animated).await, true);
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    browser.close().await;
}
