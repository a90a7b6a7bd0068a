"use strict";
// The numbers of the page. Everything that is shown at a moment comes from one sample.

const SPAN = 60_000;        // The time of the charts.
const PER_SECOND = 4;       // How many samples the gateway sends.
const OLD = 2_000;          // After this time without a sample, the numbers are not of now.
const $ = id => document.getElementById(id);
const whole = new Intl.NumberFormat("en");
const setText = (node, text) => { if (node.textContent !== text) node.textContent = text; };
const set = (id, text) => setText($(id), text);
const still = matchMedia("(prefers-reduced-motion: reduce)");

/** The points of the charts, the newest sample, and the one that is shown. */
let points = [], shownPoints = [], newest = null, shown = null, sinceShown = 0, arrived = performance.now();
let isLost = false, isPaused = false;

// ---- Samples received.

function add(point) {
  const last = points.at(-1);
  if (last && point.at < last.at) points = [];        // The gateway was restarted.
  else if (last && point.at === last.at) return;
  const granted = point.head - point.level;
  const ceiling = point.ceiling === null ? null : point.ceiling - granted;
  const { at, passed, refused } = point;
  points.push({ at, passed, refused, granted, ahead: { tail: point.tail - granted, head: point.level, ceiling } });
  while (points.length > 2 && points[1].at < at - SPAN - 3000) points.shift();
}

function receive(sample) {
  arrived = performance.now();
  isLost = false;
  newest = sample;
  add(sample);
  sinceShown += 1;
  // One bar of the chart is a second: what is shown changes by whole seconds.
  const isDue = !shown || sinceShown >= PER_SECOND * (still.matches ? 3 : 1) || sample.status.is_ending !== shown.status.is_ending;
  if (isDue && !isPaused && !document.hidden) show();
  tellState();
}

const events = new EventSource("events");
events.addEventListener("history", event => { points = []; shown = null; JSON.parse(event.data).forEach(add); });
events.addEventListener("sample", event => receive(JSON.parse(event.data)));
events.addEventListener("error", () => { isLost = true; tellState(); });
setInterval(tellState, 500);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
addEventListener("resize", redraw);
document.addEventListener("visibilitychange", () => { if (newest && !document.hidden && !isPaused) show(); });
still.addEventListener("change", () => { if (newest && !isPaused) show(); });
$("pause").addEventListener("click", () => {
  isPaused = !isPaused;
  $("pause").setAttribute("aria-pressed", isPaused);
  if (!isPaused && newest) show();
  tellState();
});

// ---- Whether the numbers are of now.

const STATES = { waiting: "connecting", live: "live", ending: "ending", stale: "no data", lost: "connection lost", paused: "paused" };

function tellState() {
  const age = performance.now() - arrived;
  const state = isLost ? "lost" : age > OLD && newest ? "stale" : !newest ? "waiting" : isPaused ? "paused"
    : newest.status.is_ending ? "ending" : "live";
  const isOld = state === "lost" || state === "stale" || state === "paused";
  if ($("state").dataset.state !== state) {
    $("state").dataset.state = state;
    set("state", STATES[state]);
    document.body.classList.toggle("old", isOld);
    document.title = (isOld ? `${STATES[state][0].toUpperCase()}${STATES[state].slice(1)} · ` : "") + "tollgate gateway";
  }
  const seen = state === "paused" ? newest.at - shown.at : age;
  set("age", isOld && newest ? `numbers of ${duration(Math.round(seen / 1000) * 1000)} ago` : "");
}

// ---- Numbers and text.

function show() {
  shown = newest;
  sinceShown = 0;
  showStatus(shown);
  showRefusals(shown.refusals);
  showUpstream(shown);
  showWaits(shown);
  showKeys(shown);
  showTotals(shown);
  const { all } = shown;
  set("tail", whole.format(all.tail));
  set("head", whole.format(all.quotas[0].head));
  set("ceiling", shown.in_flight_cap === null ? "no cap" : whole.format(all.ceiling));
  const level = all.quotas[0].level;
  set("saying", all.waiting_tasks > 0
    ? `shut: ${whole.format(all.waiting_tasks)} ${all.waiting_tasks === 1 ? "request waits" : "requests wait"}`
    : level > 0 ? `open: ${whole.format(level)} of ${whole.format(shown.burst)} tokens saved up` : "open");
  shownPoints = points.slice();
  const last = barsOf(shownPoints).at(-1);
  set("passed", short(last?.passed ?? 0));
  set("refused", short(last?.refused ?? 0));
  draw();
}

