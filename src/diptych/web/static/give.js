// Pictures that are dropped on the page, or pasted.
import { one } from './ask.js';

const files = event => [...(event.dataTransfer || event.clipboardData)?.files || []];
const carries = event => [...event.dataTransfer?.types || []].includes('Files');
let over = 0;
function hover(by) {
  over = by === 0 ? 0 : Math.max(0, over + by);
  one('.drop').hidden = over === 0;
}

export function given(take) {
  addEventListener('dragenter', event => { if (carries(event)) { event.preventDefault(); hover(1); } });
  addEventListener('dragover', event => { if (carries(event)) event.preventDefault(); });
  addEventListener('dragleave', event => { if (carries(event)) hover(-1); });
  addEventListener('drop', event => {
    if (!carries(event)) return;
    event.preventDefault();
    hover(0);
    take(files(event)[0]);
  });
  addEventListener('paste', event => {
    const picture = files(event).find(file => file.type.startsWith('image/'));
    if (!picture) return;
    event.preventDefault();
    take(picture);
  });
}
