"use strict";
// The live page: a table of runs, a run, several runs over each other, a study. Each asks once a second for what is new.
(function () {
  const main = document.getElementById("main"), lost = document.getElementById("lost");
  const SECOND = 1000;
  const enter = (path, name) => "/#/" + path + "/" + encodeURIComponent(name);
  const file = (name) => "/files/" + name.split("/").map(encodeURIComponent).join("/");
  const runs = new Map();
  const picked = new Set();
  let pages = [], after = 0, view, round = 0;

  class Lost extends Error {}

  /** null: there is no such thing. */
  async function ask(path) {
    try {
      const answer = await fetch(path, {cache: "no-store"});
      if (answer.status === 404) return null;
      if (!answer.ok) throw new Error(await answer.text());
      return await answer.json();
    } catch (failure) {
      throw new Lost(failure.message);
    }
  }

  /** What is new of all runs. True when something is. */
  async function askRuns() {
    const got = await ask("/api/runs?after=" + after);
    after = got.now;
    document.getElementById("folder").textContent = got.folder;
    for (const run of got.runs) runs.set(run.name, run);
    if (got.names) {
      const names = new Set(got.names);
      for (const name of runs.keys()) if (!names.has(name)) runs.delete(name);
      pages = got.pages;
    }
    const problems = Object.values(got.problems), changed = got.runs.length > 0 || got.names !== undefined || problems.join() !== askRuns.problems;
    askRuns.problems = problems.join();
    askRuns.list = problems.concat(got.cut ? ["There are more folders than are looked through."] : []);
    return changed;
  }

  /** The streams of one run, from where they were read to. */
  class Feed {
    constructor(name) { this.name = name; this.restart(); }
    restart() { this.at = {metrics: -1, events: -1, samples: -1}; this.starts = undefined; }
    async next() {
      const got = await ask("/api/run?name=" + encodeURIComponent(this.name) + Object.entries(this.at).map(([key, at]) => "&" + key + "=" + at).join(""));
      if (!got) return null;
      if (this.starts !== undefined && got.run.starts !== this.starts) {  // resumed: its stream was cut back and may have grown again
        this.restart();
        return this.next();
      }
      this.starts = got.run.starts;
      got.more = false;
      for (const key of Object.keys(this.at)) {
        this.at[key] = got[key].offset;
        got.more = got.more || got[key].more;
      }
      return got;
    }
  }

  // ---- the table of runs ----
  const COLUMNS = [
    ["run", (run) => run.name], ["state", (run) => run.state], ["progress", (run) => run.share], ["curve", null], ["best", (run) => run.best], ["test", (run) => run.test],
    ["trained", (run) => run.seconds], ["started", (run) => run.started]];

  class Index {
    constructor() {
      this.order = "started";
      this.down = true;
      this.wanted = make("input", {type: "search", placeholder: "Find a run, a model, a state", "aria-label": "find", oninput: () => this.fill()});
      this.over = make("button", {type: "button", onclick: () => { location.href = enter("over", [...picked].join("\n")); }}, "");
      this.head = make("tr");
      this.body = make("tbody");
      this.title = make("h1", {}, "Runs");
      this.said = make("p", {class: "soft"});
      this.problems = make("ul", {class: "trouble"});
      this.studies = section("Studies", make("div", {class: "list"}));
      this.pages = section("The doctor\u2019s reports and other pages", make("div", {class: "list"}));
      main.replaceChildren(make("div", {class: "lane"}, make("div", {}, this.title, this.said), make("div", {class: "tools"}, this.wanted, this.over)),
                           make("div", {class: "card runs"}, make("table", {}, make("thead", {}, this.head), this.body)), this.studies, this.pages, this.problems);
      this.fill();
    }

    header() {
      this.head.replaceChildren(make("th", {scope: "col"}, make("span", {class: "hidden"}, "pick")), ...COLUMNS.map(([name, value]) =>
        make("th", {scope: "col", class: name, "aria-sort": this.order === name && (this.down ? "descending" : "ascending")},
             value ? make("button", {type: "button", onclick: () => { this.down = this.order === name ? !this.down : name === "best"; this.order = name; this.fill(); }}, name) : name)));
    }

    fill() {
      const words = this.wanted.value.toLowerCase().split(/\s+/).filter(Boolean), value = COLUMNS.find(([name]) => name === this.order)[1];
      const all = [...runs.values()], trainings = all.filter((run) => run.kind !== "study");
      const found = trainings.filter((run) => words.every((word) => [run.name, run.model, run.data, run.state, run.kind].join(" ").toLowerCase().includes(word)));
      found.sort((a, b) => {
        const x = value(a), y = value(b);
        if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
        return (x < y ? -1 : x > y ? 1 : a.name < b.name ? -1 : 1) * (this.down ? -1 : 1);
      });
      this.header();
      for (const name of [...picked]) if (!runs.has(name)) picked.delete(name);
      const MOST = 500;
      this.body.replaceChildren(...found.slice(0, MOST).map((run) => this.row(run)));
      const going = trainings.filter((run) => run.state === "running").length;
      this.said.textContent = trainings.length === 0 ? "None here yet. millrace train RECIPE starts one; it appears by itself."
        : trainings.length + (trainings.length === 1 ? " run" : " runs") + (going ? ", " + going + " under way" : "") + (found.length > MOST ? "; the first " + MOST + " are shown" : "") + ".";
      this.body.closest(".card").hidden = trainings.length === 0;
      this.wanted.hidden = trainings.length < 2;
      this.pick();
      this.list(this.studies, all.filter((run) => run.kind === "study").map((run) =>
        make("a", {class: "card", href: enter("study", run.name)}, make("b", {}, run.name), chip(run.state, run.state), make("span", {class: "soft"}, run.model))));
      this.list(this.pages, pages.map((page) => make("a", {class: "card", href: file(page.name)}, make("b", {}, page.title), make("span", {class: "soft"}, page.name))));
      this.problems.replaceChildren(...(askRuns.list || []).map((text) => make("li", {}, text)));
    }

    list(part, items) {
      part.hidden = items.length === 0;
      part.lastChild.replaceChildren(...items);
    }

    row(run) {
      const pick = make("input", {type: "checkbox", "aria-label": "pick " + run.name, onchange: (event) => { picked[event.target.checked ? "add" : "delete"](run.name); this.pick(); }});
      pick.checked = picked.has(run.name);
      const progress = make("td", {class: "progress-cell"}, make("span", {}, run.epochs ? run.epoch + "/" + run.epochs : run.kind === "recording" ? "" : String(run.epoch)));
      if (run.share > 0) progress.append(bar(run.share));
      return make("tr", {class: run.state}, make("td", {class: "pick"}, pick),
        make("td", {class: "run"}, make("a", {href: enter("run", run.name)}, run.name), make("small", {}, run.kind === "recording" ? "recorded: " + run.command : [run.model, run.data].filter(Boolean).join(" on "))),
        make("td", {class: "state"}, chip(run.state, run.state)), progress, make("td", {class: "curve", title: "loss by epoch"}, spark(run.curve)),
        make("td", {class: "best"}, figure(run.best), make("small", {}, run.metric ? said(run.metric) : "")),
        make("td", {class: "test"}, figure(run.test), make("small", {}, run.test_metric ? said(run.test_metric) : "")),
        make("td", {class: "trained"}, duration(run.seconds || undefined)), make("td", {class: "started"}, run.started.slice(0, 16).replace("T", " ")));
    }

    pick() {
      this.over.hidden = picked.size < 2;
      this.over.textContent = "Lay " + picked.size + " runs over each other";
    }

    async update() { if (await askRuns()) this.fill(); return false; }
    remove() {}
  }

  // ---- a run ----
  class Single {
    constructor(name) {
      this.feed = new Feed(name);
      this.run = new RunView(main, name);
    }
    async update() {
      const got = await this.feed.next();
      if (!got) return gone(this.feed.name);
      this.run.add(got);
      return got.more;
    }
    remove() { this.run.remove(); }
  }

  // ---- several runs over each other ----
  const OVER = [["Loss on validation data", "epoch", "validation_loss"], ["Score", "epoch", null], ["Training loss", "interval", "loss"],
                ["Samples per second", "interval", "samples_per_second"]];
  class Over {
    constructor(names) {
      this.all = names.map((name, at) => ({name, feed: new Feed(name), metrics: new Rows(), colour: PALETTE[at % PALETTE.length]}));
      this.by = "step";
      this.charts = OVER.map(([title, kind]) => new Chart({title, x: this.by, from: title.startsWith("Samples") ? 0 : undefined}));
      this.buttons = ["step", "epoch", "seconds"].map((by) => make("button", {type: "button", "aria-pressed": String(by === this.by), onclick: () => this.turn(by)}, by === "seconds" ? "time" : by));
      this.table = make("div", {class: "card rows", tabindex: "0"});
      main.replaceChildren(make("div", {class: "lane"}, make("h1", {}, names.length + " runs over each other"), make("div", {class: "tools"}, ...this.buttons)),
                           make("div", {class: "charts"}, ...this.charts.map((chart) => chart.element)), section("Scores, and what differs in their recipes", this.table));
    }
    turn(by) {
      this.by = by;
      this.buttons.forEach((button, at) => button.setAttribute("aria-pressed", String(["step", "epoch", "seconds"][at] === by)));
      this.charts.forEach((chart) => { chart.options.x = by === "seconds" ? "training time" : by; chart.options.xFormat = by === "seconds" ? duration : figure; chart.names = undefined; });
      this.draw();
    }
    async update() {
      let more = false, changed = false;
      for (const one of this.all) {
        const got = await one.feed.next();
        if (!got) continue;
        changed = one.metrics.add(got.metrics) || JSON.stringify(got.run) !== JSON.stringify(one.run) || changed;
        one.run = got.run;
        more = more || got.more;
      }
      if (changed) this.draw();
      return more;
    }
    draw() {
      const there = this.all.filter((one) => one.run);
      this.charts.forEach((chart, at) => chart.show(there.map((one) => {
        const [, kind, key] = OVER[at];
        return {name: one.name, colour: one.colour, points: pairs(one.metrics.of(kind), this.by, key || one.run.metric || "validation_accuracy")};
      })));
      const keys = [...new Set(there.flatMap((one) => Object.keys(one.run.recipe)))].filter((key) => new Set(there.map((one) => one.run.recipe[key])).size > 1);
      const rows = [["state", (run) => run.state], ["best", (run) => figure(run.best)], ["measured by", (run) => said(run.metric || "")], ["test", (run) => figure(run.test)], ["epochs", (run) => run.epoch],
                    ["trained", (run) => duration(run.seconds)], ...keys.map((key) => [key, (run) => run.recipe[key] === undefined ? "\u2013" : run.recipe[key]])];
      this.table.replaceChildren(make("table", {}, make("thead", {}, make("tr", {}, make("td"), ...there.map((one) => {
        const dot = make("i");
        dot.style.background = colour(one.colour);
        return make("th", {scope: "col", class: "name"}, dot, make("a", {href: enter("run", one.name)}, one.name));
      }))), make("tbody", {}, ...rows.map(([key, value]) => make("tr", {}, make("th", {scope: "row"}, key), ...there.map((one) => make("td", {}, String(value(one.run)))))))));
    }
    remove() { this.charts.forEach((chart) => chart.remove()); }
  }

  // ---- a study: the page that the sweep writes while it goes on ----
  class Study {
    constructor(name) {
      this.feed = new Feed(name);
      this.said = make("p", {class: "soft"});
      this.newer = make("button", {type: "button", hidden: true, onclick: () => this.load()}, "Show the newer page");
      this.chips = make("div", {class: "chips"});
      this.frame = make("iframe", {title: "the study's page", sandbox: "allow-scripts", hidden: true});
      main.replaceChildren(make("div", {class: "lane"}, make("div", {}, make("h1", {}, name), this.chips, this.said), make("div", {class: "tools"}, this.newer)), this.frame);
    }
    async update() {
      const got = await this.feed.next();
      if (!got) return gone(this.feed.name);
      const page = got.pages.find((one) => one.name.endsWith("sweep.html"));
      this.chips.replaceChildren(chip(got.run.state, got.run.state));
      this.said.textContent = page ? "" : "The study has no page yet: the sweep writes one while it searches.";
      if (!page || page.modified === this.shown) return false;
      this.page = page;
      // Whoever is reading in it is not thrown back to its beginning.
      if (this.shown && document.activeElement === this.frame) this.newer.hidden = false;
      else this.load();
      return false;
    }
    load() {
      this.shown = this.page.modified;
      this.newer.hidden = true;
      this.frame.hidden = false;
      this.frame.src = file(this.page.name) + "?" + this.shown;
    }
    remove() {}
  }

  /** A run that is not there, or not yet: it is shown once it is. */
  function gone(name) {
    view.remove();
    main.replaceChildren(make("div", {class: "card"}, make("h1", {}, "There is no such run"), make("p", {}, "It is shown here as soon as there is one. ", make("a", {href: "/#/"}, "All runs"))));
    view = {update: async () => { if (await askRuns() && runs.has(name)) route(); return false; }, remove() {}};
    return false;
  }

  function route() {
    if (view) view.remove();
    const [, kind, ...rest] = location.hash.split("/");
    let name = "";
    try { name = decodeURIComponent(rest.join("/")); } catch (broken) { /* no name */ }
    const kinds = {run: () => new Single(name), over: () => new Over(name.split("\n").slice(0, 20)), study: () => new Study(name)};
    view = (kinds[kind] || (() => new Index()))();
    document.title = name && kind !== "over" ? name + " \u2013 Millrace" : "Millrace";
    scrollTo(0, 0);
    tick(++round);
  }

  async function tick(mine) {
    let more = false;
    try {
      if (!document.hidden) {
        if (after === 0 && !(view instanceof Index)) await askRuns();
        more = (await view.update()) === true;
        lost.textContent = "";
      }
    } catch (failure) {
      if (!(failure instanceof Lost)) throw failure;
      lost.textContent = "The server does not answer (" + failure.message + "); asking again.";
    } finally {
      if (mine === round) setTimeout(() => { if (mine === round) tick(mine); }, more ? 0 : SECOND);
    }
  }

  addEventListener("hashchange", route);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) tick(++round); });
  document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
  route();
})();
