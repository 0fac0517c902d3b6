// Makes the page livelier. It asks for the same pages that plain links and forms lead to, and puts their parts in place;
// only the why-map (why.js) draws anything itself.
import { all, ask, calm, one, say, toast, words } from './ask.js';
import { mark } from './chosen.js';
import { given } from './give.js';
import { explain, explainAt, isOpen, itemById, itemOf, show, shut, watch } from './viewer.js';

const box = one('#q');
const results = () => one('#results');
let shown = results() ? results().dataset.url : null;  // the address of the results on the page
let submitted = '';  // what stood in the box when it was asked for

document.documentElement.classList.remove('plain');

function failed(error) {
  if (error.name === 'AbortError') return;
  say(words(error));
}

// Results.

async function visit(url, { push = true, options = {}, keep = true } = {}) {
  submitted = box.value;
  try {
    const next = await ask(url, options);
    const found = one('#results', next);
    if (!found || !results()) return location.assign(found ? found.dataset.url : url);
    if (push) history.pushState({}, '', found.dataset.url);
    place(next, keep);
    if (push) scrollTo({ top: 0, behavior: calm.matches ? 'auto' : 'smooth' });
  } catch (error) {
    failed(error);
  }
}

// More results, behind those that are there; whether there were any.
let going = null;
function more() {
  const link = one('#load-more');
  if (!link) return Promise.resolve(false);
  going ||= goOn(link).finally(() => { going = null; });
  return going;
}

async function goOn(link) {
  const of = shown;
  link.classList.add('loading');
  link.textContent = 'Looking for more…';
  try {
    const next = await ask(link.dataset.more);
    if (of !== shown) return false;
    const fresh = all('#found > li', next);
    one('#found').append(...fresh);
    one('#after').replaceChildren(...(one('#after', next)?.childNodes || []));
    const count = all('#found > li').length, noun = one('#found.grid') ? 'pictures' : 'sentences';
    say(`${count.toLocaleString('en')} ${noun} so far`);
    const address = new URL(shown, location);
    address.searchParams.set('top', Math.min(200, count));
    shown = address.pathname + address.search;
    if (!isOpen()) history.replaceState({}, '', shown);
    else history.replaceState({ ...history.state, base: shown }, '');
    mark();
    roam(document.activeElement?.closest('#found > li'));
    watchEnd();
    return fresh.length > 0;
  } catch (error) {
    link.classList.remove('loading');
    link.textContent = 'Show more';
    failed(error);
    return false;
  }
}

// The list goes on by itself for those who scroll; from 200 on, when it is asked to, so that the page has an end.
const near = new IntersectionObserver(entries => {
  if (scrollY > 0 && entries.some(entry => entry.isIntersecting) && all('#found > li').length < 200) more();
}, { rootMargin: '400px' });
function watchEnd() {
  near.disconnect();
  if (one('#load-more')) near.observe(one('#load-more'));
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
  // What was typed since stays; what was asked for is as the server has it, with its + and - as chips.
  if (!keep || document.activeElement !== box || box.value === submitted) box.value = wanted.value;
  box.placeholder = wanted.placeholder;
  for (const field of all('#more, #column, #value')) field.value = '';
  refocus(focused);
  mark();
  roam();
  watchEnd();
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
  if (isOpen()) shut();
  say('Looking at the picture…');
  const body = new FormData();
  body.append('file', file, file.name || 'pasted');
  await visit(one('#upload').getAttribute('action'), { options: { method: 'POST', body }, keep: false });
}

given(upload);

// One result, large. It has an address, and going back closes it.

const aside = (address, id) => {
  const url = new URL(address, location);
  url.searchParams.set('show', id);
  return url.pathname + url.search;
};
function sameList(one, other) {
  const plain = [one, other].map(address => new URL(address, location));
  for (const url of plain) url.searchParams.delete('top');
  return plain[0].href === plain[1].href;
}
let quiet = false;  // the address is right already
watch({
  leave,
  more,
  shown(item, asWhy, first, address) {
    if (quiet) return;
    const url = asWhy ? address || item.why : aside(shown, item.id);
    history[first ? 'pushState' : 'replaceState']({ id: item.id, why: asWhy && url, base: shown }, '', url);
  },
});

function quietly(work) {
  quiet = true;
  work();
  quiet = false;
}

// Closing is going back, so that the address is that of the results again.
function leave() {
  if (history.state?.id) history.back();
  else shut();
}

// What people do.

addEventListener('click', event => {
  if (event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  const link = event.target.closest?.('a, [data-close]');
  if (!link) return;
  if (link.hasAttribute('data-close') && isOpen()) {
    event.preventDefault();
    leave();
  } else if (link.hasAttribute('data-why') && isOpen()) {
    event.preventDefault();
    explainAt(link.getAttribute('href'));
  } else if (link.hasAttribute('data-open') && results()) {
    event.preventDefault();
    const item = itemOf(link);
    show(item, { asWhy: item.sentence, from: link });
  } else if (link.id === 'load-more' && results()) {
    event.preventDefault();
    const count = all('#found > li').length;
    more().then(() => all('#found > li')[count]?.querySelector('.open').focus());
  } else if (link.hasAttribute('data-live') && results()) {
    event.preventDefault();
    if (isOpen()) shut();
    visit(link.getAttribute('href'), { keep: false });
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
  } else if (form.hasAttribute('data-why') && isOpen()) {
    event.preventDefault();
    explainAt(address(form, event.submitter));
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
  const { id, why, base = location.pathname + location.search } = event.state || {};
  if (isOpen()) quietly(shut);
  // A list that went on while a picture was large is the same list.
  if (sameList(base, shown)) { if (!id) history.replaceState({}, '', shown); }
  else await visit(base, { push: false, keep: false });
  const item = id && itemById(id);
  if (item) quietly(() => show(item, { asWhy: Boolean(why), address: why || null }));
});
addEventListener('load', event => { if (event.target.tagName === 'IMG') event.target.classList.add('in'); }, true);
addEventListener('error', event => {
  if (event.target.tagName === 'IMG') event.target.closest('.open, .stage, .chip')?.classList.add('gone');
}, true);

// Keys: / goes to the box; arrows move among the results, of which one is reached with Tab.

const typing = element => Boolean(element?.closest?.('input:not([type=checkbox]), select, textarea, [contenteditable]'));
addEventListener('keydown', event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === '/' && !typing(event.target) && !isOpen()) {
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
    for (const link of all('a, summary, input', card)) link.tabIndex = here ? 0 : -1;
  }
}

if (results()) {
  const wanted = new URLSearchParams(location.search).get('show');
  history.replaceState({}, '', shown);
  for (const picture of all('img')) if (picture.complete) picture.classList.add('in');
  mark();
  roam();
  watchEnd();
  const item = wanted && itemById(wanted);
  if (item) show(item);
  else if (wanted) toast('That picture is not among these results.');
}
if (one('main > #why')) explain(one('main > #why'));
