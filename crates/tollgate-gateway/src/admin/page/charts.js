"use strict";
// The drawings. Each is drawn once for a sample that is shown, and only if it would look different.

const drawn = {};
let colors = {}, hatches = {}, tops = {};

function readColors() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["ink", "soft", "line", "grid", "card", "head", "tail", "ceiling", "refused", "passed", "head-wash", "tail-wash", "granted"])
    colors[name] = style.getPropertyValue("--" + name).trim();
  hatches = {};
}
readColors();

/** In other colors, or another size. */
function redraw() {
  readColors();
  for (const id in drawn) delete drawn[id];
  draw();
}

/** A canvas to draw on, or `null` if it shows `what` already. */
function canvas(id, what) {
  const node = document.getElementById(id), { width, height } = node.getBoundingClientRect(), ratio = devicePixelRatio || 1;
  const key = JSON.stringify([what, width, height, ratio]);
  if (drawn[id] === key) return null;
  drawn[id] = key;
  node.width = Math.round(width * ratio);
  node.height = Math.round(height * ratio);
  const to = node.getContext("2d");
  to.setTransform(ratio, 0, 0, ratio, 0, 0);
  to.font = `13px ${getComputedStyle(document.body).fontFamily}`;
  to.textBaseline = "middle";
  return { to, width, height };
}

/** Diagonal lines, which are told from a plain area without color. */
function hatch(to, name) {
  if (hatches[name]) return hatches[name];
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const on = tile.getContext("2d");
  on.strokeStyle = colors[name];
  on.lineWidth = 1.8;
  for (const shift of [-6, 0, 6]) line(on, shift - 1, 7, shift + 7, -1);
  return hatches[name] = to.createPattern(tile, "repeat");
}

function line(to, x1, y1, x2, y2) {
  to.beginPath(); to.moveTo(x1, y1); to.lineTo(x2, y2); to.stroke();
}

/** 1, 2 or 5 times a power of ten, so that at most `count` steps make up `size`. */
function step(size, count) {
  const rough = Math.max(size / count, 1), power = 10 ** Math.floor(Math.log10(rough));
  return power * [1, 2, 5, 10].find(factor => factor * power >= rough);
}

/** A scale that has `most` on it, and that rarely changes. */
function topOf(id, most) {
  const power = 10 ** Math.floor(Math.log10(most)), now = tops[id];
  const nice = power * [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].find(factor => factor * power >= most);
  if (now === undefined || most > now || most < now / 3) tops[id] = nice;
  return tops[id];
}

/** The requests of each second, the newest at the end: the last one ends with the newest point. */
function barsOf(points) {
  const bars = [];
  for (let index = points.length - 1; index >= PER_SECOND; index -= PER_SECOND) {
    const from = points[index - PER_SECOND], to = points[index], seconds = (to.at - from.at) / 1000;
    bars.unshift({ ago: points.at(-1).at - to.at, seconds, passed: (to.passed - from.passed) / seconds, refused: (to.refused - from.refused) / seconds });
  }
  return bars;
}

/** Axes of a picture of the last minute: returns where things are. */
function frame({ to, width, height }, high) {
  const top = 8, bottom = height - 20, left = 44, right = width - 6;
  const x = ago => right - ago / SPAN * (right - left), y = value => bottom - value / (high * 1.04) * (bottom - top);
  to.textAlign = "right";
  to.lineWidth = 1;
  for (let value = 0, every = step(high, 4); value <= high; value += every) {
    to.strokeStyle = value ? colors.grid : colors.line;
    line(to, left, y(value), right, y(value));
    to.fillStyle = colors.soft;
    to.fillText(whole.format(value), left - 7, y(value));
  }
  to.textAlign = "center";
  for (const ago of width < 400 ? [45, 30, 15] : [60, 45, 30, 15]) to.fillText(`−${ago} s`, Math.max(x(ago * 1000), left + 14), bottom + 12);
  to.textAlign = "right";
  to.fillText("now", right, bottom + 12);
  to.beginPath(); to.rect(left, top - 6, right - left, bottom - top + 7); to.clip();
  return { to, x, y, bottom };
}

function drawRates(bars) {
  const high = topOf("rates", Math.max(5, ...bars.map(bar => bar.passed + bar.refused)));
  const isQuiet = bars.every(bar => bar.passed + bar.refused === 0);
  const on = canvas("rates", isQuiet ? high : bars);
  if (!on) return;
  const { to, x, y } = frame(on, high);
  for (const { ago, seconds, passed, refused } of bars) {
    const left = x(ago + seconds * 1000) + 1, wide = Math.max(x(ago) - left - 1, 1), middle = y(passed), top = y(passed + refused);
    to.fillStyle = colors.passed;
    if (passed > 0) to.fillRect(left, middle, wide, y(0) - middle);
    if (refused > 0) {
      to.fillStyle = hatch(to, "refused");
      to.fillRect(left, top, wide, Math.max(middle - top - 1, 1));
      to.strokeStyle = colors.refused;
      to.lineWidth = 1;
      to.strokeRect(left + .5, top + .5, Math.max(wide - 1, 1), Math.max(middle - top - 2, 1));
    }
  }
}

