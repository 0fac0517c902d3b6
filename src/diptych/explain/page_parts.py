"""Style and script of the explanation page: light and dark, no outside requests."""

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #fff; --ink: #21252e; --faint: #686e7c; --line: #dfe2e8; --warm: 244, 140, 20; --cold: 66, 120, 214;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #16181f; --ink: #e8eaf0; --faint: #9aa1b1; --line: #343946; --warm: 226, 122, 16; --cold: 80, 130, 230;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 68rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; }
h1 { font-size: 1rem; font-weight: 600; margin: 0 0 .25rem; color: var(--faint); }
button { font: inherit; color: inherit; border: 1px solid transparent; border-radius: .4rem; padding: .1rem .4rem;
  background: none; cursor: pointer; }
button:hover, button:focus-visible, button.on { border-color: currentColor; outline: none; }
.words { display: flex; flex-wrap: wrap; gap: .3rem; margin: .5rem 0 1rem; font-size: 1.2rem; }
.pair { display: grid; grid-template-columns: minmax(0, 3fr) minmax(0, 2fr); gap: 1.75rem; }
@media (max-width: 46rem) { .pair { grid-template-columns: 1fr; } }
figure { margin: 0; }
.stage { position: relative; border-radius: .5rem; overflow: hidden; }
.stage img { width: 100%; display: block; }
.stage canvas, .stage svg { position: absolute; inset: 0; width: 100%; height: 100%; }
.stage canvas { pointer-events: none; }
.stage rect { fill: transparent; vector-effect: non-scaling-stroke; cursor: pointer; outline: none; }
.stage rect.on { stroke-dasharray: 6 3; }
.chips { display: flex; flex-wrap: wrap; gap: .3rem; }
.chips button, td button { border-color: var(--line); }
figcaption { min-height: 3em; margin-top: .4rem; }
figcaption, .note, caption { color: var(--faint); font-size: .9rem; text-align: left; }
label { display: block; margin: .1rem 0; }
fieldset { border: 1px solid var(--line); border-radius: .5rem; margin: 0 0 1rem; }
table { border-collapse: collapse; font-size: .9rem; width: 100%; margin-bottom: 1rem; }
th, td { text-align: left; padding: .15rem .5rem; border-bottom: 1px solid var(--line); font-weight: normal; }
td { font-variant-numeric: tabular-nums; white-space: nowrap; }
.bar { display: inline-block; height: .6rem; border-radius: .2rem; background: rgb(var(--warm)); }
.bar.less { background: rgb(var(--cold)); }
summary { cursor: pointer; }
@media print { fieldset { display: none; } body { font-size: 12px; } .words button, .bar {
  print-color-adjust: exact; } }
"""

# Everything hangs on `paint` (a map over the regions) and `shade` (values of the words); `rest` shows the whole pair.
SCRIPT = """
'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const values = name => data.arrays[name] ? data.arrays[name].values : null;
const all = selector => [...document.querySelectorAll(selector)];
const words = all('.words button');
const regions = all('[data-region]').sort((a, b) => a.dataset.region - b.dataset.region);
const canvas = document.querySelector('canvas');
const note = document.getElementById('now');
const cells = data.grid ? data.grid[0] * data.grid[1] : 0;
const ramp = [[40, 22, 92], [122, 28, 116], [196, 50, 92], [240, 104, 46], [252, 176, 36], [252, 244, 150]];
const turned = rows => rows[0].map((_, j) => rows.map(row => row[j]));
const positive = rows => rows.map(row => row.map(x => Math.max(0, x)));
let mode = all('input[name=mode]').filter(e => e.checked).map(e => e.value)[0];
let pinned = null;

