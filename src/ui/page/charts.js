"use strict";
// Elements, numbers as people write them, and charts that grow.

/** make("p", {class: "soft"}, "text", child, ...): texts stay texts, whatever they hold. */
function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {}))
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  element.append(...children.filter((child) => child !== undefined && child !== null));
  return element;
}

const isNumber = (value) => typeof value === "number" && isFinite(value);

/** Four figures: "0.9123", "12,950", "1.2e-5". */
function figure(value) {
  if (!isNumber(value)) return "\u2013";
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  if (size !== 0 && size < 0.001) return value.toExponential(2).replace(/\.?0+e/, "e");
  return String(Number(value.toPrecision(4)));
}

function duration(seconds) {
  if (!isNumber(seconds) || seconds < 0) return "\u2013";
  if (seconds < 10) return Number(seconds.toFixed(1)) + " s";
  if (seconds < 120) return Math.round(seconds) + " s";
  const minutes = Math.floor(seconds / 60);
  if (minutes < 120) return minutes + " min" + (minutes < 10 ? " " + Math.round(seconds % 60) + " s" : "");
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? hours + " h " + (minutes % 60) + " min" : Math.floor(hours / 24) + " d " + (hours % 24) + " h";
}


/** "validation_accuracy" as people say it. */
const said = (key) => key.replace(/_/g, " ");

/** Colours of series, as the doctor's page has them. */
const PALETTE = ["--o1", "--o3", "--o0", "--o7", "--o4", "--o6", "--o5", "--o9", "--o2", "--o8"];
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const MOST_DRAWN = 3000;

/** Every nth row, so that no more are left than can be seen, and the newest. */
function thinned(rows, most) {
  if (rows.length <= most) return rows;
  const stride = Math.ceil(rows.length / most);
  return rows.filter((row, at) => at % stride === 0 || at === rows.length - 1);
}

/** Series [{name, points: [[x, y], ...]}] as the rows of one table, by x. */
function table(series) {
  const rows = new Map();
  series.forEach((one, at) => {
    for (const [x, y] of thinned(one.points, MOST_DRAWN)) {
      if (!isNumber(x)) continue;
      if (!rows.has(x)) rows.set(x, [x, ...series.map(() => null)]);
      rows.get(x)[at + 1] = isNumber(y) ? y : NaN;  // NaN is a gap, null is not measured here
    }
  });
  return [...rows.values()].sort((a, b) => a[0] - b[0]);
}

/** One chart. `options`: title, x (what the axis says), format (of values), from (the axis begins there). */
class Chart {
  constructor(options) {
    this.options = options;
    this.keys = make("ul", {class: "keys"});
    this.place = make("div", {class: "canvas"});
    this.element = make("figure", {class: "card chart", role: "group", "aria-label": options.title, hidden: true},
                        make("figcaption", {}, make("h3", {}, options.title), this.keys), this.place, make("div", {class: "below"}, options.x));
    Chart.all.add(this);
  }

  /** series: [{name, points, colour}]; those without a point are left out. */
  show(series) {
    series = series.filter((one) => one.points.some((point) => isNumber(point[1])));
    this.element.hidden = series.length === 0;
    this.series = series;
    if (series.length === 0 || !this.element.isConnected || typeof Dygraph === "undefined") return;
    const names = series.map((one) => one.name).join("\n");
    const rows = table(series);
    this.last = series.map((one) => one.points.findLast((point) => isNumber(point[1]))[1]);
    if (this.graph && this.names === names) this.graph.updateOptions({file: rows, valueRange: this.range()});
    else this.draw(rows, names);
    this.write(this.last);
  }

  /** Of the values' axis; null: around what there is. */
  range() {
    if (this.options.from === undefined) return null;
    const highest = Math.max(...this.series.flatMap((one) => one.points.map((point) => (isNumber(point[1]) ? point[1] : 0))));
    return [this.options.from, highest > 0 ? highest * 1.08 : 1];
  }

  draw(rows, names) {
    if (this.graph) this.graph.destroy();
    this.names = names;
    this.keys.replaceChildren(...this.series.map((one, at) => {
      const line = make("i");
      line.style.color = colour(one.colour || PALETTE[at % PALETTE.length]);
      return make("li", {}, line, make("span", {}, one.name + " "), make("b", {}));
    }));
    const format = this.options.format || figure;
    const dots = rows.length < 3;
    this.graph = new Dygraph(this.place, rows, {
      labels: ["x", ...this.series.map((one) => one.name)],
      colors: this.series.map((one, at) => colour(one.colour || PALETTE[at % PALETTE.length])),
      strokeWidth: 2, drawPoints: dots, pointSize: 3, connectSeparatedPoints: true, legend: "never", highlightCircleSize: 4,
      valueRange: this.range(), rightGap: 8, xRangePad: 4, yRangePad: 6, gridLineColor: colour("--faint"), axisLineColor: colour("--line"),
      axes: {x: {axisLabelFormatter: this.options.xFormat || figure, axisLabelFontSize: 12, pixelsPerLabel: 55},
             y: {axisLabelFormatter: format, axisLabelFontSize: 12, axisLabelWidth: 58, pixelsPerLabel: 34}},
      interactionModel: Object.fromEntries(Object.entries(Dygraph.defaultInteractionModel).filter(([name]) => !name.startsWith("touch"))),
      highlightCallback: (event, x, points) => this.write(this.series.map((one) => (points.find((point) => point.name === one.name) || {}).yval), x),
      unhighlightCallback: () => this.write(this.last),
    });
    if (dots) this.names = "";  // drawn anew, with lines, once there are some
  }

  /** Values behind the names of the series: where the pointer is, else the newest. */
  write(values, x) {
    const format = this.options.format || figure;
    [...this.keys.children].forEach((key, at) => { key.lastChild.textContent = values[at] === undefined ? "" : format(values[at]); });
    this.element.lastChild.textContent = x === undefined ? this.options.x : this.options.x + " " + (this.options.xFormat || figure)(x);
    const newest = this.series.map((one, at) => one.name + " " + format(this.last[at])).join(", ");
    this.place.setAttribute("role", "img");
    this.place.setAttribute("aria-label", this.options.title + ": " + newest);
  }

  remove() {
    if (this.graph) this.graph.destroy();
    this.graph = null;
    Chart.all.delete(this);
  }
}
Chart.all = new Set();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => Chart.all.forEach((chart) => {
  chart.names = undefined;
  if (chart.series) chart.show(chart.series);
}));

/** A small curve without axes. */
function spark(points) {
  const values = points.filter(([, y]) => isNumber(y));
  const draw = (name, attributes) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return element;
  };
  const picture = draw("svg", {class: "spark", viewBox: "0 0 100 30", preserveAspectRatio: "none", "aria-hidden": "true"});
  if (values.length < 2) return picture;
  const ys = values.map(([, y]) => y), low = Math.min(...ys), high = Math.max(...ys), first = values[0][0], last = values[values.length - 1][0];
  const path = values.map(([x, y]) => (100 * (x - first) / (last - first || 1)).toFixed(1) + " " + (27 - 24 * (y - low) / (high - low || 1)).toFixed(1));
  picture.append(draw("path", {d: "M" + path.join("L")}));
  return picture;
}