function drawRovers(points) {
  const names = ["ceiling", "head", "tail"], newest = points.at(-1);
  const high = topOf("rovers", Math.max(5, ...points.flatMap(({ ahead }) => [ahead.tail, ahead.head, ahead.ceiling ?? 0])));
  const isFlat = points.every(({ ahead }) => names.every(name => ahead[name] === newest.ahead[name]));
  const isFull = newest.at - points[0].at >= SPAN;
  const on = canvas("rovers", isFlat && isFull ? [high, newest.ahead] : newest.at);
  if (!on) return;
  const { to, x, y, bottom } = frame(on, high);
  const path = (name, isArea) => {
    const shown = points.filter(({ ahead }) => ahead[name] !== null);
    if (!shown.length) return;
    to.beginPath();
    if (isArea) to.moveTo(x(newest.at - shown[0].at), bottom);
    for (const { at, ahead } of shown) to.lineTo(x(newest.at - at), y(Math.max(ahead[name], 0)));
    if (isArea) to.lineTo(x(newest.at - shown.at(-1).at), bottom);
  };
  for (const name of ["head", "tail"]) {
    path(name, true);
    to.fillStyle = colors[name + "-wash"];
    to.fill();
  }
  to.lineJoin = "round";
  for (const [name, dash, width] of [["ceiling", [7, 5], 1.6], ["head", [2, 3], 2.2], ["tail", [], 2]]) {
    path(name, false);
    to.strokeStyle = colors[name];
    to.lineWidth = width;
    to.setLineDash(dash);
    to.stroke();
  }
}

function drawTrack(now, { burst, in_flight_cap }) {
  const { granted, ahead: { tail, head, ceiling } } = now;
  const most = Math.max(burst, in_flight_cap ?? 0, tail, head);
  const reach = topOf("track", most), on = canvas("track", [now.ahead, granted, burst, in_flight_cap, reach]);
  if (!on) return;
  const { to, width, height } = on, isNarrow = width < 600;
  const gate = Math.round(width * 0.22), scale = (width - gate - 24) / (reach * 1.06);
  const x = tokens => gate + tokens * scale, road = 98, thick = 26;
  // Each cell is one token or several. They pass the gate from the right to the left.
  const cell = Math.max(1, step(5 / scale, 1)), first = Math.max(0, Math.floor((granted - gate / scale) / cell) * cell);
  to.save();
  to.beginPath(); to.roundRect(0, road, width, thick, 6); to.clip();
  for (let token = first; x(token - granted) < width; token += cell) {
    const middle = token + cell / 2 - granted;
    to.fillStyle = middle < 0 ? colors.granted : middle < tail ? hatch(to, "tail") : middle < head ? colors.head : colors.grid;
    to.fillRect(x(token - granted), road, Math.max(cell * scale - 1, 1), thick);
  }
  to.restore();
  const every = step(width / scale, isNarrow ? 4 : 9);
  to.textAlign = "center";
  for (let tick = Math.ceil(first / every) * every; x(tick - granted) < width - 14; tick += every) {
    const spot = x(tick - granted);
    to.strokeStyle = colors.soft;
    to.lineWidth = 1;
    line(to, spot, road + thick + 2, spot, road + thick + 6);
    to.fillStyle = colors.soft;
    to.fillText(whole.format(tick), Math.max(spot, 18), road + thick + 16);
  }
  drawGate(to, gate, road, thick, tail > 0, isNarrow);
  const marks = [["head", head], ["tail", tail]];
  if (ceiling !== null) marks.push(["ceiling", ceiling]);
  drawMarks(to, marks, x, width, road + thick);
}

/** Its arm is down while a request waits. */
function drawGate(to, gate, road, thick, isShut, isNarrow) {
  const arm = isShut ? 0 : -0.75, length = isNarrow ? 30 : 44;
  to.lineCap = "round";
  to.strokeStyle = isShut ? colors.tail : colors.head;
  to.lineWidth = 4;
  line(to, gate, road - 6, gate - Math.cos(arm) * length, road - 6 + Math.sin(arm) * length);
  to.strokeStyle = colors.ink;
  line(to, gate, road - 6, gate, road + thick + 2);
  to.lineCap = "butt";
}

/** The rovers with their names. Names that would overlap are drawn above each other. */
function drawMarks(to, marks, x, width, bottom) {
  const taken = [];
  for (const [name, ahead] of marks.sort((a, b) => a[1] - b[1])) {
    const spot = Math.min(Math.max(x(ahead), 2), width - 2), label = `${name} ${ahead >= 0 ? "+" : "−"}${whole.format(Math.abs(ahead))}`;
    const wide = to.measureText(label).width + 16, left = Math.min(Math.max(spot - wide / 2, 0), width - wide);
    let row = 0;
    while (taken.some(other => other.row === row && left < other.left + other.wide + 5 && left + wide > other.left - 5)) row++;
    taken.push({ row, left, name, spot, label, wide });
  }
  // From the top, so that no line crosses a name.
  for (const { row, left, name, spot, label, wide } of taken.sort((a, b) => b.row - a.row)) {
    const top = 52 - row * 24;
    to.strokeStyle = to.fillStyle = colors[name];
    to.lineWidth = 2;
    line(to, spot, top + 10, spot, bottom);
    to.beginPath(); to.roundRect(left, top, wide, 21, 10); to.fill();
    to.fillStyle = colors.card;
    to.textAlign = "left";
    to.fillText(label, left + 8, top + 11);
  }
}
