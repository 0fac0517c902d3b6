// Makes the page livelier. It asks for the same pages that plain links and forms lead to, and puts their parts in place;
// only the why-map (why.js) draws anything itself.
import { wire } from './why.js';

const one = (selector, from = document) => from.querySelector(selector);
const all = (selector, from = document) => [...from.querySelectorAll(selector)];
const calm = matchMedia('(prefers-reduced-motion: reduce)');
const dialog = one('#why-dialog');
const box = one('#q');
const results = () => one('#results');
let shown = results() ? results().dataset.url : null;  // the address of the results on the page
let asked = null;  // what stops the request under way
let opener = null;  // where the focus goes back to when the explanation closes

document.documentElement.classList.remove('plain');

async function ask(url, options = {}) {
  if (asked) asked.abort();
  const mine = asked = new AbortController();
  document.body.classList.add('busy');
  try {
    const response = await fetch(url, { credentials: 'same-origin', signal: mine.signal, ...options });
    const kind = response.headers.get('content-type') || '';
    if (!kind.startsWith('text/html')) throw new Error(await told(response, kind));
    return new DOMParser().parseFromString(await response.text(), 'text/html');
  } finally {
    if (asked === mine) {
      asked = null;
      document.body.classList.remove('busy');
    }
  }
}

async function told(response, kind) {
  const problem = kind.startsWith('application/json') ? (await response.json()).error : null;
  return typeof problem === 'string' ? problem : `The server answered ${response.status}.`;
}

function say(text) {
  const status = one('[data-part=status]');
  if (status) status.textContent = text;
}

function failed(error) {
  if (error.name === 'AbortError') return;
  say(error instanceof TypeError ? 'The server does not answer. Try again in a moment.' : error.message);
}

// Results.

async function visit(url, { push = true, more = false, options = {}, keep = true } = {}) {
  try {
    const next = await ask(url, options);
    const found = one('#results', next);
    if (!found || !results()) return location.assign(found ? found.dataset.url : url);
    if (push) history[more ? 'replaceState' : 'pushState']({}, '', found.dataset.url);
    const count = all('#found > li').length;
    place(next, keep);
    if (more) all('#found > li')[count]?.querySelector('.open').focus();
    else if (push) scrollTo({ top: 0, behavior: calm.matches ? 'auto' : 'smooth' });
  } catch (error) {
    failed(error);
  }
}

function place(next, keep) {
  const before = new Map(all('[data-id]').map(card => [card.dataset.id, card.getBoundingClientRect()]));
  const focused = document.activeElement;
  for (const part of all('[data-part]')) {
    const fresh = one(`[data-part="${part.dataset.part}"]`, next);
    if (!fresh || part.innerHTML === fresh.innerHTML) continue;
    part.replaceChildren(...fresh.childNodes);
  }
  Object.assign(results().dataset, one('#results', next).dataset);
  one('#upload').action = one('#upload', next).action;
  document.title = next.title;
  document.body.className = next.body.className;
  shown = results().dataset.url;
  const wanted = one('#q', next);
  if (!keep || document.activeElement !== box) box.value = wanted.value;
  box.placeholder = wanted.placeholder;
  for (const field of all('#more, #column, #value')) field.value = '';
  refocus(focused);
  roam();
  move(before);
}

function refocus(element) {
  if (!element || element === document.body || element === document.activeElement) return;
  const again = element.isConnected ? element : element.id ? document.getElementById(element.id) : null;
  if (again) again.focus({ preventScroll: true });
  else if (element.closest('.card, .line, .chip, .fields, .sample') || !element.isConnected)
    (one('#found .open[tabindex="0"]') || one('#found .open') || one('#main')).focus({ preventScroll: true });
}

// What moved glides from its old place; what is new fades in.
function move(before) {
  if (calm.matches || !before.size) return;
  for (const card of all('#found > [data-id]')) {
    const old = before.get(card.dataset.id), now = card.getBoundingClientRect();
    if (!old) card.animate({ opacity: [0, 1] }, { duration: 250 });
    else if (old.left !== now.left || old.top !== now.top)
      card.animate(
        { transform: [`translate(${old.left - now.left}px, ${old.top - now.top}px)`, 'none'] },
        { duration: 450, easing: 'cubic-bezier(.2, .8, .2, 1)' });
  }
}

function address(form, submitter) {
  const fields = [...new FormData(form, submitter)].filter(([name, value]) => value !== '' && name !== 'file');
  const usual = new Map([['kind', 'picture']]);
  const said = new URLSearchParams(fields.filter(([name, value]) => usual.get(name) !== value)).toString();
  return new URL(form.getAttribute('action'), location).pathname + (said ? `?${said}` : '');
}

// Pictures.

async function upload(file) {
  if (!file) return;
  if (!file.type.startsWith('image/')) return say(`${file.name || 'That'} is not a picture.`);
  if (dialog.open) shut();
  say('Looking at the picture…');
  const body = new FormData();
  body.append('file', file, file.name || 'pasted');
  await visit(one('#upload').getAttribute('action'), { options: { method: 'POST', body }, keep: false });
}

const files = event => [...(event.dataTransfer || event.clipboardData)?.files || []];
const carries = event => [...event.dataTransfer?.types || []].includes('Files');
let over = 0;
function hover(by) {
  over = by === 0 ? 0 : Math.max(0, over + by);
  one('.drop').hidden = over === 0;
}
addEventListener('dragenter', event => { if (carries(event)) { event.preventDefault(); hover(1); } });
addEventListener('dragover', event => { if (carries(event)) event.preventDefault(); });
addEventListener('dragleave', event => { if (carries(event)) hover(-1); });
addEventListener('drop', event => {
  if (!carries(event)) return;
  event.preventDefault();
  hover(0);
  upload(files(event)[0]);
});
addEventListener('paste', event => {
  const picture = files(event).find(file => file.type.startsWith('image/'));
  if (!picture) return;
  event.preventDefault();
  upload(picture);
});

