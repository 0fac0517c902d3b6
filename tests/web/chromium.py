"""The system's Chromium for the tests of the page, and questions that are asked of any page."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser; the test is skipped, with the reason, where there is none."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: the page is not run")
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("Chromium is not installed: the page is not run")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


# Text whose contrast with what is behind it is below that of WCAG's AA. What lies over a picture, and what is
# disabled, is left out.
FAINT_TEXT = """() => {
  const parse = text => {
    const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number);
    return [r, g, b, a];
  };
  const over = (top, under) => {
    const a = top[3] + under[3] * (1 - top[3]);
    return a === 0 ? [0, 0, 0, 0] : [0, 1, 2].map(
      i => (top[i] * top[3] + under[i] * under[3] * (1 - top[3])) / a).concat(a);
  };
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map(c => c / 255).map(c => c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4);
    return .2126 * x + .7152 * y + .0722 * z;
  };
  const behind = element => {
    let colour = [0, 0, 0, 0];
    for (let e = element; e; e = e.parentElement) {
      colour = over(colour, parse(getComputedStyle(e).backgroundColor));
      if (colour[3] > .999 || e.tagName === 'DIALOG') break;
    }
    return over(colour, parse(getComputedStyle(document.body).backgroundColor));
  };
  const texts = [];
  const top = document.querySelector('dialog[open]') || document.body;
  const walker = document.createTreeWalker(top, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) if (walker.currentNode.data.trim()) texts.push(walker.currentNode.parentElement);
  const fields = [...top.querySelectorAll('input:is([type=text], [type=search], [type=date]), select')];
  const wrong = [];
  for (const element of new Set([...texts, ...fields])) {
    const style = getComputedStyle(element), box = element.getBoundingClientRect();
    if (!element.checkVisibility({ opacityProperty: true, visibilityProperty: true }) || box.width < 2) continue;
    if (element.closest('.sr, .skip, option, template') || element.parentElement.querySelector(':disabled')) continue;
    const back = behind(element), ink = over(parse(style.color), back);
    const [a, b] = [light(ink), light(back)].sort((x, y) => y - x);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    const ratio = (a + .05) / (b + .05);
    if (ratio < (large ? 3 : 4.5)) wrong.push(`${element.outerHTML.slice(0, 90)}: ${ratio.toFixed(2)}`);
  }
  return wrong;
}"""

# What a person who does not see, or does not use a pointer, would stumble over.
FAULTS = """() => {
  const wrong = [], all = selector => [...document.querySelectorAll(selector)];
  const named = element => {
    const by = (element.getAttribute('aria-labelledby') || '').split(/\\s+/).filter(Boolean)
      .map(id => document.getElementById(id)?.textContent || '').join(' ');
    const labels = [...element.labels || []].map(label => label.textContent).join(' ');
    const inside = element.textContent + [...element.querySelectorAll('img')].map(img => img.alt).join(' ');
    return [element.getAttribute('aria-label'), by, labels, element.matches('input, select') ? '' : inside]
      .some(name => name && name.trim());
  };
  const controls = 'a[href], button, input:not([type=hidden]), select, summary, [role=button], [role=group], form, ' +
    'dialog';
  for (const element of all(controls)) {
    if (element.matches('#upload, dialog:not([open])')) continue;
    if (element.checkVisibility() && !named(element)) wrong.push(`no name: ${element.outerHTML.slice(0, 90)}`);
    const { width, height } = element.getBoundingClientRect();
    const small = element.matches('a:not(p a, footer a, .skip), button, select') && element.checkVisibility();
    if (small && (width < 24 || height < 24)) wrong.push(`too small: ${element.outerHTML.slice(0, 90)}`);
  }
  for (const img of all('img')) if (!img.hasAttribute('alt')) wrong.push(`no alt: ${img.outerHTML}`);
  const ids = all('[id]').map(element => element.id);
  for (const id of new Set(ids)) if (ids.filter(other => other === id).length > 1) wrong.push(`twice: #${id}`);
  for (const element of all('[aria-describedby], [aria-labelledby], label[for]'))
    for (const name of ['aria-describedby', 'aria-labelledby', 'for'])
      for (const id of (element.getAttribute(name) || '').split(/\\s+/).filter(Boolean))
        if (!document.getElementById(id) && !element.matches('dialog:not([open])'))
          wrong.push(`${name} of nothing: ${id}`);
  for (const [selector, count] of [['main', 1], ['h1', 1], ['[role=search]', 1], ['header.top', 1], ['footer', 1]])
    if (all(selector).length !== count) wrong.push(`${selector}: ${all(selector).length}`);
  if (!document.documentElement.lang || !document.title) wrong.push('no language or title');
  return wrong;
}"""

# Controls that show nothing when they have the focus: they look the same with it and without.
NO_RING = """element => {
  const look = e => {
    const style = getComputedStyle(e);
    return [style.outlineStyle, style.outlineWidth, style.boxShadow, style.stroke, style.borderColor].join();
  };
  const near = [element, element.nextElementSibling, element.closest('.box')].filter(Boolean);
  const focused = near.map(look);
  element.blur();
  const without = near.map(look);
  element.focus();
  return focused.join('|') === without.join('|');
}"""
