#include "report/html_style.h"

namespace millrace::report {

std::string_view html_style() {
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
.top,.top code,.inside,.remarks,figcaption{overflow-wrap:anywhere}
.hero>*,.finding>header>*{min-width:0}
.card{background:var(--card);border:1px solid var(--line);border-radius:14px;box-shadow:var(--shadow);padding:1.4rem}
.hero{display:grid;grid-template-columns:210px 1fr;gap:1rem 2.2rem;align-items:center;margin-top:1rem;padding:1.8rem}
.ring{width:100%;max-width:210px;display:block;margin:auto}
.ring circle{fill:none;stroke-width:13}
.ring .way{stroke:var(--faint)}
.ring .part{stroke:var(--o0);stroke-linecap:butt}
.ring .middling{stroke:var(--o3)}.ring .poor{stroke:var(--o4)}
.ring text{fill:var(--ink);text-anchor:middle;font-weight:750}
.ring .small{font-weight:500;fill:var(--soft)}
.first{display:block;margin-top:1rem;padding:.8rem 1rem;border-radius:10px;background:var(--note-bg);border-left:5px solid var(--link);overflow-wrap:anywhere}
.first.fine{background:var(--good-bg);border-color:var(--good)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:.8rem;margin:.9rem 0 0;padding:0}
.tiles div{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:.7rem 1rem}
.tiles dt{color:var(--soft);font-size:.85rem}
.tiles dd{margin:0;font-size:1.3rem;font-weight:700;font-variant-numeric:tabular-nums}
.tiles dd small{font-size:.8rem;font-weight:400;color:var(--soft);display:block;line-height:1.3}
svg.fill{display:block;width:100%}
.bar{height:54px;border-radius:8px;overflow:hidden;background:var(--faint)}
.braces{display:flex;font-size:.85rem;color:var(--soft);margin-bottom:.3rem;gap:2px}
.braces span{border-bottom:2px solid currentColor;padding:0 .3rem .15rem;white-space:nowrap;overflow:hidden;text-overflow:ellipsis;min-width:0}
.braces .works{color:var(--good)}.braces .waits{color:var(--bad)}
)css"
           R"css(
.o0{fill:var(--o0)}.o1{fill:var(--o1)}.o2{fill:var(--o2)}.o3{fill:var(--o3)}.o4{fill:var(--o4)}.o5{fill:var(--o5)}.o6{fill:var(--o6)}.o7{fill:var(--o7)}
.o8{fill:var(--o8)}.o9{fill:var(--o9)}.o10{fill:var(--o10)}.o11{fill:var(--o11)}.o12{fill:var(--o12)}
table{border-collapse:collapse;width:100%;margin-top:.9rem}
th{font-size:.85rem;color:var(--soft);font-weight:500;text-align:left}
td,th{padding:.42rem .5rem;border-bottom:1px solid var(--faint);vertical-align:top}
tr:last-child td{border-bottom:0}
.num{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
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
.chips{display:flex;flex-wrap:wrap;gap:.4rem;margin-top:.45rem;align-items:center}
.chip{font-size:.78rem;border-radius:99px;padding:.1rem .65rem;background:var(--note-bg);color:var(--ink)}
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
details{margin-top:.6rem}
summary{cursor:pointer;color:var(--link);width:max-content;max-width:100%}
.stack{margin:.4rem 0 0;padding-left:1.4rem;font-size:.9rem;overflow-wrap:anywhere}
.term{border-bottom:1.5px dotted var(--soft);cursor:help;position:relative}
.term:hover::after,.term:focus::after{content:attr(data-tip);position:absolute;left:0;top:1.7em;z-index:10;width:max-content;max-width:min(21rem,84vw);background:var(--ink);color:var(--paper);
font-size:.85rem;font-weight:400;line-height:1.4;padding:.5rem .75rem;border-radius:8px;white-space:normal;text-align:left;letter-spacing:0}
.term.left:hover::after,.term.left:focus::after{left:auto;right:0}
)css"
           R"css(
.steps{display:grid;gap:1rem;margin-top:.8rem}
figure{margin:0}
figcaption{display:flex;flex-wrap:wrap;gap:.3rem 1rem;align-items:baseline;justify-content:space-between;margin-bottom:.7rem}
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
.ticks{position:relative;height:1.5rem;font-size:.78rem;color:var(--soft);font-variant-numeric:tabular-nums}
.ticks span{position:absolute;transform:translateX(-50%);white-space:nowrap}
.ticks span::before{content:"";position:absolute;left:50%;top:-.3rem;height:.3rem;border-left:1px solid var(--soft)}
.ticks span:first-child{transform:none}.ticks span:first-child::before{left:0}
.ticks .end{transform:translateX(-100%)}.ticks .end::before{left:100%}
.keys{display:flex;flex-wrap:wrap;gap:.25rem 1.2rem;margin:.6rem 0 0;padding:0;list-style:none;font-size:.88rem}
.drag{position:absolute;background:var(--link);opacity:.22;pointer-events:none}
.zoomable{position:relative}
#tip{position:fixed;z-index:30;pointer-events:none;background:var(--ink);color:var(--paper);border-radius:8px;padding:.4rem .7rem;font-size:.85rem;max-width:min(30rem,90vw);overflow-wrap:anywhere;display:none}
.charts{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:1rem;margin-top:.8rem}
.charts .chart:first-child{grid-column:1/-1}.charts .chart:last-child:nth-child(2){grid-column:1/-1}
.chart .plot{display:grid;grid-template-columns:3.4rem 1fr;gap:0 .5rem}
.chart .values{position:relative;font-size:.78rem;color:var(--soft);font-variant-numeric:tabular-nums}
.chart .values span{position:absolute;right:0;transform:translateY(-50%);white-space:nowrap}
.chart svg{display:block;width:100%;height:130px;background:var(--card)}
.chart .grid{stroke:var(--faint);stroke-width:1;vector-effect:non-scaling-stroke}
.chart .curve{fill:none;stroke-width:2;vector-effect:non-scaling-stroke;stroke-linejoin:round}
.chart .area{opacity:.16;stroke:none}
.c0{stroke:var(--o0);color:var(--o0)}.c1{stroke:var(--o1);color:var(--o1)}.c2{stroke:var(--o7);color:var(--o7)}.c3{stroke:var(--o3);color:var(--o3)}
.area.c0{fill:var(--o0)}.area.c1{fill:var(--o1)}.area.c2{fill:var(--o7)}.area.c3{fill:var(--o3)}
.keys i{display:inline-block;width:18px;height:0;border-top:3px solid currentColor;margin-right:.45rem;vertical-align:4px}
.keys span{color:var(--ink)}
.glossary{display:grid;grid-template-columns:max-content 1fr;gap:.35rem 1.2rem;margin:.8rem 0 0}
.glossary dt{font-weight:600}.glossary dd{margin:0;color:var(--soft)}
.remarks{padding-left:1.2rem;margin:.5rem 0}
footer{padding:2.2rem 1.25rem 2.5rem;color:var(--soft);font-size:.85rem}
@media (max-width:720px){
.hero{grid-template-columns:1fr;padding:1.2rem;text-align:left}.ring{max-width:170px}
.card{padding:1rem}.finding{padding:0}.inside{padding:0 1rem 1rem}
.finding>header{grid-template-columns:auto 1fr;padding:1rem}.lost{grid-column:1/-1;text-align:left;display:flex;gap:.6rem;align-items:baseline}
.owner small{margin-left:0}
.charts{grid-template-columns:minmax(0,1fr)}
.lanes{grid-template-columns:1fr}.lanes .name{text-align:left;margin-top:.2rem}
.glossary{grid-template-columns:1fr;gap:0}.glossary dd{margin-bottom:.6rem}
.term:hover::after,.term:focus::after{position:fixed;left:1rem;right:1rem;top:auto;bottom:1rem;width:auto;max-width:none}
}
@media (prefers-reduced-motion:no-preference){.ring .part{animation:fill 1s ease-out}@keyframes fill{from{stroke-dasharray:0 1000}}}
@media print{:root{--paper:#fff;--shadow:none}body{font-size:11pt}.tools,.skip{display:none!important}.card,.finding,figure,tr{break-inside:avoid}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}h2{break-after:avoid}}
)css";
}

}  // namespace millrace::report
