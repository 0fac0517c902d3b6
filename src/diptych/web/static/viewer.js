// One result, large: the picture alone, which can be zoomed, or why it is there; with the results before and after it.
import { wire } from './why.js';
import { all, ask, copy, one, paths, post, toast, words } from './ask.js';
import { choose, isChosen } from './chosen.js';
import { zoomable } from './zoom.js';

const dialog = one('#viewer'), stage = one('#viewer-stage'), whyPlace = one('#viewer-why');
const cards = () => all('#found > li').filter(card => one('[data-open]', card));
const LARGE = 1280;
let item = null;  // what is shown
let opener = null;  // where the focus goes back to
let told = () => {};  // told the address of what is shown
let further = async () => false;  // brings more results

export const isOpen = () => dialog.open;

// What a link, a result or an id stands for.
export function itemOf(link) {
  const card = link.closest('li[data-id]'), twin = link.dataset.open;
  const data = twin ? { id: twin, path: link.dataset.path, shown: '' } : { ...card.dataset };
  return { ...data, card, why: link.getAttribute('href'), twin: Boolean(twin), sentence: card.classList.contains('line') };
}
export function itemById(id) {
  const card = cards().find(other => other.dataset.id === id);
  return card ? itemOf(one('[data-open]', card)) : null;
}

const zoom = zoomable(stage, {
  turn: by => turn(by),
  larger() {
    const picture = one('img', stage);
    if (picture && !picture.dataset.full) {
      const full = new Image();
      picture.dataset.full = 'on its way';
      full.onload = () => { if (picture.isConnected) picture.src = full.src; };
      full.src = `/pictures/${item.id}?size=full`;
    }
  },
});

// asWhy: whether it is explained; address: of the explanation, where it is not the result's own
export function show(next, { asWhy = false, from = null, address = null } = {}) {
  const first = !dialog.open;
  if (first) {
    opener = from;
    dialog.showModal();
  }
  item = next;
  const place = cards().indexOf(item.card), many = cards().length;
  const sure = item.twin ? '' : one('.sure > span', item.card)?.textContent;
  const of = place < 0 || item.twin ? '' : `${place + 1} of ${many}${one('#load-more') ? ' so far' : ''}`;
  one('#viewer-place').textContent = [of, sure].filter(Boolean).join(' · ');
  name(item.path);
  for (const [act, is] of [['choose', isChosen(item.id)], ['why', asWhy]])
    one(`[data-do=${act}]`, dialog).setAttribute('aria-pressed', String(is));
  const alone = item.sentence || !('shown' in item);
  for (const act of ['choose', 'copy', 'download', 'folder', 'like', 'smaller', 'larger', 'why'])
    one(`[data-do=${act}]`, dialog)?.toggleAttribute('hidden', act === 'why' ? alone
      : item.sentence || (alone && !['choose', 'copy', 'like'].includes(act)) || ((asWhy || Boolean(item.media)) && ['smaller', 'larger'].includes(act)));
  const like = one('.acts a', item.card);
  if (one('[data-do=like]', dialog) && !item.sentence)
    one('[data-do=like]', dialog).href = item.twin ? `/?${new URLSearchParams({ term: `p:${item.id}` })}` : like.getAttribute('href');
  one('[data-do=download]', dialog)?.setAttribute('href', `/pictures/${item.id}/original`);
  one('[data-do=previous]', dialog).disabled = place <= 0;
  one('[data-do=next]', dialog).disabled = place < 0 || (place === many - 1 && !one('#load-more'));
  dialog.classList.toggle('explains', asWhy);
  stage.hidden = asWhy;
  whyPlace.hidden = !asWhy;
  told(item, asWhy, first, address);
  if (asWhy) explainItem(first, address || item.why);
  else look(place);
  if (first || !dialog.contains(document.activeElement)) (asWhy ? dialog : stage).focus({ preventScroll: true });
}

function name(path) {
  const cut = path.lastIndexOf('/') + 1, tail = path.length - cut > 18 ? 9 : 0;
  const parts = { folder: path.slice(0, cut), name: path.slice(cut, path.length - tail), tail: tail ? path.slice(-tail) : '' };
  one('#viewer-name').replaceChildren(...Object.entries(parts).filter(([, text]) => text).map(([kind, text]) => {
    const span = document.createElement('span');
    span.className = kind;
    span.textContent = text;
    return span;
  }));
  one('#viewer-name').title = path;
}

function look(place) {
  whyPlace.replaceChildren();
  if (!('shown' in item)) {
    const note = document.createElement('p');
    note.className = 'note';
    note.textContent = 'This picture cannot be shown.';
    stage.replaceChildren(note);
    return zoom.hold(null);
  }
  if (item.media) return play();
  const picture = new Image(), large = new Image();
  picture.alt = item.path;
  picture.draggable = false;
  stage.classList.add('loading');
  stage.classList.remove('gone');
  // The small picture, which is there already, until the large one is.
  const small = one(item.twin ? `[data-open="${CSS.escape(item.id)}"] img` : '.open img', item.card)?.currentSrc;
  if (small) picture.src = small;
  large.onload = () => {
    if (one('img', stage) !== picture) return;
    stage.classList.remove('loading');
    if (!one('img', stage).src.endsWith('full')) picture.src = large.src;
  };
  large.onerror = () => {
    if (one('img', stage) !== picture) return;
    stage.classList.remove('loading');
    stage.classList.add('gone');
  };
  large.src = `/pictures/${item.id}?size=${LARGE}`;
  stage.replaceChildren(picture);
  zoom.hold(picture);
  for (const near of [place + 1, place - 1]) {
    const card = cards()[near];
    if (card && 'shown' in card.dataset && !card.dataset.media) new Image().src = `/pictures/${card.dataset.id}?size=${LARGE}`;
  }
}

