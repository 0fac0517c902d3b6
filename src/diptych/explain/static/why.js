// The why-map: where words look, and which words a region has to do with. `paint` draws a map over the picture, `shade`
// colours the words, `rest` shows the pair as a whole. Its colours are those of colours.css.
const style = getComputedStyle(document.documentElement);
const written = name => style.getPropertyValue(name).split(',').map(Number);
const turned = rows => rows[0].map((_, j) => rows.map(row => row[j]));
const largest = row => row.indexOf(Math.max(...row));

function scaled(map, most) {
  const top = most || Math.max(0, ...map);
  return map.map(x => top > 0 ? Math.min(1, Math.max(0, x) / top) : 0);
}

// `data` is what `told_of` in why.py tells of an explanation, or those of its arrays that the page has a use for.
export function wire(article, data) {
  const all = selector => [...article.querySelectorAll(selector)];
  const words = all('.words button'), slots = all('[data-slot]');
  const regions = all('[data-region]').sort((a, b) => a.dataset.region - b.dataset.region);
  const canvas = article.querySelector('canvas'), note = article.querySelector('#why-now');
  const cells = data.grid ? data.grid[0] * data.grid[1] : 0;
  const ramp = [0, 1, 2, 3, 4, 5].map(i => written(`--ramp-${i}`)), night = written('--night');
  const values = name => data.arrays[name]?.values;
  const whole = article.querySelector('button[data-rest]'), overlay = article.querySelector('[data-overlay]');
  let { looks, answers } = data;  // a row of regions for each word, a row of words for each region
  let chosen = null;  // the word, region or slot that stays while others are pointed at, and what shows it

  function colour(value) {
    const place = Math.min(1, Math.max(0, value)) * 5, low = Math.min(4, Math.floor(place)), part = place - low;
    return ramp[low].map((c, k) => Math.round(c * (1 - part) + ramp[low + 1][k] * part));
  }

  function paint(map, top) {
    const strength = scaled(map, top);
    if (canvas) {
      const small = document.createElement('canvas');
      [small.height, small.width] = data.grid;
      const image = small.getContext('2d').createImageData(small.width, small.height);
      for (let i = 0; i < cells; i++) {
        const [r, g, b] = strength[i] > 0.02 ? colour(strength[i]) : night;
        image.data.set([r, g, b, 255 * (0.5 + 0.1 * strength[i])], 4 * i);
      }
      small.getContext('2d').putImageData(image, 0, 0);
      [canvas.height, canvas.width] = data.grid.map(n => 48 * n);
      const brush = canvas.getContext('2d');
      brush.imageSmoothingQuality = 'high';
      brush.drawImage(small, 0, 0, canvas.width, canvas.height);
    }
    regions.forEach((region, i) => {
      const s = strength[i] || 0, c = colour(0.35 + 0.65 * s), strong = s > 0.04;
      region.dataset.strength = s.toFixed(3);
      if (region.tagName !== 'rect') region.style.background = `rgba(var(--warm), calc(var(--shade) * ${s.toFixed(3)}))`;
      else if (i >= cells) {
        region.style.stroke = strong ? `rgb(${c})` : 'rgba(255, 255, 255, .35)';
        region.style.strokeWidth = strong ? 1.5 + 4 * s : 1;
        region.style.fill = strong && !region.dataset.whole ? `rgba(${c}, ${0.3 * s})` : 'transparent';
      }
    });
  }

  function shade(row, most) {
    const top = most || Math.max(1e-30, ...row.map(Math.abs));
    words.forEach((word, i) => {
      const part = Math.min(1, Math.abs(row[i]) / top);
      word.dataset.strength = (row[i] < 0 ? -part : part).toFixed(3);
      word.style.background = `rgba(var(--${row[i] < 0 ? 'cold' : 'warm'}), calc(var(--shade) * ${part.toFixed(3)}))`;
    });
  }

  function rest() {
    [...words, ...regions, ...slots].forEach(element => element.classList.remove('on'));
    // A gate means something in itself: 0 is shut, 1 is open.
    shade(data.strength?.values || words.map(() => 0), data.strength?.name === 'word_gates' ? 1 : 0);
    paint(data.whole?.values || regions.map(() => 0));
    note.textContent = note.dataset.rest;
  }

  function choose(element, show = null) {
    chosen = element && { element, show };
    words.forEach(word => word.setAttribute('aria-pressed', String(word === element)));
    whole?.setAttribute('aria-pressed', String(!element));
    if (words.includes(element)) words.forEach(word => { word.tabIndex = word === element ? 0 : -1; });
    again();
  }

  function again() {
    if (chosen) chosen.show();
    else rest();
  }

  function more(kind, i) {
    const gates = values(`${kind}_gates`), drops = values(`${kind}_drop`);
    const gate = gates ? ` Its gate is ${gates[i].toFixed(2)}.` : '';
    if (!drops) return gate;
    const size = Math.abs(drops[i]).toFixed(3);
    return gate + (Number(size) === 0 ? ' The score is the same without it.'
      : ` Without it the score ${drops[i] > 0 ? 'falls' : 'rises'} by ${size}.`);
  }
  const named = i => regions[i]?.getAttribute('aria-label') || `part ${i + 1}`;

  function showWord(i) {
    rest();
    words[i].classList.add('on');
    let said = `“${data.words[i]}”`;
    if (looks) {
      const row = looks.values[i];
      // A word that looks nowhere in particular stays dark beside one that does, where values can be compared at all.
      paint(row, looks.name === 'together' ? Math.max(0, ...looks.values.flat()) : 0);
      said += Math.max(...row) > 0 ? ` looks most at ${named(largest(row))}.` : ' looks nowhere in particular.';
    }
    note.textContent = said + more('word', i);
  }

  function showRegion(i) {
    rest();
    regions[i].classList.add('on');
    paint(regions.map((_, j) => j === i ? 1 : 0));
    let said = named(i)[0].toUpperCase() + named(i).slice(1);
    if (answers) {
      const row = answers.values[i];
      shade(row);
      said += Math.max(...row) > 0 ? ` has most to do with “${data.words[largest(row)]}”.` : ' has to do with no word.';
    }
    note.textContent = said + more('region', i);
  }

  function showSlot(i) {
    const [iteration, slot] = slots[i].dataset.slot.split(',').map(Number);
    rest();
    slots[i].classList.add('on');
    paint(values('slot_to_region')[iteration][slot]);
    note.textContent = `What slot ${slot + 1} holds after iteration ${iteration + 1}.`;
  }

  function chooseMode(name) {
    const rows = values(name);
    const seen = name === 'region_to_word' ? turned(rows) : rows.map(row => row.map(x => Math.max(0, x)));
    looks = { name, values: seen };
    answers = { name, values: (name !== 'together' && values('region_to_word')) || turned(seen) };
    again();
  }

  // A click or the focus of a key chooses; pointing shows only what is not in the way of a choice.
  function react(elements, show) {
    elements.forEach((element, i) => {
      element.addEventListener('pointerenter', event => {
        if (!chosen && event.pointerType !== 'touch') show(i);
      });
      element.addEventListener('pointerleave', () => { if (!chosen) rest(); });
      element.addEventListener('click', () =>
        chosen?.element === element ? choose(null) : choose(element, () => show(i)));
    });
  }
  react(words, showWord);
  react(regions, showRegion);
  react(slots, showSlot);
  all('input[name=mode]').forEach(mode => mode.addEventListener('change', () => chooseMode(mode.value)));
  article.addEventListener('keydown', event => {
    if (event.key !== 'Escape' || !chosen) return;
    event.preventDefault();  // a first Escape lets go of the word, a second closes
    event.stopPropagation();
    choose(null);
  });
  whole?.addEventListener('click', () => choose(null));
  overlay?.addEventListener('click', () => {
    const bare = article.classList.toggle('bare');
    overlay.setAttribute('aria-pressed', String(!bare));
  });

  // Of the words one is reached with Tab; arrows go to the next, and choose it.
  words.forEach((word, i) => word.addEventListener('keydown', event => {
    const to = { ArrowLeft: i - 1, ArrowUp: i - 1, ArrowRight: i + 1, ArrowDown: i + 1, Home: 0, End: words.length - 1 };
    if (!(event.key in to)) return;
    event.preventDefault();
    const next = Math.min(words.length - 1, Math.max(0, to[event.key]));
    words[next].focus();
    choose(words[next], () => showWord(next));
  }));

  // Of the regions one is reached with Tab; arrows go to the nearest in their direction.
  const centre = region => {
    const { left, top, width, height } = region.getBoundingClientRect();
    return [left + width / 2, top + height / 2];
  };
  const ways = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  regions.forEach(region => region.addEventListener('keydown', event => {
    const way = ways[event.key];
    if (event.key === 'Enter' || event.key === ' ') {
      event.preventDefault();
      region.dispatchEvent(new MouseEvent('click', { bubbles: true }));
    }
    if (!way) return;
    event.preventDefault();
    const [x, y] = centre(region);
    let best = null, least = Infinity;
    for (const other of regions) {
      const [ox, oy] = centre(other), along = (ox - x) * way[0] + (oy - y) * way[1];
      const aside = Math.abs((ox - x) * way[1]) + Math.abs((oy - y) * way[0]);
      if (other !== region && along > 1 && along + 3 * aside < least) [best, least] = [other, along + 3 * aside];
    }
    if (!best) return;
    regions.forEach(other => { if (other.tagName === 'rect') other.setAttribute('tabindex', other === best ? 0 : -1); });
    best.focus();
    choose(best, () => showRegion(regions.indexOf(best)));
  }));
  rest();
}