function colour(value) {
  const place = Math.min(1, Math.max(0, value)) * 5, low = Math.min(4, Math.floor(place)), part = place - low;
  return ramp[low].map((c, k) => Math.round(c * (1 - part) + ramp[low + 1][k] * part));
}
function looks() {  // a row of regions for each word
  if (mode === 'region_to_word') return turned(values(mode));
  return mode === 'together' ? positive(values(mode)) : values(mode);
}
function answers() {  // a row of words for each region
  if (mode === 'word_to_region' && values('region_to_word')) return values('region_to_word');
  return mode === 'region_to_word' ? values(mode) : turned(looks());
}
function scaled(map) {
  const top = Math.max(0, ...map);
  return map.map(x => top > 0 ? Math.max(0, x) / top : 0);
}
function paint(map) {
  const strength = scaled(map);
  if (canvas) {
    [canvas.height, canvas.width] = data.grid;
    const brush = canvas.getContext('2d'), image = brush.createImageData(canvas.width, canvas.height);
    for (let i = 0; i < cells; i++) {
      const [r, g, b] = strength[i] > 0.02 ? colour(strength[i]) : [16, 18, 34];
      image.data.set([r, g, b, 255 * (0.5 + 0.08 * strength[i])], 4 * i);
    }
    brush.putImageData(image, 0, 0);
  }
  regions.forEach((region, i) => {
    const s = strength[i], c = colour(0.35 + 0.65 * s), strong = s > 0.04;
    if (region.tagName !== 'rect') region.style.background = `rgba(var(--warm), ${0.8 * s})`;
    else if (i < cells) region.style.stroke = region.classList.contains('on') ? '#fff' : 'none';
    else {
      region.style.stroke = strong ? `rgb(${c})` : 'rgba(255, 255, 255, .35)';
      region.style.strokeWidth = strong ? 1.5 + 4 * s : 1;
      region.style.fill = strong && !region.dataset.whole ? `rgba(${c}, ${0.3 * s})` : 'transparent';
    }
  });
}
function shade(row, most) {
  const top = most || Math.max(1e-30, ...row.map(Math.abs));
  words.forEach((word, i) => {
    const side = row[i] < 0 ? 'cold' : 'warm';
    word.style.background = `rgba(var(--${side}), ${0.7 * Math.abs(row[i]) / top})`;
  });
}
function rest() {
  [...words, ...regions].forEach(e => e.classList.remove('on'));
  if (data.strength) shade(values(data.strength), data.strength === 'word_gates' ? 1 : 0);
  paint(data.whole_values);
  note.textContent = data.rest;
}
function told(kind, i) {
  const gates = values(kind + '_gates'), drops = values(kind + '_drop');
  return (gates ? `, gate ${gates[i].toFixed(2)}` : '') +
    (drops ? `, without it the score changes by ${(-drops[i]).toFixed(3)}` : '');
}
function showWord(i) {
  rest();
  words[i].classList.add('on');
  if (mode) paint(looks()[i]);
  note.textContent = `“${data.words[i]}”` + told('word', i);
}
function showRegion(i) {
  rest();
  regions[i].classList.add('on');
  if (mode) shade(answers()[i]);
  paint(data.whole_values.map((_, j) => j === i ? 1 : 0));
  note.textContent = `region ${i + 1}` + told('region', i);
}
function wire(elements, show) {
  elements.forEach((element, i) => {
    const leave = () => { if (pinned === null) rest(); };
    element.addEventListener('mouseenter', () => { if (pinned === null) show(i); });
    element.addEventListener('mouseleave', leave);
    element.addEventListener('focus', () => { pinned = null; show(i); });
    element.addEventListener('blur', () => { pinned = null; rest(); });
    element.addEventListener('click', () => { pinned = pinned === element ? null : element; show(i); });
  });
}
wire(words, showWord);
wire(regions, showRegion);
const slots = all('[data-slot]');
wire(slots, i => {
  const [iteration, slot] = slots[i].dataset.slot.split(',').map(Number);
  rest();
  paint(values('slot_to_region')[iteration][slot]);
  if (values('slot_to_word')) note.textContent = `slot ${slot + 1}, iteration ${iteration + 1}`;
});
all('input[name=mode]').forEach(e => e.addEventListener('change', () => { mode = e.value; rest(); }));
document.addEventListener('keydown', e => { if (e.key === 'Escape') { pinned = null; rest(); } });
rest();
"""
