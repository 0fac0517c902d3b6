// Several results chosen at once: their paths copied, their files in a zip. They stay chosen from search to search.
import { all, copy, one, paths, toast, words } from './ask.js';

const chosen = new Map();  // id to its path
const form = one('#chosen');
const boxes = () => all('#found .tick input');
let last = null;  // where a range begins

export const isChosen = id => chosen.has(id);

export function choose(id, path, is = !chosen.has(id)) {
  if (is) chosen.set(id, path);
  else chosen.delete(id);
  const box = boxes().find(other => other.value === id);
  if (box) box.checked = is;
  count();
}

// Boxes of results that have just come.
export function mark() {
  for (const box of boxes()) box.checked = chosen.has(box.value);
  last = null;
  count();
}

function count() {
  const many = chosen.size;
  document.body.classList.toggle('choosing', many > 0);
  one('#chosen-count').textContent = many ? `${many} chosen` : '';
  one('#choose-all').hidden = boxes().every(box => box.checked);
}

function taken(box, is) {
  box.checked = is;
  const { id, path } = box.closest('li').dataset;
  if (is) chosen.set(id, path);
  else chosen.delete(id);
}

if (form) {
  addEventListener('click', event => {
    const box = event.target.closest?.('#found .tick input');
    if (!box) return;
    const cards = boxes();
    const from = event.shiftKey && last?.isConnected ? cards.indexOf(last) : cards.indexOf(box);
    const [low, high] = [from, cards.indexOf(box)].sort((a, b) => a - b);
    for (const other of cards.slice(low, high + 1)) taken(other, box.checked);
    last = box;
    count();
  });
  addEventListener('keydown', event => {
    const card = event.target.closest?.('#found > .card');
    if (!card || event.key.toLowerCase() !== 'x' || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    choose(card.dataset.id, card.dataset.path);
  });
  one('#choose-all').addEventListener('click', () => {
    for (const box of boxes()) taken(box, true);
    count();
    one('#copy-paths').focus();
  });
  one('#choose-none').addEventListener('click', () => {
    chosen.clear();
    mark();
    (one('#found .open[tabindex="0"]') || one('#q')).focus();
  });
  one('#copy-paths').addEventListener('click', async () => {
    try {
      const found = await paths([...chosen].map(([id, path]) => ({ id, path })));
      await copy(found.join('\n'));
      toast(found.length === 1 ? 'One path copied.' : `${found.length} paths copied, one on each line.`);
    } catch (error) {
      toast(words(error));
    }
  });
  form.addEventListener('submit', event => {
    const most = Number(form.dataset.most);
    if (chosen.size <= most) return toast('The zip is on its way.');
    event.preventDefault();
    toast(`${most} pictures go into one zip at most; ${chosen.size} are chosen.`);
  });
  // Those that were chosen in other searches have no box on the page.
  form.addEventListener('formdata', event => {
    event.formData.delete('id');
    for (const id of chosen.keys()) event.formData.append('id', id);
  });
}
