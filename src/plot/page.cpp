#include "plot/page.h"

#include <fmt/format.h>

#include "plot/svg.h"

namespace millrace::plot {

std::string html_page(std::string_view title, std::string_view style, const PageScript& script, std::string_view body) {
    return fmt::format(R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; script-src 'sha256-{}'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{}</title>
<link rel="icon" href="data:,">
<style>{}{}</style>
</head>
<body>
{}<script>{}</script>
</body>
</html>
)",
                       script.sha256, xml_text(title), page_style(), style, body, script.text);
}

std::string_view page_style() {
    return R"css(
:root{color-scheme:light dark;--paper:#f6f7f9;--card:#fff;--ink:#1a2230;--soft:#566072;--faint:#e3e7ed;--line:#d3d9e2;--link:#0b5cad;
--good:#0b7457;--good-bg:#e2f4ed;--warn:#8a5300;--warn-bg:#fdf0d9;--bad:#b3202d;--bad-bg:#fde8e8;--note-bg:#e9eef6;--code:#f1f3f7;--mark:#fff1c2;
--o0:#149a74;--o1:#1f8fd0;--o2:#6d8fe3;--o3:#e58e1f;--o4:#dc4553;--o5:#b54a97;--o6:#cda511;--o7:#8158cc;--o8:#93724a;--o9:#668a43;--o10:#c86f4e;--o11:#7f8a9a;--o12:#b7bfcb;
--shadow:0 1px 2px rgba(20,30,50,.06),0 6px 24px rgba(20,30,50,.06)}
@media (prefers-color-scheme:dark){:root{--paper:#10141b;--card:#181e28;--ink:#e7ecf3;--soft:#a3aebf;--faint:#262e3b;--line:#343e4e;--link:#7cb8ff;
--good:#5fd3ac;--good-bg:#123129;--warn:#f3b95f;--warn-bg:#38290f;--bad:#ff8b91;--bad-bg:#3d1a1f;--note-bg:#212b3a;--code:#11161e;--mark:#43380f;
--o0:#29b98e;--o1:#43a9e8;--o2:#8aa7f2;--o3:#f0a040;--o4:#f0606c;--o5:#d06ab3;--o6:#dcb932;--o7:#a07be6;--o8:#b08f63;--o9:#86ab60;--o10:#e08a69;--o11:#97a2b3;--o12:#5b6677;
--shadow:none}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue","DejaVu Sans",Arial,sans-serif}
main,header,footer{max-width:1080px;margin:0 auto;padding:0 1.25rem}
h1,h2,h3{line-height:1.2;margin:0;letter-spacing:-.01em;text-wrap:balance}
h1{font-size:clamp(1.6rem,4.4vw,2.5rem);font-weight:750}
h2{font-size:1.35rem;margin:2.75rem 0 .35rem}
h3{font-size:1.1rem}
p{margin:.4rem 0}
a{color:var(--link)}
a:focus-visible,button:focus-visible,summary:focus-visible,[tabindex]:focus-visible{outline:3px solid var(--link);outline-offset:2px;border-radius:4px}
code,pre{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:.9em}
.soft{color:var(--soft)}
.lead{font-size:1.12rem}
.skip{position:absolute;left:-100vw;background:var(--card);padding:.5rem 1rem}
.skip:focus{left:0;z-index:20}
.top{display:flex;flex-wrap:wrap;gap:.25rem 1rem;align-items:baseline;padding-top:1.1rem;color:var(--soft);font-size:.9rem}
.top b{color:var(--ink);letter-spacing:.02em}
.top,.top code,figcaption{overflow-wrap:anywhere}
.card{background:var(--card);border:1px solid var(--line);border-radius:14px;box-shadow:var(--shadow);padding:1.4rem}
.first{display:block;margin-top:1rem;padding:.8rem 1rem;border-radius:10px;background:var(--note-bg);border-left:5px solid var(--link);overflow-wrap:anywhere}
.first.fine{background:var(--good-bg);border-color:var(--good)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:.8rem;margin:.9rem 0 0;padding:0}
.tiles div{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:.7rem 1rem}
.tiles dt{color:var(--soft);font-size:.85rem}
.tiles dd{margin:0;font-size:1.3rem;font-weight:700;font-variant-numeric:tabular-nums}
.tiles dd small{font-size:.8rem;font-weight:400;color:var(--soft);display:block;line-height:1.3}
table{border-collapse:collapse;width:100%;margin-top:.9rem}
th{font-size:.85rem;color:var(--soft);font-weight:500;text-align:left}
td,th{padding:.42rem .5rem;border-bottom:1px solid var(--faint);vertical-align:top}
tr:last-child td{border-bottom:0}
.num{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.chips{display:flex;flex-wrap:wrap;gap:.4rem;margin-top:.45rem;align-items:center}
.chip{font-size:.78rem;border-radius:99px;padding:.1rem .65rem;background:var(--note-bg);color:var(--ink)}
details{margin-top:.6rem}
summary{cursor:pointer;color:var(--link);width:max-content;max-width:100%}
figure{margin:0}
figcaption{display:flex;flex-wrap:wrap;gap:.3rem 1rem;align-items:baseline;justify-content:space-between;margin-bottom:.7rem}
.ticks{position:relative;height:1.5rem;font-size:.78rem;color:var(--soft);font-variant-numeric:tabular-nums}
.ticks span{position:absolute;transform:translateX(-50%);white-space:nowrap}
.ticks span::before{content:"";position:absolute;left:50%;top:-.3rem;height:.3rem;border-left:1px solid var(--soft)}
.ticks .begin{transform:none}.ticks .begin::before{left:0}
.ticks .end{transform:translateX(-100%)}.ticks .end::before{left:100%}
.keys{display:flex;flex-wrap:wrap;gap:.25rem 1.2rem;margin:.6rem 0 0;padding:0;list-style:none;font-size:.88rem}
#tip{position:fixed;z-index:30;pointer-events:none;background:var(--ink);color:var(--paper);border-radius:8px;padding:.4rem .7rem;font-size:.85rem;max-width:min(30rem,90vw);overflow-wrap:anywhere;display:none}
.charts{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:1rem;margin-top:.8rem}
.chart .plot{display:grid;grid-template-columns:3.4rem 1fr;gap:0 .5rem}
.chart .values{position:relative;font-size:.78rem;color:var(--soft);font-variant-numeric:tabular-nums}
.chart .values span{position:absolute;right:0;transform:translateY(-50%);white-space:nowrap}
.chart svg{display:block;width:100%;height:130px;background:var(--card)}
.chart .below{font-size:.78rem;color:var(--soft);text-align:right}
.chart .grid{stroke:var(--faint);stroke-width:1;vector-effect:non-scaling-stroke}
.chart .curve{fill:none;stroke-width:2;vector-effect:non-scaling-stroke;stroke-linejoin:round}
.chart .area{opacity:.16;stroke:none}
.c0{stroke:var(--o0);color:var(--o0)}.c1{stroke:var(--o1);color:var(--o1)}.c2{stroke:var(--o7);color:var(--o7)}.c3{stroke:var(--o3);color:var(--o3)}
.area.c0{fill:var(--o0)}.area.c1{fill:var(--o1)}.area.c2{fill:var(--o7)}.area.c3{fill:var(--o3)}
.keys i{display:inline-block;width:18px;height:0;border-top:3px solid currentColor;margin-right:.45rem;vertical-align:4px}
.keys span{color:var(--ink)}
footer{padding:2.2rem 1.25rem 2.5rem;color:var(--soft);font-size:.85rem}
@media (max-width:720px){.card{padding:1rem}.charts{grid-template-columns:minmax(0,1fr)}}
@media print{:root{--paper:#fff;--shadow:none}body{font-size:11pt}.tools,.skip{display:none!important}.card,figure,tr{break-inside:avoid}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}h2{break-after:avoid}}
)css";
}

}  // namespace millrace::plot