// The explanation.

async function why(url, { push = true, from = null } = {}) {
  const first = !dialog.open;
  if (first) {
    opener = from;
    one('#why-place').replaceChildren(one('#why-waits').content.cloneNode(true));
    const thumb = from && one('img', from);
    if (thumb) one('#why-place img').src = thumb.src;
    dialog.showModal();
    one('#why-title').focus();
  }
  if (push) history[first ? 'pushState' : 'replaceState']({ why: true, base: shown }, '', url);
  const focused = document.activeElement?.id;
  try {
    const next = one('#why', await ask(url));
    if (!dialog.open) return;
    if (!next) throw new Error('The server has no explanation.');
    one('#why-place').replaceChildren(next);
    explain(next);
    (document.getElementById(focused || '') || one('#why-title', next)).focus();
  } catch (error) {
    if (error.name === 'AbortError' || !dialog.open) return;
    const note = one('.said', dialog).appendChild(document.createElement('p'));
    note.className = 'problem';
    note.setAttribute('role', 'alert');
    note.textContent = error instanceof TypeError ? 'The server does not answer.' : error.message;
  }
}

function explain(article) {
  one('.figures', article)?.removeAttribute('open');  // they are open for those without script
  if (article.dataset.explanation) wire(article, JSON.parse(article.dataset.explanation));
}

function shut() {
  dialog.close();
  one('#why-place').replaceChildren();
  if (opener?.isConnected) opener.focus({ preventScroll: true });
  else one('#found .open[tabindex="0"]')?.focus({ preventScroll: true });
  opener = null;
}

// Closing is going back, so that the address is that of the results again.
function leave() {
  if (history.state?.why) history.back();
  else shut();
}
dialog.addEventListener('cancel', event => { event.preventDefault(); leave(); });
dialog.addEventListener('click', event => { if (event.target === dialog) leave(); });

// What people do.

addEventListener('click', event => {
  if (event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  const link = event.target.closest?.('a, [data-close]');
  if (!link) return;
  if (link.hasAttribute('data-close') && dialog.open) {
    event.preventDefault();
    leave();
  } else if (link.hasAttribute('data-why') && results()) {
    event.preventDefault();
    why(link.getAttribute('href'), { from: link });
  } else if (link.hasAttribute('data-live') && results()) {
    event.preventDefault();
    if (dialog.open) shut();
    visit(link.getAttribute('href'), { more: link.dataset.live === 'more', keep: false });
  }
});
addEventListener('submit', event => {
  const form = event.target;
  if (form.id === 'upload') {
    event.preventDefault();
    upload(one('#file').files[0]);
  } else if (form.id === 'search' && results()) {
    event.preventDefault();
    visit(address(form, event.submitter));
  } else if (form.hasAttribute('data-why') && results()) {
    event.preventDefault();
    why(address(form, event.submitter));
  }
});
addEventListener('change', event => {
  if (event.target.id === 'file') {
    upload(event.target.files[0]);
    event.target.value = '';
  } else if (event.target.hasAttribute('data-auto')) {
    one('#search').requestSubmit();
  }
});
addEventListener('popstate', async event => {
  if (!results()) return location.reload();
  const base = event.state?.why ? event.state.base : location.pathname + location.search;
  if (dialog.open) shut();
  if (base !== shown) await visit(base, { push: false, keep: false });
  if (event.state?.why) why(location.pathname + location.search, { push: false });
});
addEventListener('error', event => {
  if (event.target.tagName === 'IMG') event.target.closest('.open, .stage, .chip')?.classList.add('gone');
}, true);

// Keys: / goes to the box; arrows move among the results, of which one is reached with Tab.

const typing = element => Boolean(element?.closest?.('input, select, textarea, [contenteditable]'));
addEventListener('keydown', event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === '/' && !typing(event.target) && !dialog.open) {
    event.preventDefault();
    box.focus();
    box.select();
  } else if (event.key === 'ArrowDown' && event.target === box && one('#found .open')) {
    event.preventDefault();
    one('#found .open').focus();
  } else if (event.target.closest?.('#found') && !typing(event.target)) {
    const next = neighbour(event.target.closest('#found > li'), event.key);
    if (!next) return;
    event.preventDefault();
    one('.open', next).focus();
  }
});
addEventListener('focusin', event => {
  const card = event.target.closest?.('#found > li');
  if (card) roam(card);
});

function neighbour(card, key) {
  const cards = all('#found > li'), place = cards.indexOf(card);
  const columns = cards.filter(other => other.offsetTop === cards[0].offsetTop).length;
  const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns };
  if (key === 'Home') return cards[0];
  if (key === 'End') return cards[cards.length - 1];
  if (!(key in steps)) return null;
  if (key === 'ArrowUp' && place < columns) return null;
  return cards[Math.min(cards.length - 1, Math.max(0, place + steps[key]))];
}

function roam(current = null) {
  const cards = all('#found > li');
  for (const card of cards) {
    const here = card === (current || cards[0]);
    for (const link of all('a, summary', card)) link.tabIndex = here ? 0 : -1;
  }
}

if (results()) {
  history.replaceState({}, '', shown);
  roam();
}
if (one('main > #why')) explain(one('main > #why'));
