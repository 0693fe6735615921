#include "report/html_page.h"

#include <fmt/format.h>

#include "plot/page.h"
#include "plot/svg.h"
#include "report/doctor_words.h"

namespace millrace::report {

std::string_view html_script_hash() { return "G4PArFLONGDriHTI9D/LdzBREoil9vIiuyKYzmCRq5Q="; }

std::string_view html_script() {
    // Everything the page says is there without it; it zooms the timelines and shows what is under the pointer at once.
    return R"js(
"use strict";
document.documentElement.classList.add("js");
(function () {
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.setAttribute("aria-hidden", "true");
  document.body.append(tip);
  for (const title of document.querySelectorAll(".lane title, .bar title")) {
    title.parentNode.said = title.textContent;
    title.remove();
  }
  document.addEventListener("pointermove", function (event) {
    const said = event.target.said;
    tip.style.display = said ? "block" : "none";
    if (!said) return;
    tip.textContent = said;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8)) + "px";
    tip.style.top = (event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 18) + "px";
  });
  document.addEventListener("pointerleave", function () { tip.style.display = "none"; });
  for (const term of document.querySelectorAll(".term"))
    term.classList.toggle("left", term.getBoundingClientRect().left > innerWidth * 0.6);

  function ticks(first, last) {
    const span = last - first;
    let step = Math.pow(10, Math.floor(Math.log10(span / 4)));
    for (const factor of [5, 2]) if (span / (step * factor) >= 4) { step *= factor; break; }
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9)), out = [];
    for (let at = Math.ceil(first / step - 1e-9) * step; at <= last + step * 1e-6; at += step)
      out.push([(at - first) / span, at.toFixed(digits) + " ms"]);
    return out;
  }

  function zoomable(figure) {
    const whole = Number(figure.dataset.ms), pictures = figure.querySelectorAll(".lane svg"), axis = figure.querySelector(".ticks");
    const lanes = figure.querySelector(".lanes"), least = 1e-4;
    let begin = 0, end = 1;
    function show(from, to) {
      const width = Math.min(1, Math.max(least, to - from));
      begin = Math.min(Math.max(0, from), 1 - width);
      end = begin + width;
      for (const picture of pictures) picture.setAttribute("viewBox", begin * 10000 + " 0 " + width * 10000 + " 10");
      axis.replaceChildren(...ticks(begin * whole, end * whole).map(function (tick) {
        const label = document.createElement("span");
        label.textContent = tick[1];
        label.style.left = tick[0] * 100 + "%";
        if (tick[0] > 0.96) label.className = "end";
        return label;
      }));
    }
    function zoom(factor, middle) {
      const at = begin + (end - begin) * middle;
      show(at - (at - begin) / factor, at + (end - at) / factor);
    }
    function pan(share) { show(begin + (end - begin) * share, end + (end - begin) * share); }
    const actions = { in: () => zoom(2, 0.5), out: () => zoom(0.5, 0.5), all: () => show(0, 1) };
    for (const button of figure.querySelectorAll(".tools button"))
      button.addEventListener("click", () => actions[button.dataset.do]());
    figure.addEventListener("keydown", function (event) {
      const keys = { "+": actions.in, "=": actions.in, "-": actions.out, "0": actions.all, ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2) };
      if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      keys[event.key]();
    });
    const place = (event) => {
      const box = pictures[0].getBoundingClientRect();
      return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    };
    lanes.addEventListener("wheel", function (event) {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      zoom(Math.exp(-event.deltaY / 200), place(event));
    }, { passive: false });
    lanes.addEventListener("dblclick", () => show(0, 1));
    let from = null, mark = null;
    lanes.addEventListener("pointerdown", function (event) {
      if (event.button !== 0 || event.pointerType === "touch" || !event.target.closest(".lane")) return;
      from = place(event);
      mark = document.createElement("div");
      mark.className = "drag";
      figure.append(mark);
      event.preventDefault();
    });
    addEventListener("pointermove", function (event) {
      if (from === null) return;
      const to = place(event), outer = figure.getBoundingClientRect(), box = pictures[0].getBoundingClientRect();
      const rows = lanes.getBoundingClientRect();
      mark.style.left = box.left - outer.left + Math.min(from, to) * box.width + "px";
      mark.style.width = Math.abs(to - from) * box.width + "px";
      mark.style.top = rows.top - outer.top + "px";
      mark.style.height = rows.height + "px";
    });
    addEventListener("pointerup", function (event) {
      if (from === null) return;
      const to = place(event), width = end - begin, start = begin;
      mark.remove();
      if (Math.abs(to - from) > 0.005) show(start + Math.min(from, to) * width, start + Math.max(from, to) * width);
      from = null;
    });
  }
  for (const figure of document.querySelectorAll(".zoomable")) zoomable(figure);
})();
)js";
}

