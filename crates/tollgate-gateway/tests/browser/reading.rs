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

/// How much the grey of the pixels varies within what is filled on the picture of the rates, for one second with requests of
/// both kinds, if both have the same color.
const TEXTURES: &str = "
    for (const name of ['passed', 'refused']) document.documentElement.style.setProperty('--' + name, '#777777');
    const fill = CanvasRenderingContext2D.prototype.fillRect, filled = [];
    CanvasRenderingContext2D.prototype.fillRect = function (...place) {
        if (this.canvas.id === 'rates') filled.push(place);
        return fill.apply(this, place);
    };
    readColors();
    delete drawn.rates;
    drawRates([{ ago: 0, seconds: 30, passed: 100, refused: 100 }]);
    CanvasRenderingContext2D.prototype.fillRect = fill;
    const to = document.getElementById('rates').getContext('2d'), ratio = devicePixelRatio || 1;
    const spread = ([x, y, wide, high]) => {
        const inner = [x + 4, y + 4, wide - 8, high - 8].map(size => Math.round(size * ratio));
        const { data } = to.getImageData(...inner), greys = [];
        for (let at = 0; at < data.length; at += 4)
            greys.push((0.2126 * data[at] + 0.7152 * data[at + 1] + 0.0722 * data[at + 2]) * data[at + 3] / 255);
        const mean = greys.reduce((sum, grey) => sum + grey, 0) / greys.length;
        return Math.sqrt(greys.reduce((sum, grey) => sum + (grey - mean) ** 2, 0) / greys.length);
    };
    const swatch = name => getComputedStyle(document.querySelector('.swatch.' + name));
    const found = { spreads: filled.map(spread), swatches: ['passed', 'refused'].map(name => swatch(name).backgroundImage),
        borders: ['passed', 'refused'].map(name => swatch(name).borderTopStyle) };
    for (const name of ['passed', 'refused']) document.documentElement.style.removeProperty('--' + name);
    redraw();
    return found;";

#[tokio::test]
async fn granted_and_refused_requests_are_told_apart_without_color() {
    let gateway = Process::demo().await;
    let browser = Browser::start().await;
    browser.open(&gateway.page).await;
    browser.until("numbers", "return shown !== null && shownPoints.length > 8").await;
    for scheme in ["light", "dark"] {
        browser.resize(1180, 1060, scheme, false).await;
        let found = browser.run(TEXTURES).await;
        let spread = |index: usize| found["spreads"][index].as_f64().unwrap();
        assert_eq!(found["spreads"].as_array().unwrap().len(), 2, "{found}");
        // A plain area, and one with lines.
        assert!(spread(0) < 1.0 && spread(1) > 20.0, "{scheme}: {found}");
        assert_eq!(found["swatches"][0], "none", "{scheme}");
        assert!(found["swatches"][1].as_str().unwrap().starts_with("repeating-linear-gradient"), "{scheme}: {found}");
        assert_eq!(found["borders"], json!(["none", "solid"]), "{scheme}");
    }
    // Where they are numbers, words tell which is which.
    let words = "return document.getElementById('refused').parentElement.textContent.trim().endsWith('refused') \
                 && !document.getElementById('passed').parentElement.textContent.includes('refused')";
    assert_eq!(browser.run(words).await, true);
    browser.close().await;
}