// A video plays from where the picture is in it.
function play() {
  const video = document.createElement('video');
  video.controls = true;
  video.playsInline = true;
  video.poster = `/pictures/${item.id}?size=${LARGE}`;
  video.src = `${item.media}#t=${Number(item.second) || 0}`;
  stage.replaceChildren(video);
  zoom.hold(null);
}

async function explainItem(first, address) {
  const mine = item, focused = document.activeElement?.id;
  const bare = one('#why', whyPlace)?.classList.contains('bare');
  whyPlace.replaceChildren(one('#why-waits').content.cloneNode(true));
  const small = one('.open img', mine.card) && !mine.sentence ? one('.open img', mine.card).currentSrc : '';
  if (small) one('img', whyPlace).src = small;
  else one('.stage', whyPlace).remove();
  if (first) one('#why-title').focus();
  try {
    const article = one('#why', await ask(address));
    if (!dialog.open || item !== mine) return;
    if (!article) throw new Error('The server has no explanation.');
    whyPlace.replaceChildren(article);
    explain(article);
    if (bare) one('[data-overlay]', article)?.click();
    if (!dialog.contains(document.activeElement) || document.activeElement === dialog)
      (document.getElementById(focused || '') || one('#why-title', article)).focus({ preventScroll: true });
  } catch (error) {
    if (error.name === 'AbortError' || !dialog.open || item !== mine) return;
    one('#why-title').textContent = 'That did not work';
    const note = document.createElement('p');
    note.className = 'problem';
    note.setAttribute('role', 'alert');
    note.textContent = words(error);
    one('.said', whyPlace).replaceChildren(note);
  }
}

export function explain(article) {
  // As large as there is room for, small pictures too.
  const box = one('.stage svg', article)?.viewBox.baseVal;
  if (box) {
    one('.stage', article).style.width = `min(100%, 68vh * ${box.width / box.height})`;
    one('.stage', article).classList.add('fitted');
  }
  one('.figures', article)?.removeAttribute('open');  // they are open for those without script
  if (article.dataset.explanation) wire(article, JSON.parse(article.dataset.explanation));
}

// The explanation of another sentence, or by another model.
export function explainAt(address) {
  show(item, { asWhy: true, address });
}

async function turn(by) {
  const place = cards().indexOf(item.card);
  if (place < 0) return;
  if (!cards()[place + by] && (by < 0 || !await further())) return;
  const card = cards()[place + by];
  if (card && dialog.open) show(itemOf(one('[data-open]', card)), { asWhy: dialog.classList.contains('explains') });
}

export function shut() {
  const card = item?.card;
  dialog.close();
  stage.replaceChildren();
  whyPlace.replaceChildren();
  const back = opener?.isConnected && card?.contains(opener) ? opener : card?.isConnected ? one('.open', card) : opener;
  if (back?.isConnected) back.focus();
  else one('#found .open[tabindex="0"]')?.focus({ preventScroll: true });
  opener = item = null;
}

// leave: closes it; shown: told what is shown; more: brings more results, and whether there were any
export function watch({ leave, shown, more }) {
  [told, further] = [shown, more];
  dialog.addEventListener('cancel', event => { event.preventDefault(); leave(); });
  dialog.addEventListener('click', event => {
    const act = event.target.closest('[data-do]')?.dataset.do;
    if (act && acts[act]) acts[act]();
  });
  dialog.addEventListener('keydown', event => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest('input, select, textarea, video')) return;
    const act = { ArrowLeft: 'previous', ArrowRight: 'next' }[event.key] ||
      (!whyPlace.hidden ? null : { '+': 'larger', '=': 'larger', '-': 'smaller', '0': 'whole' }[event.key]);
    if (!act) return;
    event.preventDefault();
    acts[act]();
  });
}

const acts = {
  previous: () => turn(-1),
  next: () => turn(1),
  larger: () => zoom.larger(),
  smaller: () => zoom.smaller(),
  whole: () => zoom.whole(),
  why: () => show(item, { asWhy: stage.hidden === false }),
  choose() {
    choose(item.id, item.path);
    one('[data-do=choose]', dialog).setAttribute('aria-pressed', String(isChosen(item.id)));
    toast(isChosen(item.id) ? 'Chosen, with the others.' : 'Not chosen any more.');
  },
  async copy() {
    try {
      await copy((await paths([item]))[0]);
      toast('Path copied.');
    } catch (error) {
      toast(words(error));
    }
  },
  async folder() {
    try {
      toast(`The folder ${(await post('/api/open-folder', { id: item.id })).folder} is being opened.`);
    } catch (error) {
      toast(words(error));
    }
  },
};
