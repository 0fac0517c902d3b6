// A picture that can be made larger and moved: by buttons, keys, wheel, double click, and two fingers. Where it is whole,
// a finger that goes sideways turns to the next.
const MOST = 8, STEP = 1.5, SWIPE = 48;

export function zoomable(stage, { turn, larger }) {
  let scale = 1, x = 0, y = 0, picture = null;
  const fingers = new Map();
  let start = null;  // where fingers were when the last one came or went

  function hold(element) {
    picture = element;
    fingers.clear();
    start = null;
    set(1, 0, 0);
  }

  function set(s, left, top) {
    scale = Math.min(MOST, Math.max(1, s));
    // No further than that the picture still covers the middle.
    const wide = (scale - 1) * (picture?.clientWidth || 0) / 2, high = (scale - 1) * (picture?.clientHeight || 0) / 2;
    x = Math.min(wide, Math.max(-wide, left));
    y = Math.min(high, Math.max(-high, top));
    if (picture) picture.style.transform = scale === 1 ? '' : `translate(${x}px, ${y}px) scale(${scale})`;
    stage.classList.toggle('zoomed', scale > 1);
    if (scale > 1.2) larger();
  }

  // What is under a point stays there.
  function about(factor, at = null) {
    const next = Math.min(MOST, Math.max(1, scale * factor)), box = stage.getBoundingClientRect();
    const dx = at ? at[0] - box.left - box.width / 2 : 0, dy = at ? at[1] - box.top - box.height / 2 : 0;
    set(next, dx - (dx - x) * next / scale, dy - (dy - y) * next / scale);
  }

  const centre = () => {
    const points = [...fingers.values()], sum = points.reduce(([a, b], [c, d]) => [a + c, b + d], [0, 0]);
    return sum.map(total => total / points.length);
  };
  const apart = () => {
    const [a, b] = fingers.values();
    return b ? Math.hypot(a[0] - b[0], a[1] - b[1]) : 0;
  };
  function begin() {
    start = fingers.size ? { at: centre(), apart: apart(), scale, x, y, several: fingers.size > 1 || start?.several } : null;
  }
  stage.addEventListener('pointerdown', event => {
    if (event.button || !picture || event.target.closest('a, button, video')) return;
    stage.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, [event.clientX, event.clientY]);
    begin();
  });
  stage.addEventListener('pointermove', event => {
    if (!start || !fingers.has(event.pointerId)) return;
    fingers.set(event.pointerId, [event.clientX, event.clientY]);
    const [cx, cy] = centre();
    const grown = start.apart ? apart() / start.apart : 1;
    if (start.scale * grown > 1.01 || start.several)
      set(start.scale * grown, start.x * grown + cx - start.at[0], start.y * grown + cy - start.at[1]);
  });
  const end = event => {
    if (!fingers.delete(event.pointerId) || !start) return;
    const across = event.clientX - start.at[0], down = event.clientY - start.at[1];
    const swiped = event.type === 'pointerup' && event.pointerType !== 'mouse' && scale === 1 && !start.several &&
      Math.abs(across) > SWIPE && Math.abs(across) > 2 * Math.abs(down);
    begin();
    if (swiped) turn(across < 0 ? 1 : -1);
  };
  stage.addEventListener('pointerup', end);
  stage.addEventListener('pointercancel', end);
  stage.addEventListener('dblclick', event => {
    if (picture) about(scale > 1 ? 1 / scale : 2.5, [event.clientX, event.clientY]);
  });
  stage.addEventListener('wheel', event => {
    if (!picture) return;
    event.preventDefault();
    about(Math.exp(-event.deltaY / 300), [event.clientX, event.clientY]);
  }, { passive: false });

  return {
    hold,
    larger: () => about(STEP),
    smaller: () => about(1 / STEP),
    whole: () => set(1, 0, 0),
    get scale() { return scale; },
  };
}