/** Draws what is printed. */
function draw() {
  if (!shown) return;
  drawRates(barsOf(shownPoints));
  drawTrack(shownPoints.at(-1), shown);
  drawRovers(shownPoints);
}

const clock = seconds => new Date(seconds * 1000).toTimeString().slice(0, 8);

function showStatus({ at, status }) {
  const loaded = clock(status.loaded_at);
  set("since", `up ${uptime(at)} · limits of ${loaded}${status.loads > 1 ? `, loaded ${status.loads} times` : ""}`);
  $("problem").hidden = !status.problem;
  if (status.problem) set("problem", `The file of limits was refused, those of ${loaded} still apply. ${status.problem}`);
}

function showRefusals({ count, kinds, span, shown }) {
  const when = span >= 50_000 ? "in the last minute" : "since the start";
  const byClient = new Map();
  for (const { client, count } of shown) byClient.set(client, (byClient.get(client) ?? 0) + count);
  const [most, share] = [...byClient].sort((a, b) => b[1] - a[1])[0] ?? ["", 0];
  const percent = Math.floor(share / count * 100);
  set("refused-saying", count === 0 ? `No request was refused ${when}.`
    : `${whole.format(count)} ${count === 1 ? "request was" : "requests were"} refused ${when}, ${share === count ? "all" : `${percent} %`} of them from ${most}.`);
  const rows = shown.slice(0, 6), list = $("refusals");
  while (list.children.length > rows.length) list.lastChild.remove();
  while (list.children.length < rows.length) {
    const item = list.appendChild(document.createElement("li"));
    for (const name of ["count", "client", "change"]) item.appendChild(document.createElement("span")).className = name;
  }
  rows.forEach(({ client, why, change, count }, index) => {
    const [number, name, text] = list.children[index].children;
    setText(number, `${whole.format(count)}×`);
    setText(name, client);
    const key = `${why}\n${change}`;
    if (text.dataset.key === key) return;
    text.dataset.key = key;
    const reason = document.createElement("span");
    reason.className = "why";
    reason.textContent = `${why}. `;
    text.replaceChildren(reason, "To admit more: ", ...coded(change));
  });
  const more = kinds - rows.length;
  $("refusals-more").hidden = more <= 0;
  set("refusals-more", `and ${whole.format(more)} more, by client and reason`);
}

/** Text in which settings are in backquotes. Set as text, never as markup: names come from clients. */
function coded(text) {
  return text.split("`").map((part, index) => {
    if (index % 2 === 0) return part;
    const code = document.createElement("code");
    code.textContent = part;
    return code;
  });
}

const UPSTREAM = { unknown: "○ not called yet", up: "✓ up", failing: "! failing", down: "✕ down", idle: "○ idle" };
const FAULTS = { connect: "cannot connect", timeout: "no response in time", broken: "connection broken off", malformed: "malformed response" };

function showUpstream({ upstream: address, recent }) {
  const { upstream, latency, span } = recent, seconds = Math.round(span / 1000);
  $("upstream-state").dataset.state = upstream.state;
  set("upstream-state", UPSTREAM[upstream.state]);
  const isFailing = upstream.state === "down" || upstream.state === "failing";
  const last = upstream.answered_ago === null ? "no response yet" : `last response ${duration(upstream.answered_ago)} ago`;
  set("upstream-under", isFailing ? `${address}: ${FAULTS[upstream.fault]}, ${last}` : address);
  const classes = upstream.classes.map((count, index) => [`${index + 1}xx`, count]).filter(([, count]) => count > 0);
  if (upstream.failed > 0) classes.push(["no response", upstream.failed]);
  set("upstream-classes", classes.length ? `${classes.map(([name, count]) => `${name} ${whole.format(count)}`).join(", ")} in ${seconds} s` : `no response in ${seconds} s`);
  showPercentiles("latency", latency, seconds, "responses");
}

