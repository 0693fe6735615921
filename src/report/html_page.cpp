#include "report/html_page.h"

#include <fmt/format.h>

#include "plot/page.h"
#include "plot/svg.h"
#include "report/doctor_words.h"
#include "report/html_style.h"

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

}  // namespace millrace::report
