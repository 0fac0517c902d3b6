// Asking the server, and telling what it said in words of the page.
export const one = (selector, from = document) => from.querySelector(selector);
export const all = (selector, from = document) => [...from.querySelectorAll(selector)];
export const calm = matchMedia('(prefers-reduced-motion: reduce)');

const AWAY = 'The server does not answer. Is it still running? Try again in a moment.';
const STATUSES = {
  401: 'Open the address with its token, as the server printed it when it started.',
  403: 'This may not be done from here.',
  408: 'That came too slowly. Try again, or a smaller picture.',
  413: 'That is larger than this server takes.',
  500: 'Something went wrong in the server. Its log says what.',
  503: 'The server has much to do just now. Try again in a moment.',
};
let asked = null;  // what stops the request under way
let slow = 0;  // the moment when waiting becomes worth a word

// A page of the server; a later question ends an earlier one.
export async function ask(url, options = {}) {
  asked?.abort();
  const mine = asked = new AbortController();
  busy(true);
  try {
    const response = await fetch(url, { credentials: 'same-origin', signal: mine.signal, ...options });
    const kind = response.headers.get('content-type') || '';
    if (!kind.startsWith('text/html')) throw new Error(await told(response));
    return new DOMParser().parseFromString(await response.text(), 'text/html');
  } finally {
    if (asked === mine) {
      asked = null;
      busy(false);
    }
  }
}

// What the interface answers to a question in JSON.
export async function post(url, body) {
  const headers = { 'content-type': 'application/json' };
  const response = await fetch(url, { method: 'POST', credentials: 'same-origin', headers, body: JSON.stringify(body) });
  if (!response.ok) throw new Error(await told(response));
  return response.json();
}

async function told(response) {
  const kind = response.headers.get('content-type') || '';
  const said = kind.startsWith('application/json') ? (await response.json()).error : null;
  if (STATUSES[response.status]) return STATUSES[response.status];
  return typeof said === 'string' ? `${said[0].toUpperCase()}${said.slice(1)}.` : 'The server answered something odd.';
}

export const words = error => error instanceof TypeError ? AWAY : error.message;

function busy(is) {
  document.body.classList.toggle('busy', is);
  one('#results')?.setAttribute('aria-busy', String(is));
  clearTimeout(slow);
  if (is) slow = setTimeout(() => say('Looking…'), 600);
}

// The line above the results.
export function say(text) {
  const status = one('[data-part=status]');
  if (status) status.textContent = text;
}

// A word on what was done, which goes by itself.
let gone = 0;
export function toast(text) {
  const place = one('dialog[open] .toast') || one('#toast');
  all('.toast').forEach(other => { other.textContent = ''; });
  place.textContent = text;
  clearTimeout(gone);
  gone = setTimeout(() => { place.textContent = ''; }, 5000);
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {  // a page that did not come over HTTPS may only do it the old way
    const field = document.createElement('textarea');
    field.value = text;
    (one('dialog[open]') || document.body).append(field);
    field.select();
    const done = document.execCommand('copy');
    field.remove();
    if (!done) throw new Error('The browser does not let this page copy.');
  }
}

// Paths of results: whole ones on the machine where the files are, elsewhere from the folder that was indexed.
export async function paths(items) {
  if (!('here' in one('#viewer').dataset)) return items.map(item => item.path);
  const most = Number(one('#chosen')?.dataset.most || 200), found = [];
  for (let start = 0; start < items.length; start += most)
    found.push(...(await post('/api/paths', { ids: items.slice(start, start + most).map(item => item.id) })).paths);
  return found;
}