std::string html_term(std::string_view key, std::string_view text) {
    return fmt::format(R"(<span class="term" tabindex="0" aria-describedby="g-{0}" data-tip="{1}">{2}</span>)", key,
                       plot::xml_text(meaning_of(key)), plot::xml_text(text));
}

std::string html_page(std::string_view title, const std::string& body) {
    return plot::html_page(title, html_style(), {html_script(), html_script_hash()}, body);
}

std::string_view html_style() {
    return R"css(
.inside,.remarks{overflow-wrap:anywhere}
.hero>*,.finding>header>*{min-width:0}
.hero{display:grid;grid-template-columns:210px 1fr;gap:1rem 2.2rem;align-items:center;margin-top:1rem;padding:1.8rem}
.ring{width:100%;max-width:210px;display:block;margin:auto}
.ring circle{fill:none;stroke-width:13}
.ring .way{stroke:var(--faint)}
.ring .part{stroke:var(--o0);stroke-linecap:butt}
.ring .middling{stroke:var(--o3)}.ring .poor{stroke:var(--o4)}
.ring text{fill:var(--ink);text-anchor:middle;font-weight:750}
.ring .small{font-weight:500;fill:var(--soft)}
svg.fill{display:block;width:100%}
.bar{height:54px;border-radius:8px;overflow:hidden;background:var(--faint)}
.braces{display:flex;font-size:.85rem;color:var(--soft);margin-bottom:.3rem;gap:2px}
.braces span{border-bottom:2px solid currentColor;padding:0 .3rem .15rem;white-space:nowrap;overflow:hidden;text-overflow:ellipsis;min-width:0}
.braces .works{color:var(--good)}.braces .waits{color:var(--bad)}
.o0{fill:var(--o0)}.o1{fill:var(--o1)}.o2{fill:var(--o2)}.o3{fill:var(--o3)}.o4{fill:var(--o4)}.o5{fill:var(--o5)}.o6{fill:var(--o6)}.o7{fill:var(--o7)}
.o8{fill:var(--o8)}.o9{fill:var(--o9)}.o10{fill:var(--o10)}.o11{fill:var(--o11)}.o12{fill:var(--o12)}
.swatch{width:14px;height:14px;display:inline-block;vertical-align:-2px;margin-right:.5rem;border-radius:3px;overflow:hidden}
.owner b{font-weight:600}
.owner small{display:block;color:var(--soft);margin-left:1.6rem}
.finding{margin-top:1rem;padding:0;overflow:hidden}
.finding>header{max-width:none;margin:0;display:grid;grid-template-columns:auto 1fr auto;gap:.2rem 1rem;align-items:start;padding:1.15rem 1.4rem}
.rank{width:2.1rem;height:2.1rem;border-radius:50%;display:grid;place-items:center;font-weight:750;background:var(--note-bg)}
.critical .rank{background:var(--bad-bg);color:var(--bad)}.warning .rank{background:var(--warn-bg);color:var(--warn)}
.lost{text-align:right}
.lost b{font-size:1.5rem;font-variant-numeric:tabular-nums;display:block;line-height:1.15;white-space:nowrap}
.lost span{color:var(--soft);font-size:.85rem}
.critical .severity{background:var(--bad-bg);color:var(--bad)}.warning .severity{background:var(--warn-bg);color:var(--warn)}
.where{font-weight:600;overflow-wrap:anywhere}
.inside{padding:0 1.4rem 1.2rem}
.quote{margin:.2rem 0 .8rem;background:var(--code);border:1px solid var(--line);border-radius:8px;overflow-x:auto}
.quote pre{margin:0;padding:.5rem 0;line-height:1.5;min-width:max-content}
.quote .row{display:block;padding:0 1rem}
.quote .n{display:inline-block;width:3.4em;color:var(--soft);user-select:none;text-align:right;padding-right:1em}
.quote .hit{background:var(--mark);box-shadow:inset 4px 0 0 var(--o4);font-weight:600}
.fix{background:var(--good-bg);border-radius:10px;padding:.75rem 1rem;margin:.8rem 0;border-left:5px solid var(--good)}
.fix b{color:var(--good);display:block;font-size:.85rem}
.facts{display:flex;flex-wrap:wrap;gap:.2rem 2rem;color:var(--soft);font-size:.92rem}
.facts b{color:var(--ink)}
.stack{margin:.4rem 0 0;padding-left:1.4rem;font-size:.9rem;overflow-wrap:anywhere}
.term{border-bottom:1.5px dotted var(--soft);cursor:help;position:relative}
.term:hover::after,.term:focus::after{content:attr(data-tip);position:absolute;left:0;top:1.7em;z-index:10;width:max-content;max-width:min(21rem,84vw);background:var(--ink);color:var(--paper);
font-size:.85rem;font-weight:400;line-height:1.4;padding:.5rem .75rem;border-radius:8px;white-space:normal;text-align:left;letter-spacing:0}
.term.left:hover::after,.term.left:focus::after{left:auto;right:0}
.steps{display:grid;gap:1rem;margin-top:.8rem}
.tools{display:none;gap:.35rem}
.js .tools{display:flex}
.tools button{font:inherit;font-size:.85rem;border:1px solid var(--line);background:var(--card);color:var(--ink);border-radius:8px;padding:.15rem .7rem;cursor:pointer}
.tools button:hover{background:var(--note-bg)}
.lanes{display:grid;grid-template-columns:max-content 1fr;gap:.35rem .8rem;align-items:center}
.lanes .name{font-size:.85rem;color:var(--soft);text-align:right}
.lanes .lane{background:var(--faint);border-radius:5px;overflow:hidden;touch-action:pan-y}
.js .zoomable .lane{cursor:crosshair}
.lane svg{display:block;width:100%;height:26px}
.lane.tall svg{height:42px}
.lane .busy{opacity:.28}
.lane.calls rect{opacity:.6}
.lane rect:hover{stroke:var(--ink);stroke-width:1.5;vector-effect:non-scaling-stroke}
.drag{position:absolute;background:var(--link);opacity:.22;pointer-events:none}
.zoomable{position:relative}
.charts .chart:first-child{grid-column:1/-1}.charts .chart:last-child:nth-child(2){grid-column:1/-1}
.glossary{display:grid;grid-template-columns:max-content 1fr;gap:.35rem 1.2rem;margin:.8rem 0 0}
.glossary dt{font-weight:600}.glossary dd{margin:0;color:var(--soft)}
.remarks{padding-left:1.2rem;margin:.5rem 0}
@media (max-width:720px){
.hero{grid-template-columns:1fr;padding:1.2rem;text-align:left}.ring{max-width:170px}
.finding{padding:0}.inside{padding:0 1rem 1rem}
.finding>header{grid-template-columns:auto 1fr;padding:1rem}.lost{grid-column:1/-1;text-align:left;display:flex;gap:.6rem;align-items:baseline}
.owner small{margin-left:0}
.lanes{grid-template-columns:1fr}.lanes .name{text-align:left;margin-top:.2rem}
.glossary{grid-template-columns:1fr;gap:0}.glossary dd{margin-bottom:.6rem}
.term:hover::after,.term:focus::after{position:fixed;left:1rem;right:1rem;top:auto;bottom:1rem;width:auto;max-width:none}
}
@media (prefers-reduced-motion:no-preference){.ring .part{animation:fill 1s ease-out}@keyframes fill{from{stroke-dasharray:0 1000}}}
)css";
}

}  // namespace millrace::report
