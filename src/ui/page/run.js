"use strict";
// A run as a page: fed with what the server (or a report) has of it, again and again.

const MOST_ROWS = 20000;
const TROUBLE = ["warning", "checkpoint_failed", "failed", "gpu_lost", "sink_failed", "rows_dropped", "samples_missed", "structure"];

/** Rows of a stream, in bounded memory. */
class Rows {
  constructor() { this.all = []; }
  add(stream) {
    if (stream.anew) this.all = [];
    this.all.push(...stream.rows);
    if (this.all.length > MOST_ROWS) this.all = this.all.filter((row, at) => at % 2 === 0 || (row.kind !== "interval" && row.kind !== "sample"));
    return stream.rows.length > 0 || stream.anew;
  }
  of(kind) { return this.all.filter((row) => row.kind === kind); }
}

const pairs = (rows, x, y) => rows.filter((row) => row[y] !== undefined).map((row) => [row[x], row[y] === null ? NaN : row[y]]);

/** The charts of training, for one run or for several. */
const CURVES = [
  {title: "Loss", keys: [["interval", "loss", "training"], ["epoch", "train_loss", "training, epoch"], ["epoch", "validation_loss", "validation"]]},
  {title: "Score", keys: [["interval", "accuracy", "training"], ["epoch", null, null]]},
  {title: "Learning rate", keys: [["interval", "lr", "learning rate"]], from: 0},
  {title: "Speed", keys: [["interval", "samples_per_second", "samples per second"]], from: 0},
];

function chip(text, kind) {
  return make("span", {class: "chip " + (kind || "")}, text);
}

function section(title, ...children) {
  return make("section", {}, make("h2", {}, title), ...children);
}

function remaining(run) {
  return run.state === "running" && run.share > 0.01 ? run.seconds / run.share * (1 - run.share) : undefined;
}

function tile(name, value, more) {
  return make("div", {}, make("dt", {}, name), make("dd", {}, value, more ? make("small", {}, more) : null));
}

class RunView {
  /** `into` is emptied. */
  constructor(into, name) {
    this.metrics = new Rows();
    this.events = new Rows();
    this.samples = new Rows();
    this.charts = CURVES.map((curve) => new Chart({...curve, x: "step"}));
    this.machine = ["Processors and GPUs at work", "Memory", "Power"].map((title, at) => new Chart(
      {title, x: "since the first look", xFormat: duration, from: 0,
       format: [(value) => Math.round(value) + " %", (value) => figure(value) + " GiB", (value) => figure(value) + " W"][at]}));
    this.head = make("section", {class: "card head"}, make("h1", {}, name));
    this.tiles = make("dl", {class: "tiles"});
    this.trouble = make("ul", {class: "trouble"});
    this.troubles = section("Warnings", this.trouble);
    this.epochs = make("div", {class: "card rows", tabindex: "0"});
    this.pictures = make("div", {class: "pictures"});
    this.how = make("div", {class: "card how"});
    this.machines = section("The machine", make("div", {class: "charts"}, ...this.machine.map((chart) => chart.element)));
    this.listed = section("Epochs", this.epochs);
    this.shown = section("Pictures", this.pictures);
    into.replaceChildren(this.head, this.tiles, this.troubles,
                         section("How it trains", this.waiting = make("p", {class: "soft"}, "No step has been reported yet."),
                                 make("div", {class: "charts"}, ...this.charts.map((chart) => chart.element))),
                         this.listed, this.shown, this.machines, section("How it was run", this.how));
    for (const part of [this.troubles, this.listed, this.shown, this.machines]) part.hidden = true;
  }

  /** `got`: {run, metrics, events, samples, pictures}, streams as {rows, anew}. */
  add(got) {
    this.run = got.run;
    const is_new = [this.metrics.add(got.metrics), this.events.add(got.events), this.samples.add(got.samples)];
    this.showHead(got);
    if (is_new[0]) this.showMetrics();
    if (is_new[1]) this.showEvents();
    if (is_new[2]) this.showSamples();
    this.showPictures(got.pictures);
    const made = JSON.stringify([got.run.recipe, got.run.command]);
    if (made !== this.made) this.showHow();
    this.made = made;
  }

  showHead(got) {
    const run = got.run;
    const links = (got.pages || []).map((page) => make("a", {href: "/files/" + page.name.split("/").map(encodeURIComponent).join("/")}, page.name.endsWith("report.html") ? "report in one file" : "the study's page"));
    this.head.replaceChildren(make("h1", {}, run.name === "." ? "This run" : run.name),
                              make("div", {class: "chips"}, chip(run.state, run.state), ...[run.model, run.data, run.device].filter(Boolean).map((text) => chip(text)), ...links),
                              ...(run.reason && run.state !== "finished" ? [make("p", {class: "first"}, run.reason)] : []));
    if (run.state === "running" || (run.share > 0 && run.share < 1)) this.head.append(bar(run.share));
    const last = this.metrics.all.findLast((row) => row.samples_per_second !== undefined) || {};
    const left = remaining(run);
    this.tiles.replaceChildren(
      tile("epoch", run.epoch + (run.epochs ? " of " + run.epochs : ""), figure(run.step) + " steps"),
      tile("best", figure(run.best), run.metric && said(run.metric)),
      ...(run.test !== undefined ? [tile("test", figure(run.test), said(run.test_metric))] : []),
      tile("loss", figure(run.loss)),
      tile("speed", figure(last.samples_per_second), "samples per second"),
      tile("trained", duration(run.seconds), left !== undefined ? duration(left) + " to go" : run.starts > 1 ? run.starts + " starts" : ""));
  }

