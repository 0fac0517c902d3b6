"""The report's look on top of the explanation page's: light, dark, narrow and printed.

The colours are Okabe and Ito's, which people with any colour vision tell apart, made darker on white paper and lighter
on dark; nothing is told by colour alone.
"""

from diptych.explain.page_parts import STYLE as BASE

LIGHT = """--p0: #0b63b5; --p1: #c2470a; --p2: #0a7d5a; --p3: #a3478a; --p4: #876500; --p5: #2f86b8; --p6: #565d6c;
  --right: #0a7d5a; --right-paper: #e2f4ec; --also: #876500; --card: #f7f8fa; --warn: #fff3dc; --warn-line: #e0a93a;"""
DARK = """--p0: #62aef5; --p1: #f5935c; --p2: #3fc79a; --p3: #e59acb; --p4: #e3bd4f; --p5: #a6d8f7; --p6: #b9bfcd;
  --right: #45cf9f; --right-paper: #12362a; --also: #e3bd4f; --card: #1d2029; --warn: #33290f; --warn-line: #8f6c1e;"""
PAPER = """--paper: #fff; --ink: #21252e; --faint: #565c69; --line: #d5d9e0;"""

STYLE = f"""{BASE}
:root {{ {LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ {DARK} }} }}
html {{ scroll-behavior: smooth; }}
main {{ max-width: 74rem; }}
h1 {{ font-size: 1.9rem; line-height: 1.2; color: var(--ink); margin: .5rem 0 .25rem; }}
h2 {{ font-size: 1.3rem; margin: 3rem 0 .5rem; padding-top: .75rem; border-top: 1px solid var(--line); }}
h3 {{ font-size: 1.02rem; margin: 1.75rem 0 .5rem; }}
p {{ max-width: 46rem; margin: .5rem 0; }}
a {{ color: var(--p0); }}
code {{ font: .92em ui-monospace, monospace; }}
pre {{ font: .82rem/1.45 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; padding: .75rem;
  background: var(--card); border: 1px solid var(--line); border-radius: .5rem; }}
.state {{ display: inline-block; font-size: .85rem; border: 1px solid var(--line); border-radius: 1rem;
  padding: .05rem .7rem; color: var(--faint); }}
nav ul {{ display: flex; flex-wrap: wrap; gap: .25rem 1.1rem; list-style: none; padding: 0; margin: 1rem 0; }}
.tallies {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: .75rem;
  margin: 1.25rem 0; }}
.tallies div {{ background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: .6rem .8rem; }}
.tallies dt {{ color: var(--faint); font-size: .82rem; }}
.tallies dd {{ margin: 0; font-size: 1.45rem; font-weight: 600; font-variant-numeric: tabular-nums; line-height: 1.3; }}
.tallies small {{ display: block; color: var(--faint); font-size: .78rem; font-weight: 400; line-height: 1.35; }}
.warnings {{ list-style: none; padding: 0; margin: 1rem 0; max-width: 60rem; }}
.warnings li {{ background: var(--warn); border-left: .3rem solid var(--warn-line); border-radius: .3rem;
  padding: .45rem .8rem; margin: .4rem 0; overflow-wrap: anywhere; }}
.facts {{ display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: .25rem 1.25rem; margin: .75rem 0; }}
.facts dt {{ color: var(--faint); }}
.facts dd {{ margin: 0; overflow-wrap: anywhere; }}
.charts {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 21.5rem), 1fr)); gap: 1.5rem;
  margin: 1rem 0; align-items: start; }}
.charts.matrices {{ grid-template-columns: repeat(auto-fill, minmax(min(100%, 30rem), 1fr)); }}
.charts.pairs {{ grid-template-columns: repeat(auto-fill, minmax(min(100%, 26rem), 1fr)); max-width: 64rem; }}
.chart, .matrix {{ min-width: 0; }}
.chart > svg {{ width: 100%; height: auto; display: block; max-width: 52rem; }}
figcaption {{ min-height: 0; margin: 0 0 .35rem; color: var(--ink); font-weight: 600; font-size: .95rem; }}
.tick, .name {{ font: 13px system-ui, sans-serif; fill: var(--faint); }}
.middle {{ text-anchor: middle; }}
.end {{ text-anchor: end; }}
.rule, .box {{ stroke: var(--line); stroke-width: 1; }}
.base {{ stroke: var(--faint); stroke-width: 1; }}
.mark {{ stroke: var(--faint); stroke-width: 1.2; stroke-dasharray: 2 3; }}
.c0 {{ --c: var(--p0); }} .c1 {{ --c: var(--p1); }} .c2 {{ --c: var(--p2); }} .c3 {{ --c: var(--p3); }}
.c4 {{ --c: var(--p4); }} .c5 {{ --c: var(--p5); }} .c6 {{ --c: var(--p6); }}
.stroke {{ fill: none; stroke: var(--c); stroke-width: 2; stroke-linejoin: round; }}
.band {{ fill: var(--c); opacity: .16; }}
.point {{ fill: var(--c); stroke: var(--c); stroke-width: 1.3; fill-opacity: .85; }}
.point.hollow {{ fill-opacity: .12; }}
.bar-mark {{ fill: var(--c); stroke: var(--c); stroke-width: 1; }}
.bar-mark.hollow {{ fill-opacity: .18; }}
.cells {{ image-rendering: pixelated; }}
.legend {{ display: flex; flex-wrap: wrap; gap: .1rem 1rem; list-style: none; padding: 0; margin: .3rem 0;
  font-size: .85rem; }}
.legend li {{ display: flex; align-items: center; gap: .4rem; }}
.swatch {{ width: 22px; height: 14px; flex: none; }}
details {{ margin: .4rem 0; }}
summary {{ color: var(--faint); font-size: .88rem; }}
.wide {{ overflow-x: auto; max-height: 26rem; }}
.wide table {{ width: auto; min-width: min(100%, 24rem); margin: .25rem 0; }}
thead th {{ color: var(--faint); vertical-align: bottom; }}
th {{ font-weight: 500; }}
td, thead th + th {{ text-align: right; }}
thead th[colspan] {{ text-align: center; }}
.recall thead td + th, .recall thead th {{ text-align: right; }} .recall thead th[colspan] {{ text-align: center; }}
.recall {{ font-size: .95rem; }}
.recall .ours th, .recall .ours td {{ font-weight: 600; }}
.recall tbody th {{ min-width: 13rem; }}
.recall small {{ display: block; color: var(--faint); font-weight: 400; }}
.query {{ border: 1px solid var(--line); border-radius: .6rem; padding: .75rem .9rem; margin: .8rem 0; }}
.query > p {{ margin: 0 0 .5rem; max-width: none; }}
.query q {{ font-weight: 600; }}
.tiles {{ display: grid; grid-template-columns: repeat(5, minmax(0, 1fr)); gap: .6rem; list-style: none;
  padding: 0; margin: 0; }}
.tile {{ border: 2px solid var(--line); border-radius: .5rem; overflow: hidden; font-size: .82rem; }}
.tile img, .tile .blank {{ display: block; width: 100%; aspect-ratio: 1; object-fit: contain;
  background: var(--card); }}
.blank {{ padding: .5rem; overflow: hidden; color: var(--faint); font-size: .8rem; line-height: 1.35;
  overflow-wrap: anywhere; }}
.tile .told {{ display: flex; flex-wrap: wrap; justify-content: space-between; gap: 0 .5rem; padding: .2rem .45rem; }}
.score {{ color: var(--faint); font-variant-numeric: tabular-nums; }}
.tile.right {{ border-color: var(--right); background: var(--right-paper); }}
.tile.also {{ border-color: var(--also); border-style: dashed; }}
.sign {{ font-weight: 700; }}
.right .sign {{ color: var(--right); }}
.also .sign {{ color: var(--also); }}
.side {{ display: grid; grid-template-columns: 10rem minmax(0, 1fr); gap: 1rem; }}
.side > .tile {{ align-self: start; }}
.found {{ list-style: none; padding: 0; margin: 0; }}
.found li {{ display: grid; grid-template-columns: 1.4rem 3.6rem minmax(0, 1fr); gap: .4rem; padding: .22rem .5rem;
  border-left: 3px solid var(--line); margin: .2rem 0; }}
.found li.right {{ border-color: var(--right); background: var(--right-paper); }}
.found li.also {{ border-left-style: dashed; border-color: var(--also); }}
.hidden {{ position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }}
.wide .confusion {{ width: auto; min-width: 0; font-size: .78rem; }}
.confusion td {{ text-align: center; min-width: 2.1rem; padding: .15rem .2rem; border: 1px solid var(--line);
  background: rgba(232, 118, 10, var(--w, 0)); }}
.confusion thead th {{ font-weight: 400; padding: .3rem .15rem; border: 0; }}
.confusion thead th + th {{ text-align: center; }}
.confusion.long thead th + th {{ writing-mode: vertical-rl; transform: rotate(180deg); text-align: left;
  vertical-align: middle; }}
.confusion tbody th {{ font-weight: 400; text-align: right; border: 0; white-space: nowrap; }}
.confusion .none {{ color: var(--line); }}
footer {{ margin-top: 3rem; border-top: 1px solid var(--line); padding-top: .75rem; color: var(--faint);
  font-size: .88rem; }}
@media screen and (max-width: 46rem) {{
  .facts {{ grid-template-columns: 1fr; gap: 0; }} .facts dd {{ margin-bottom: .5rem; }}
  .tiles {{ grid-template-columns: repeat(2, minmax(0, 1fr)); }}
  .side {{ grid-template-columns: 1fr; }} .side > .tile {{ max-width: 12rem; }}
  .recall tbody th {{ min-width: 8rem; }} .wide th, .wide td {{ padding: .15rem .35rem; }}
  h1 {{ font-size: 1.5rem; }} .tallies {{ grid-template-columns: repeat(2, 1fr); }}
}}
@media print {{
  :root {{ color-scheme: light; {PAPER} {LIGHT} }}
  body {{ font-size: 10.5pt; }} main {{ max-width: none; padding: 0; }}
  nav, details:not([open]), summary {{ display: none; }}
  h2 {{ margin-top: 1.5rem; }} h2, h3, figcaption, thead {{ break-after: avoid; }}
  figure, .query, .tallies, tr, .warnings li, .matrix {{ break-inside: avoid; }}
  .charts, .charts.pairs {{ grid-template-columns: 1fr 1fr; gap: 1rem; }}
  .wide {{ overflow: visible; max-height: none; }}
  .recall {{ font-size: 8.5pt; }} .recall th, .recall td {{ padding: .1rem .25rem; }}
  .charts.matrices {{ grid-template-columns: 1fr 1fr; }} .wide .confusion {{ font-size: 6.5pt; }}
  .confusion td {{ min-width: 1.45rem; padding: .1rem; }}
  p {{ break-inside: avoid; }} h2 + p, h3 + p {{ break-after: avoid; }}
  .tallies {{ grid-template-columns: repeat(3, 1fr); }}
  .tiles {{ grid-template-columns: repeat(5, minmax(0, 1fr)); }} .side {{ grid-template-columns: 7rem minmax(0, 1fr); }}
  * {{ print-color-adjust: exact; }}
}}
"""