function showWaits({ recent, all, each, in_flight_cap }) {
  showPercentiles("wait", recent.wait, Math.round(recent.span / 1000), "admitted");
  set("waiting", whole.format(all.waiting_tasks + each.waiting_tasks));
  set("waiting-under", `${whole.format(each.waiting_tasks)} for their key, ${whole.format(all.waiting_tasks)} for the limit of all`);
  set("flight", whole.format(all.in_flight));
  set("flight-cap", in_flight_cap === null ? "tokens" : `of ${whole.format(in_flight_cap)} tokens`);
  $("flight-meter").style.width = in_flight_cap === null ? "0" : part(all.in_flight, in_flight_cap);
}

function showPercentiles(id, { p50, p99, count }, seconds, what) {
  set(`${id}-p50`, p50 === null ? "–" : millis(p50));
  set(`${id}-p99`, p99 === null ? "–" : millis(p99));
  set(`${id}-under`, `median of ${whole.format(count)} ${what} in ${seconds} s`);
}

function showKeys(now) {
  set("keys-under", `last 4 s; ${whole.format(now.each.keys)} in memory, ${whole.format(now.each.keys_waiting)} with requests that wait`);
  const rows = now.busiest.slice(0, 8);
  const body = $("busiest");
  while (body.rows.length > rows.length) body.lastChild.remove();
  while (body.rows.length < rows.length) {
    const row = body.insertRow();
    for (const name of ["client", "bucket", "grants", "refusals", "quota"]) row.insertCell().className = name;
    row.cells[1].innerHTML = '<div class="row"><div class="meter"><b></b></div><span></span></div>';
  }
  rows.forEach((place, index) => {
    const cells = body.rows[index].cells, owes = place.deficiency > 0;
    setText(cells[0], place.client);
    cells[0].title = place.client;
    const meter = cells[1].querySelector("b");
    meter.style.width = owes ? part(place.deficiency, Math.max(place.burst, place.deficiency)) : part(place.available, place.burst);
    meter.classList.toggle("owes", owes);
    setText(cells[1].querySelector("span"), owes ? `lacks ${whole.format(place.deficiency)}` : `${whole.format(place.available)} left`);
    setText(cells[2], short(place.granted));
    setText(cells[3], short(place.refused));
    cells[3].classList.toggle("some", place.refused > 0);
    setText(cells[4], place.quota);
  });
}

const TOTALS = { came: "received", answered: "answered", refused_each: "refused by their key's limit", refused_all: "refused by the limit of all", refused_rule: "refused by another limit",
  unknown: "of unknown keys", invalid: "invalid", failed: "failed upstream", left: "given up by clients" };

function showTotals({ began_at, at, counts }) {
  set("totals-since", `requests since the start at ${clock(began_at)}, ${uptime(at)} ago`);
  for (const [name, count] of Object.entries(counts)) {
    if (!$("total-" + name)) {
      const item = $("totals").appendChild(document.createElement("div"));
      item.appendChild(document.createElement("dt")).textContent = TOTALS[name] ?? name.replaceAll("_", " ");
      item.appendChild(document.createElement("dd")).id = "total-" + name;
    }
    set("total-" + name, whole.format(count));
  }
}

// ---- Words for numbers.

const part = (some, all) => `${all > 0 ? Math.min(100, some / all * 100).toFixed(1) : 0}%`;
const short = rate => rate >= 99.5 || rate === 0 ? whole.format(Math.round(rate)) : rate.toFixed(1);
const millis = ms => ms >= 1000 ? `${(ms / 1000).toFixed(1)} s` : ms >= 9.95 ? `${Math.round(ms)} ms` : `${ms.toFixed(1)} ms`;
const duration = ms => ms < 1000 ? "less than 1 s" : ms < 120_000 ? `${Math.floor(ms / 1000)} s` : `${Math.floor(ms / 60_000)} min`;

function uptime(ms) {
  const seconds = Math.floor(ms / 1000), pad = number => String(number).padStart(2, "0");
  const days = Math.floor(seconds / 86400), hours = Math.floor(seconds / 3600) % 24;
  return (days ? `${days} d ` : "") + `${hours}:${pad(Math.floor(seconds / 60) % 60)}:${pad(seconds % 60)}`;
}