  showMetrics() {
    this.charts.forEach((chart, at) => chart.show(CURVES[at].keys.flatMap(([kind, key, name]) => this.series(kind, key, name))));
    this.waiting.hidden = this.charts.some((chart) => !chart.element.hidden);
    const rows = this.metrics.of("epoch");
    this.listed.hidden = rows.length === 0;
    if (rows.length === 0) return;
    const best = rows.findLast((row) => row.best === true), left_out = ["kind", "time", "seconds", "step", "best", "dropped"];
    const keys = Object.keys(rows[rows.length - 1]).filter((key) => !left_out.includes(key) && !/ram|vram|loader|cpu|gpu|flops|step_ms/.test(key));
    this.epochs.replaceChildren(make("table", {}, make("thead", {}, make("tr", {}, ...keys.map((key) => make("th", {class: "num", scope: "col"}, said(key))))),
      make("tbody", {}, ...rows.slice(-1000).reverse().map((row) => make("tr", {class: row === best ? "best" : ""},
        ...keys.map((key) => make("td", {class: "num"}, figure(row[key]))))))));
  }

  series(kind, key, name) {
    if (key === null) {  // what the best weights are best at
      const metric = this.run.metric;
      return metric && metric !== "validation_loss" ? [{name: said(metric), points: pairs(this.metrics.of("epoch"), "step", metric)}] : [];
    }
    if (key === "train_loss" && this.metrics.of("interval").length > 0) return [];
    return [{name, points: pairs(this.metrics.of(kind), "step", key)}];
  }

  showEvents() {
    const found = this.events.all.filter((event) => TROUBLE.includes(event.kind));
    this.troubles.hidden = found.length === 0;
    this.trouble.replaceChildren(...found.slice(-100).map((event) => make("li", {class: event.kind}, chip(event.kind.replace(/_/g, " "), event.kind === "warning" ? "interrupted" : event.kind === "structure" ? "" : "failed"), " " + event.text)));
  }

  showSamples() {
    const rows = this.samples.all.filter((row) => row.kind === "sample" && isNumber(row.time));
    this.machines.hidden = rows.length < 2;
    if (rows.length < 2) return;
    const begin = rows[0].time, keys = Object.keys(rows.reduce((all, row) => Object.assign(all, row), {}));
    const of = (pattern) => keys.filter((key) => pattern.test(key)).map((key) => ({name: key.split("/")[0].replace(/^cpu$/, "CPU").replace(/^gpu/, "GPU ").replace(/^ram$/, "memory").replace(/^process$/, "this run"),
      points: rows.filter((row) => row[key] !== undefined).map((row) => [row.time - begin, key.endsWith("_bytes") ? row[key] / 2 ** 30 : row[key]])}));
    this.machine[0].show(of(/^(cpu|gpu\d+)\/utilization_percent$/));
    this.machine[1].show(of(/^(ram\/used_bytes|process\/resident_bytes|gpu\d+\/memory_used_bytes)$/));
    this.machine[2].show(of(/^gpu\d+\/power_watts$/));
  }

  /** names below the folder, or {name, data} of a report */
  showPictures(pictures) {
    const names = JSON.stringify([this.run.state, ...pictures.map((one) => one.name || one)]), now = Date.now();
    this.shown.hidden = pictures.length === 0;
    if (names === this.names && !(this.run.state === "running" && now - this.loaded > 10000)) return;
    this.names = names;
    this.loaded = now;
    this.pictures.replaceChildren(...pictures.map((one) => {
      const name = one.name || one;
      return make("figure", {class: "card"}, make("figcaption", {}, make("h3", {}, name.split("/").pop())),
                  make("img", {alt: name, src: one.data || "/files/" + name.split("/").map(encodeURIComponent).join("/") + "?" + now}));
    }));
  }

  showHow() {
    const recipe = Object.entries(this.run.recipe || {});
    this.how.replaceChildren(make("b", {}, "Command"), make("pre", {}, this.run.command), make("p", {class: "soft"}, "Started " + this.run.started.replace("T", " ").replace("Z", " UTC") +
                                  (this.run.ended ? ", ended " + this.run.ended.replace("T", " ").replace("Z", " UTC") : "") + "."),
      make("details", {}, make("summary", {}, "Recipe: " + recipe.length + " keys"),
           make("table", {}, make("tbody", {}, ...recipe.map(([key, value]) => make("tr", {}, make("th", {scope: "row"}, make("code", {}, key)), make("td", {}, value)))))));
  }

  remove() {
    for (const chart of [...this.charts, ...this.machine]) chart.remove();
  }
}

function bar(share) {
  const done = make("div");
  done.style.width = (100 * share).toFixed(1) + "%";
  return make("div", {class: "bar", role: "progressbar", "aria-label": "done", "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": Math.round(100 * share)}, done);
}
