#include "sweep/page.h"

namespace millrace::sweep {

std::string_view page_look() {
    return R"css(
:root{--q0:#d9480f;--q1:#0b4f9e;--q2:#3d8bcb;--q3:#86b8dc;--q4:#bccbd8}
@media (prefers-color-scheme:dark){:root{--q0:#ff9142;--q1:#8cc8ff;--q2:#4d92d0;--q3:#35638f;--q4:#33465a}}
.q0{stroke:var(--q0);color:var(--q0)}.q1{stroke:var(--q1);color:var(--q1)}.q2{stroke:var(--q2);color:var(--q2)}.q3{stroke:var(--q3);color:var(--q3)}
.q4{stroke:var(--q4);color:var(--q4)}.none{stroke:var(--o11);color:var(--o11)}
.k0{stroke:var(--q0);color:var(--q0)}.k1{stroke:var(--o1);color:var(--o1)}.k2{stroke:var(--o0);color:var(--o0)}.k3{stroke:var(--o7);color:var(--o7)}
.k4{stroke:var(--o6);color:var(--o6)}.k5{stroke:var(--o5);color:var(--o5)}.k6{stroke:var(--o9);color:var(--o9)}.k7{stroke:var(--o2);color:var(--o2)}
.k8{stroke:var(--o8);color:var(--o8)}.k9{stroke:var(--o11);color:var(--o11)}
.best,.front{stroke:var(--q0);color:var(--q0)}.ended{stroke:var(--q2);color:var(--q2)}.other{stroke:var(--o12);color:var(--o12)}
.verdict{margin-top:1rem;padding:1.8rem;overflow-wrap:anywhere}
.verdict h1 small{font-size:.55em;font-weight:500;color:var(--soft)}
.chips code{background:var(--code);border:1px solid var(--line);border-radius:6px;padding:.1rem .5rem}
.chart svg,.strip{overflow:visible}
.chart svg{height:190px}
.chart .plot{grid-template-columns:4.4rem minmax(0,1fr)}.chart .below{overflow-wrap:anywhere}
.chart figcaption{min-height:3.6rem;align-content:start}
.tall .chart svg{height:340px}.wide{display:grid;gap:1rem}.wide .chart svg{height:260px}
.tall,.wide,figure.card{margin-top:.8rem}
.charts .card,.wide .card,.tall .card{margin-top:0}
.dot{stroke-width:6;stroke-linecap:round;vector-effect:non-scaling-stroke;fill:none}
.dot.other{stroke-width:4}.dot.front{stroke-width:9}
.curve{stroke-linecap:round}
.curve.best{stroke-width:2.5}
.keys .round{width:9px;height:9px;border:0;border-radius:50%;background:currentColor;vertical-align:0}
.keys .none i{border-top-style:dashed}
main p{overflow-wrap:anywhere}
.scroll{overflow-x:auto}
.parallel{display:block;width:100%}
.parallel text{font-size:11px;fill:var(--soft);paint-order:stroke;stroke:var(--card);stroke-width:4px;stroke-linejoin:round}
.parallel .title{font-size:13px;font-weight:600;fill:var(--ink)}
.parallel .line{fill:none;stroke-width:1.6;stroke-linejoin:round;opacity:.9}
.parallel.dense .line{stroke-width:.8;opacity:.45}
.parallel .early,.parallel.dense .early{stroke-width:1;opacity:.4}
.parallel .none{stroke-dasharray:3 4;opacity:.5}
.parallel .rail{stroke:var(--soft);stroke-width:1.5}.parallel .goal{stroke-width:2.5}.parallel text.goal{stroke-width:4px}
.parallel .tick{stroke:var(--soft)}
.strip{display:block;width:11rem;max-width:100%;height:18px;margin-top:.2rem}
.strip .grid{stroke:var(--line);vector-effect:non-scaling-stroke}.strip .curve{stroke-width:3;vector-effect:non-scaling-stroke}
.finalists{margin-top:0;min-width:46rem}
.finalists td small{display:block;color:var(--soft)}
.finalists td:first-child{font-weight:700}
.settings code{display:inline-block;background:var(--code);border-radius:5px;padding:0 .35rem;margin:0 .15rem .2rem 0;overflow-wrap:anywhere}
.finalists dl{margin:.4rem 0 0}.finalists dd{margin:0 0 .5rem}.finalists pre{margin:0;white-space:pre-wrap;overflow-wrap:anywhere;max-height:16rem;overflow:auto}
.shares{margin-top:0}.shares{table-layout:fixed}.shares th{width:15rem;color:var(--ink);font-size:1rem;overflow-wrap:anywhere}.shares td{vertical-align:middle}.shares tr:last-child th{border-bottom:0}.shares .num{width:4.2rem}
.share{height:.9rem;min-width:2px;border-radius:4px;background:var(--q2)}
.rows{max-height:36rem;overflow:auto;padding:0}
#table{margin:0;font-size:.88rem;font-variant-numeric:tabular-nums}
#table th{position:sticky;top:0;background:var(--card);box-shadow:0 1px 0 var(--line);z-index:1;white-space:nowrap;vertical-align:bottom}
#table td{white-space:nowrap}
#table tbody tr{cursor:default}
.js #table tbody tr{cursor:pointer}
#table tbody tr:hover{background:var(--note-bg)}
#table tr.on,#table tr.on:hover{background:var(--mark)}
#table th button{font:inherit;color:inherit;background:none;border:0;padding:.2rem 0;cursor:pointer;text-align:left}
#table th button:hover{color:var(--ink);text-decoration:underline}
#table th[aria-sort] button{color:var(--ink);font-weight:700}
#table th[aria-sort=ascending] button::after{content:" \25b2"}#table th[aria-sort=descending] button::after{content:" \25bc"}
.chip.complete{background:var(--good-bg);color:var(--good)}.chip.failed,.chip.infeasible{background:var(--bad-bg);color:var(--bad)}
.chip.paused,.chip.running{background:var(--warn-bg);color:var(--warn)}
#chosen{min-height:1.6em;color:var(--soft);font-size:.9rem;overflow-wrap:anywhere}
.scripted{display:none}.js .scripted{display:inline}
[data-t]{cursor:pointer}
.parallel .line.on{stroke:var(--ink);stroke-width:4;opacity:1;stroke-dasharray:none}.dot.on{stroke:var(--ink);stroke-width:12}.curve.on{stroke:var(--ink);stroke-width:4}
.keys .on span{font-weight:700}
.run pre{white-space:pre-wrap;overflow-wrap:anywhere;background:var(--code);border:1px solid var(--line);border-radius:8px;padding:.6rem .9rem;margin:.4rem 0 1rem}
.run table{margin-top:.4rem}.run{overflow-wrap:anywhere}
@media (max-width:720px){.shares th{width:40%}.verdict{padding:1.2rem}.rows{padding:0}}
@media print{.rows{max-height:none;overflow:visible}#chosen{display:none}}
)css";
}

std::string_view page_script_hash() { return "s6zREZHl7ob0BTqCP06b7eLT15lhl+3v1xj/2EH4m1E="; }

std::string_view page_script() {
    // Everything the page says is there without it.
    return R"js(
"use strict";
document.documentElement.classList.add("js");
(function () {
  const table = document.getElementById("table");
  if (!table) return;
  const body = table.tBodies[0], names = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
  const chosen = document.getElementById("chosen"), region = table.parentNode;
  const rowOf = (trial) => document.getElementById("t" + trial);
  const said = (row) => [...row.cells].map((cell, at) => cell.textContent && names[at] + " " + cell.textContent).filter(Boolean).join(", ");

  function sort(at, down) {
    const key = (row) => {
      const cell = row.cells[at];
      return cell.dataset.v !== undefined ? Number(cell.dataset.v) : cell.querySelector(".chip") ? cell.textContent : null;
    };
    const rows = [...body.rows].map((row) => [key(row), row]);
    rows.sort(function ([a], [b]) {
      if (a === null || b === null) return (a === null) - (b === null);
      return (a < b ? -1 : a > b ? 1 : 0) * (down ? -1 : 1);
    });
    body.append(...rows.map((entry) => entry[1]));
  }
  for (const [at, cell] of [...table.tHead.rows[0].cells].entries()) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = cell.textContent;
    cell.replaceChildren(button);
    button.addEventListener("click", function () {
      const down = cell.getAttribute("aria-sort") === "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", down ? "descending" : "ascending");
      sort(at, down);
    });
  }

  let current = null;
  function choose(row, scroll) {
    for (const one of document.querySelectorAll(".on")) one.classList.remove("on");
    current = row === current ? null : row;
    chosen.textContent = current ? said(current) : "";
    if (!current) return;
    current.classList.add("on");
    for (const one of document.querySelectorAll('[data-t="' + current.id.slice(1) + '"]')) {
      one.classList.add("on");
      if (one.tagName === "path") one.parentNode.append(one);
    }
    if (!scroll) return;
    const top = current.offsetTop - table.tHead.offsetHeight;
    if (top < region.scrollTop) region.scrollTop = top;
    const end = current.offsetTop + current.offsetHeight - region.clientHeight;
    if (end > region.scrollTop) region.scrollTop = end;
  }
  body.addEventListener("click", (event) => choose(event.target.closest("tr"), false));
  region.addEventListener("keydown", function (event) {
    if (event.target !== region || !["ArrowDown", "ArrowUp"].includes(event.key)) return;
    event.preventDefault();
    const next = !current ? body.rows[0] : event.key === "ArrowDown" ? current.nextElementSibling : current.previousElementSibling;
    if (next) choose(next, true);
  });

  const tip = document.createElement("div");
  tip.id = "tip";
  tip.setAttribute("aria-hidden", "true");
  document.body.append(tip);
  // Lines are thin: what is a few pixels away counts.
  function near(event) {
    for (const [x, y] of [[0, 0], [0, 3], [0, -3], [3, 0], [-3, 0]]) {
      const one = document.elementFromPoint(event.clientX + x, event.clientY + y);
      const found = one && one.closest("[data-t]");
      if (found) return found;
    }
    return null;
  }
  document.addEventListener("pointermove", function (event) {
    const inside = event.target.closest && event.target.closest("svg, .keys"), found = inside && near(event);
    const row = found && rowOf(found.dataset.t);
    tip.style.display = row ? "block" : "none";
    if (!row) return;
    tip.textContent = said(row);
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8)) + "px";
    tip.style.top = (event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 18) + "px";
  });
  document.addEventListener("click", function (event) {
    const inside = event.target.closest("svg, .keys"), found = inside && near(event);
    if (found && rowOf(found.dataset.t)) choose(rowOf(found.dataset.t), true);
  });
})();
)js";
}

}  // namespace millrace::sweep
