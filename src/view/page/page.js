/* page.js: reads the record that stands in this page and draws it. No library, no network.
 *
 * One object, `state`, says what is shown; `draw` makes the page agree with it, `remember` writes it to the URL fragment. Pointing at things changes
 * `point` only, which is never remembered. Indices (layer, head, query, key) count within the record; the numbers shown are the model's. */

const record = JSON.parse(document.getElementById('record').textContent);
const $ = id => document.getElementById(id);

const L = record.layers.length, H = record.heads.length, N = record.queries.length, M = record.keys.length;
const OFFSET = M - N; // query i stands at key i + OFFSET
// Where the queries are the last of the keys, one strip serves both.
const ALIGNED = !record.cross && OFFSET >= 0 && record.queries.every((token, i) => token === record.keys[i + OFFSET]);

/* ---- the cells ------------------------------------------------------------------------------------------------------------ */

const REFINED = 4; // largest codes of a row that carry a refinement
let codes, refinements, visible; // bytes of all heads; visible: 1 where a pattern shows a cell, undefined without patterns

async function decode() {
  const packed = Uint8Array.from(atob($('cell-data').textContent), c => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** The keys [begin, end) that query i of a layer may see. */
function live(layer, i) {
  const position = i + OFFSET, window = record.window ? record.window[layer] : 0;
  const end = record.causal ? Math.max(Math.min(position + 1, M), 0) : M;
  const begin = window && window <= position ? position - window + 1 : 0;
  return [Math.min(begin, end), end];
}

/** Where the bytes of each row of a layer start, relative to its head, and how many a head of that layer has in all. */
const layouts = record.layers.map((_, layer) => {
  const code = new Uint32Array(N + 1), refinement = new Uint32Array(N + 1);
  for (let i = 0; i < N; i++) {
    const [begin, end] = live(layer, i);
    code[i + 1] = code[i] + end - begin;
    refinement[i + 1] = refinement[i] + Math.min(end - begin, REFINED);
  }
  return { code, refinement };
});
const starts = [{ code: 0, refinement: 0 }]; // of each layer's first head
for (const { code, refinement } of layouts) {
  const last = starts[starts.length - 1];
  starts.push({ code: last.code + H * code[N], refinement: last.refinement + H * refinement[N] });
}

/** One row of one head: weights of the keys from `begin`, NaN where a pattern hides them, and which of them are refined. */
function readRow(layer, head, i) {
  const { code, refinement } = layouts[layer], [begin, end] = live(layer, i);
  const from = starts[layer].code + head * code[N] + code[i], count = end - begin;
  const bytes = codes.subarray(from, from + count), weights = new Float64Array(count), sharp = new Uint8Array(count);
  for (let j = 0; j < count; j++) weights[j] = (bytes[j] / 255) ** 2;
  const largest = [...bytes.keys()].sort((a, b) => bytes[b] - bytes[a] || a - b).slice(0, REFINED).sort((a, b) => a - b);
  let at = starts[layer].refinement + head * refinement[N] + refinement[i];
  for (const j of largest) {
    weights[j] = Math.max(0, Math.min(1, (bytes[j] - 0.5 + (refinements[at++] + 0.5) / 256) / 255)) ** 2;
    sharp[j] = 1;
  }
  if (visible) for (let j = 0; j < count; j++) if (!visible[from + j]) weights[j] = NaN;
  return { begin, weights, sharp };
}

/** Takes the first token out of a row and lets the rest sum to 1; what then stands for a number has lost its exactness. */
function withoutFirst({ begin, weights, sharp }) {
  if (begin > 0 || weights.length === 0) return { begin, weights, sharp };
  let sum = 0;
  for (let j = 1; j < weights.length; j++) if (weights[j] > 0) sum += weights[j];
  return { begin: 1, weights: weights.slice(1).map(w => (sum > 0 ? w / sum : 0 * w)), sharp: new Uint8Array(weights.length - 1) };
}

/* ---- state ---------------------------------------------------------------------------------------------------------------- */

const state = { layer: record.layer, head: record.head, chosen: [], kept: [], scale: 'sqrt', mode: 'one', hideFirst: false };
const point = { query: -1, key: -1, head: -1 }; // head: layer * H + head under the pointer in the grid

const number = (layer, head) => layer * H + head;
const layerHeads = layer => record.heads.map((_, head) => number(layer, head));

/** Chooses one head; a mean or a maximum is then over its layer. */
function chooseHead(layer, head) {
  state.layer = Math.max(0, Math.min(L - 1, layer));
  state.head = Math.max(0, Math.min(H - 1, head));
  state.chosen = state.mode === 'one' ? [number(state.layer, state.head)] : layerHeads(state.layer);
}

/** Adds a head to the mean or maximum, or takes it out; one head at least remains. */
function addHead(layer, head) {
  const one = number(layer, head), rest = state.chosen.filter(n => n !== one);
  if (rest.length < state.chosen.length) {
    if (rest.length > 0) state.chosen = rest;
    return;
  }
  if (state.mode === 'one') state.mode = 'mean';
  state.chosen = [...rest, one].sort((a, b) => a - b);
}

function chooseMode(mode) {
  state.mode = mode;
  if (mode === 'one' || state.chosen.length < 2) chooseHead(state.layer, state.head);
}

/** Keeps a row, or lets go of the only one kept; `add` changes the rows kept by this one. */
function keep(query, add) {
  if (query < 0) return;
  const had = state.kept.includes(query);
  if (add) state.kept = had ? state.kept.filter(i => i !== query) : [...state.kept, query];
  else state.kept = had && state.kept.length === 1 ? [] : [query];
}

/** Numbers of layers; the second of two layers of one number (what linear attention implies, and exact attention beside it) is 13b. */
const layerNames = record.layers.map((number, at) => (record.layers.indexOf(number) < at ? `${number}b` : `${number}`));

/** #layer=13&head=4&row=8,9&scale=log&mode=mean&heads=13.4,13.5&first=hidden, with the model's numbers; what is usual is left out. */
function toFragment() {
  const name = n => `${layerNames[Math.floor(n / H)]}.${record.heads[n % H]}`;
  const parts = [`layer=${layerNames[state.layer]}`, `head=${record.heads[state.head]}`];
  if (state.kept.length || record.query >= 0) parts.push(`row=${state.kept.join(',') || 'none'}`);
  if (state.scale !== 'sqrt') parts.push(`scale=${state.scale}`);
  if (state.mode !== 'one') parts.push(`mode=${state.mode}`);
  if (state.mode !== 'one' && String(state.chosen) !== String(layerHeads(state.layer))) parts.push(`heads=${state.chosen.map(name).join(',')}`);
  if (state.hideFirst) parts.push('first=hidden');
  return '#' + parts.join('&');
}

/** Takes from the fragment what makes sense and leaves the rest as it opens. */
function fromFragment() {
  const given = new URLSearchParams(location.hash.slice(1));
  const find = (list, value) => list.findIndex(one => String(one) === value);
  const layer = find(layerNames, given.get('layer')), head = find(record.heads, given.get('head'));
  state.scale = Object.keys(scales).includes(given.get('scale')) ? given.get('scale') : 'sqrt';
  state.mode = ['mean', 'max'].includes(given.get('mode')) ? given.get('mode') : 'one';
  state.hideFirst = given.get('first') === 'hidden';
  state.kept = record.query >= 0 ? [record.query] : [];
  if (given.has('row')) state.kept = given.get('row').split(',').filter(s => /^\d+$/.test(s)).map(Number).filter(i => i < N);
  chooseHead(layer < 0 ? record.layer : layer, head < 0 ? record.head : head);
  if (state.mode === 'one' || !given.has('heads')) return;
  const pairs = given.get('heads').split(',').map(pair => pair.split('.'));
  const chosen = pairs.map(([l, h]) => [find(layerNames, l), find(record.heads, h ?? null)]).filter(([l, h]) => l >= 0 && h >= 0);
  if (chosen.length) state.chosen = [...new Set(chosen.map(([l, h]) => number(l, h)))];
}

function remember() {
  const fragment = toFragment();
  if (location.hash !== fragment) location.replace(fragment); // no new entry in the history
}

/* ---- what is shown: one matrix -------------------------------------------------------------------------------------------- */

let shown; // { weights [N × M], NaN where no chosen head may look; sharp [N × M] }

function compose() {
  const weights = new Float64Array(N * M).fill(NaN), sharp = new Uint8Array(N * M), count = state.chosen.length;
  for (const n of state.chosen)
    for (let i = 0; i < N; i++) {
      let row = readRow(Math.floor(n / H), n % H, i);
      if (state.hideFirst) row = withoutFirst(row);
      for (let j = 0; j < row.weights.length; j++) {
        const cell = i * M + row.begin + j, w = row.weights[j], old = weights[cell];
        if (Number.isNaN(w)) continue;
        if (state.mode === 'max') weights[cell] = old >= w ? old : w;
        else weights[cell] = (old >= 0 ? old : 0) + w / count;
        sharp[cell] = count === 1 ? row.sharp[j] : 0;
      }
    }
  shown = { weights, sharp };
}

const weightAt = (i, j) => (i >= 0 && j >= 0 ? shown.weights[i * M + j] : NaN);

/** ".414" where the number is exact to the last digit, "≈ .012" where it is not. */
function numberAt(i, j) {
  const w = weightAt(i, j), three = w.toFixed(3).replace(/^0/, '');
  if (Number.isNaN(w)) return 'may not look';
  if (shown.sharp[i * M + j]) return w > 0 && w < 0.0005 ? w.toExponential(1) : three;
  if (w === 0) return 'less than .0001';
  if (w < 0.0095) return `≈ ${Number(w.toPrecision(1)).toFixed(5).replace(/^0/, '').replace(/0+$/, '')}`;
  return w < 0.0995 ? `≈ ${three}` : `≈ ${w.toFixed(2).replace(/^0/, '')}`;
}

/* ---- colour --------------------------------------------------------------------------------------------------------------- */

const darkScheme = matchMedia('(prefers-color-scheme: dark)');
let printing = false;
const isDark = () => darkScheme.matches && !printing;

const scales = {
  linear: { of: w => w, ticks: [0, 0.25, 0.5, 0.75, 1] },
  sqrt: { of: Math.sqrt, ticks: [0, 0.1, 0.25, 0.5, 1] },
  log: { of: w => Math.max(0, 1 + Math.log10(w) / 4), ticks: [0.0001, 0.001, 0.01, 0.1, 1] }, // from one in ten thousand
};
const strength = w => Math.min(1, scales[state.scale].of(w));
const level = w => Math.round(255 * strength(w));

const maps = Object.fromEntries(['light', 'dark'].map(name => [name, Uint8Array.from(record[name].match(/../g), hex => parseInt(hex, 16))]));
const map = () => (isDark() ? maps.dark : maps.light);
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Background and readable ink for a level. */
function paint(element, w) {
  if (Number.isNaN(w)) {
    element.style.background = element.style.color = '';
    return;
  }
  const at = 3 * level(w), [r, g, b] = map().subarray(at, at + 3);
  element.style.background = `rgb(${r},${g},${b})`;
  element.style.color = 0.299 * r + 0.587 * g + 0.114 * b > 140 ? '#111' : '#fff';
}

/** A canvas of width × height CSS pixels, sharp on any screen; returns its context, scaled to CSS pixels. */
function stage(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  const context = canvas.getContext('2d');
  context.setTransform(canvas.width / width, 0, 0, canvas.height / height, 0, 0);
  return context;
}

const NARROW = 760; // CSS pixels, as in page.css: below it the parts stand one under the other

/* ---- small makers --------------------------------------------------------------------------------------------------------- */

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

const place = (element, left, top, width, height) => {
  const set = (name, value) => { if (value !== undefined) element.style[name] = `${value}px`; };
  set('left', left), set('top', top), set('width', width), set('height', height);
  return element;
};

const plural = (count, noun) => `${count} ${noun}${count === 1 ? '' : 's'}`;
const layerNote = layer => (record.notes && record.notes[layer] ? ` (${record.notes[layer]})` : '');
const headName = (layer, head) => `layer ${record.layers[layer]}${layerNote(layer)}, head ${record.heads[head]}`;

/* ---- the text strip ------------------------------------------------------------------------------------------------------- */

const strips = []; // { elements, queryOf, keyOf }

function buildStrip(tokens, spaces, name, queryOf, keyOf) {
  const elements = tokens.map((token, k) => {
    const odd = /^(<[0-9A-F]{2}>)+$|^[␠⏎⇥∅]+$/.test(token);
    const element = make('span', { className: 'token', textContent: (spaces[k] === '1' ? ' ' : '') + token, dir: 'auto', tabIndex: -1 });
    element.classList.toggle('odd', odd);
    element.setAttribute('role', 'button');
    element.dataset.token = k;
    return element;
  });
  elements[0].tabIndex = 0;
  const box = make('div', { className: 'tokens' }, ...elements);
  if (name) box.dataset.name = name;
  $('strip').append(box);
  const strip = { elements, queryOf, keyOf };
  const index = event => Number(event.target.dataset?.token ?? -1);
  box.addEventListener('pointermove', event => index(event) >= 0 && pointAt(queryOf(index(event)), keyOf(index(event))));
  box.addEventListener('pointerleave', () => pointAt(-1, -1));
  box.addEventListener('mousedown', event => event.shiftKey && event.preventDefault()); // shift adds a token, not to a selection of text
  box.addEventListener('click', event => {
    if (index(event) < 0 || (!event.shiftKey && String(getSelection()))) return;
    if (event.detail) event.target.blur(); // so that arrow keys go on moving between heads
    change(() => keep(queryOf(index(event)), event.shiftKey));
  });
  box.addEventListener('keydown', event => {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -1, ArrowDown: 1 }[event.key], k = index(event);
    if (k < 0) return;
    if (step && elements[k + step]) {
      elements[k].tabIndex = -1;
      elements[k + step].tabIndex = 0;
      elements[k + step].focus();
      pointAt(queryOf(k + step), keyOf(k + step));
    }
    if (event.key === 'Enter' || event.key === ' ') change(() => keep(queryOf(k), event.shiftKey));
    if (step || event.key === 'Enter' || event.key === ' ') event.preventDefault(), event.stopPropagation();
  });
  strips.push(strip);
}

function buildStrips() {
  if (ALIGNED) {
    buildStrip(record.keys, record.keys_space, '', k => (k >= OFFSET ? k - OFFSET : -1), k => k);
  } else {
    buildStrip(record.queries, record.queries_space, record.cross ? 'target' : 'look', i => i, () => -1);
    buildStrip(record.keys, record.keys_space, record.cross ? 'source' : 'looked at', () => -1, j => j);
  }
}

/** Rows that the strip and the lines speak of: the one pointed at, else those kept. */
const activeRows = () => (point.query >= 0 ? [point.query] : point.key >= 0 ? [] : state.kept);

function sumOver(rows, read) {
  let sum = NaN;
  for (const i of rows) {
    const w = read(i);
    if (!Number.isNaN(w)) sum = (sum >= 0 ? sum : 0) + w;
  }
  return sum;
}

function drawStrip() {
  const rows = activeRows(), accent = css('--accent-strand');
  // Who looks at a token: at the one pointed at, or, where one strip serves both, at those kept.
  const seen = point.query < 0 && point.key >= 0 ? [point.key] : ALIGNED ? rows.map(i => i + OFFSET) : [];
  for (const { elements, queryOf, keyOf } of strips)
    elements.forEach((element, k) => {
      const query = queryOf(k), key = keyOf(k);
      paint(element, sumOver(rows, i => weightAt(i, key)));
      const back = query >= 0 && !rows.includes(query) ? sumOver(seen, j => weightAt(query, j)) : NaN;
      element.style.borderBottomColor = back > 0 ? `rgba(${accent},${strength(back)})` : '';
      element.classList.toggle('chosen', rows.includes(query) && query >= 0);
      element.classList.toggle('target', point.key === key && key >= 0 && !rows.includes(query));
      element.setAttribute('aria-pressed', state.kept.includes(query));
    });
  drawSentence(rows);
}

/** it looks at  animal .41  The .17  because .11 … : the line that the terminal prints. */
function drawSentence(rows) {
  const box = $('sentence'), name = rows.map(i => record.queries[i]).join(' + ');
  if (!rows.length) {
    box.replaceChildren('Point at a token to see what it looks at (tint) and what looks at it (underline). Click keeps it, shift-click adds another.');
    return;
  }
  const keys = record.keys.map((_, j) => j).map(j => [sumOver(rows, i => weightAt(i, j)), j]).filter(([w]) => w >= 0.005);
  keys.sort(([a, i], [b, j]) => b - a || i - j);
  const items = keys.slice(0, 12).flatMap(([w, j]) => [' ', make('span', {}, make('bdi', { textContent: record.keys[j] }), ` ${w.toFixed(2).replace(/^0/, '')}`)]);
  box.replaceChildren(make('b', {}, make('bdi', { textContent: name })), rows.length > 1 ? ' look at' : ' looks at', ...items);
}

/* ---- the grid of heads ---------------------------------------------------------------------------------------------------- */

const grid = { pitch: 16, left: 28, top: 16 };

/** Thumbnails as large as the screen allows, from a dozen pixels to sixty-four. */
function planGrid() {
  const tall = Math.max(360, innerHeight - $('grid').getBoundingClientRect().top - scrollY - 48);
  const wide = innerWidth <= NARROW ? innerWidth - 24 - grid.left : Math.max(188, 0.34 * document.body.clientWidth);
  grid.pitch = Math.max(14, Math.min(66, Math.floor(Math.min(tall / L, wide / H))));
  place($('grid'), undefined, undefined, grid.left + H * grid.pitch, grid.top + L * grid.pitch);
  place($('thumbnails'), grid.left, grid.top);
  const every = (count, pixels) => [1, 2, 5, 10, 20, 50, 100].find(step => step * grid.pitch >= pixels) ?? count;
  const numbers = (list, pixels, at) =>
    list.map((value, k) => [value, k]).filter(([, k]) => k % every(list.length, pixels) === 0)
      .map(([value, k]) => place(make('span', { textContent: value }), ...at(k)));
  $('grid-heads').replaceChildren(...numbers(record.heads, 18, k => [grid.left + (k + 0.5) * grid.pitch, 0]));
  $('grid-layers').replaceChildren(...numbers(record.layers, 13, k => [0, grid.top + (k + 0.5) * grid.pitch]));
}

/** The largest level of each block of cells, so that a thin line stays visible; −1 where nothing is live. */
function thumbnail(layer, head, side) {
  const out = new Int16Array(side * side).fill(-1), { code } = layouts[layer];
  const base = starts[layer].code + head * code[N];
  for (let i = 0; i < N; i++) {
    const [begin, end] = live(layer, i), scaled = new Float64Array(end - begin);
    let rest = 0;
    for (let j = begin; j < end; j++) {
      scaled[j - begin] = (codes[base + code[i] + j - begin] / 255) ** 2;
      if (j > 0) rest += scaled[j - begin];
    }
    const first = state.hideFirst ? Math.max(begin, 1) : begin, factor = state.hideFirst && begin === 0 && rest > 0 ? 1 / rest : 1;
    const y0 = Math.floor((i * side) / N), y1 = Math.max(y0 + 1, Math.floor(((i + 1) * side) / N));
    for (let j = first; j < end; j++) {
      if (visible && !visible[base + code[i] + j - begin]) continue;
      const value = level(Math.min(1, scaled[j - begin] * factor));
      const x0 = Math.floor((j * side) / M), x1 = Math.max(x0 + 1, Math.floor(((j + 1) * side) / M));
      for (let y = y0; y < y1; y++) for (let x = x0; x < x1; x++) if (value > out[y * side + x]) out[y * side + x] = value;
    }
  }
  return out;
}

function drawGrid() {
  const canvas = $('thumbnails'), context = stage(canvas, H * grid.pitch, L * grid.pitch), colors = map();
  const ratio = canvas.width / (H * grid.pitch), side = Math.floor((grid.pitch - 2) * ratio);
  const image = context.createImageData(side, side);
  for (let layer = 0; layer < L; layer++)
    for (let head = 0; head < H; head++) {
      const levels = thumbnail(layer, head, side);
      for (let p = 0; p < levels.length; p++) {
        image.data[4 * p + 3] = levels[p] < 0 ? 0 : 255;
        if (levels[p] >= 0) image.data.set(colors.subarray(3 * levels[p], 3 * levels[p] + 3), 4 * p);
      }
      context.putImageData(image, Math.round((head * grid.pitch + 1) * ratio), Math.round((layer * grid.pitch + 1) * ratio));
    }
}

function drawFrames() {
  const frame = (n, kind) =>
    place(make('div', { className: `frame ${kind}` }), grid.left + (n % H) * grid.pitch - 1, grid.top + Math.floor(n / H) * grid.pitch - 1, grid.pitch + 2, grid.pitch + 2);
  const own = number(state.layer, state.head), frames = state.chosen.filter(n => n !== own).map(n => frame(n, 'also'));
  if (point.head >= 0 && point.head !== own) frames.push(frame(point.head, 'under'));
  if (state.chosen.includes(own)) frames.push(frame(own, ''));
  $('frames').replaceChildren(...frames);
  const n = point.head >= 0 ? point.head : own;
  $('about').replaceChildren(make('b', { textContent: headName(Math.floor(n / H), n % H) }), aboutHead(n));
}

/** What a head does, in its four numbers. */
function aboutHead(n) {
  const [first, second, third, spread] = record.stats.slice(4 * n, 4 * n + 4).map(s => s / 1000);
  const [, heads, shared] = record.model_shape, share = x => `${Math.round(100 * x)} %`;
  const group = shared && shared < heads ? ` · key/value head ${Math.floor((record.heads[n % H] * shared) / heads)}` : '';
  if (record.cross) return `${group}\ncoverage ${share(second)} · in order ${share(third)}\nfirst token ${share(first)} · spread ${spread.toFixed(1)} bits`;
  return `${group}\nfirst token ${share(first)} · previous ${share(second)}\nitself ${share(third)} · spread ${spread.toFixed(1)} bits`;
}

/* ---- the matrix and the lines --------------------------------------------------------------------------------------------- */

const plate = {}; // sizes in CSS pixels, from planPlate
const measure = document.createElement('canvas').getContext('2d');

/** The longest label in pixels, up to 104 (or a quarter of a narrow screen). */
function labelWidth(tokens, font) {
  measure.font = `600 ${font}px ${getComputedStyle(document.body).fontFamily}`;
  const most = Math.min(104, innerWidth / 4);
  let width = 8;
  for (const token of tokens) if (width < most) width = Math.max(width, measure.measureText(token).width + 2);
  return Math.ceil(Math.min(width, most));
}

function planPlate() {
  const count = Math.max(N, M), room = $('head').clientWidth, top = $('plate').getBoundingClientRect().top + scrollY;
  plate.rowLabel = labelWidth(record.queries, 12) + 6;
  plate.columnLabel = labelWidth(record.keys, 12) + 6;
  // Forty tokens fit a laptop without scrolling; more may scroll rather than shrink below reading.
  const tall = innerWidth <= NARROW || printing ? Infinity : innerHeight - top - plate.columnLabel - 48, least = count <= 40 ? 10 * count : 560;
  const alone = Math.min(28, Math.min(room - plate.rowLabel, Math.max(tall, least, 160), 960) / count);
  // The lines stand beside the matrix if that leaves it a readable size, otherwise below.
  const words = 2 * plate.rowLabel + plate.columnLabel, beside = Math.min(alone, (room - words - 32 - 96) / count);
  plate.stacked = beside < 0.7 * Math.min(alone, 12);
  const cell = plate.stacked ? alone : beside;
  plate.cell = cell >= 3 ? Math.floor(cell) : cell;
  plate.font = Math.max(9, Math.min(12, plate.cell - 1));
  plate.width = plate.cell * M;
  plate.height = plate.cell * N;
  plate.strand = Math.max(96, Math.min(240, room - words - (plate.stacked ? 0 : plate.width + 33)));
  plate.linesTop = plate.stacked ? 0 : plate.columnLabel;
}

/** Labels of tokens, every one or as many as fit, and one more for the token pointed at. */
function labels(box, tokens, position) {
  const step = Math.ceil((plate.font + 1) / plate.cell);
  const put = (k, on) => {
    const element = make('span', { className: on ? 'label on' : 'label', textContent: tokens[k], title: tokens[k], dir: 'auto' });
    element.style.fontSize = `${plate.font}px`;
    element.style.lineHeight = `${plate.font + 3}px`;
    return position(element, k);
  };
  box.replaceChildren(...tokens.map((_, k) => k).filter(k => k % step === 0).map(k => put(k, false)));
  return k => put(k, true);
}

const makeLabel = {}; // box id → function that makes its label for one token, drawn over the others

function buildLabels() {
  const thick = plate.font + 3, centre = k => (k + 0.5) * plate.cell - thick / 2;
  const { rowLabel, columnLabel, strand, linesTop } = plate;
  const put = (id, tokens, position) => (makeLabel[id] = labels($(id), tokens, position));
  put('row-labels', record.queries, (e, k) => place(e, 0, columnLabel + centre(k), rowLabel - 6, thick));
  put('column-labels', record.keys, (e, k) => place(e, rowLabel + centre(k), columnLabel - 6, columnLabel - 6, thick));
  put('looking', record.queries, (e, k) => place(e, 0, linesTop + centre(k), rowLabel - 6, thick));
  put('looked-at', record.keys, (e, k) => place(e, rowLabel + strand + 6, linesTop + centre(k), columnLabel - 6, thick));
}

function buildPlate() {
  place($('matrix'), undefined, undefined, plate.rowLabel + plate.width + 1, plate.columnLabel + plate.height + 1);
  place($('cells'), plate.rowLabel, plate.columnLabel);
  place($('lines'), undefined, undefined, plate.rowLabel + plate.strand + plate.columnLabel, plate.linesTop + plate.cell * Math.max(N, M) + 1);
  place($('strands'), plate.rowLabel, plate.linesTop);
  buildLabels();
}

/** Live cells in colour, masked ones transparent; where a pixel covers several cells it shows the largest. */
function drawMatrix() {
  const canvas = $('cells'), context = stage(canvas, plate.width, plate.height), colors = map();
  const width = Math.min(M, canvas.width), height = Math.min(N, canvas.height);
  const largest = new Float64Array(width * height).fill(NaN);
  for (let i = 0; i < N; i++)
    for (let j = 0; j < M; j++) {
      const w = shown.weights[i * M + j], p = Math.floor((i * height) / N) * width + Math.floor((j * width) / M);
      if (!(largest[p] >= w) && !Number.isNaN(w)) largest[p] = w;
    }
  const image = new ImageData(width, height);
  largest.forEach((w, p) => {
    if (Number.isNaN(w)) return;
    const at = 3 * level(w);
    image.data.set([colors[at], colors[at + 1], colors[at + 2], 255], 4 * p);
  });
  const small = make('canvas', { width, height });
  small.getContext('2d').putImageData(image, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(small, 0, 0, plate.width, plate.height);
  if (plate.cell >= 8) drawBorder(context); // below that it would drown the cells
}

/** A hairline between live cells and paper, so that a white cell is seen to be one. */
function drawBorder(context) {
  const isLive = (i, j) => i >= 0 && j >= 0 && i < N && j < M && !Number.isNaN(shown.weights[i * M + j]), c = plate.cell;
  context.fillStyle = css('--hair');
  for (let i = 0; i < N; i++)
    for (let j = 0; j < M; j++) {
      if (!isLive(i, j)) continue;
      if (!isLive(i, j + 1)) context.fillRect((j + 1) * c - (j + 1 < M ? 0 : 1), i * c, 1, c);
      if (!isLive(i - 1, j)) context.fillRect(j * c, i * c - (i > 0 ? 1 : 0), c, 1);
      if (!isLive(i, j - 1)) context.fillRect(j * c - (j > 0 ? 1 : 0), i * c, 1, c);
      if (!isLive(i + 1, j)) context.fillRect(j * c, (i + 1) * c - (i + 1 < N ? 0 : 1), c, 1);
    }
}

const MOST_STRANDS = 6000; // beyond them the strongest are drawn

function drawStrands() {
  const context = stage($('strands'), plate.strand, plate.cell * Math.max(N, M));
  const rows = new Set(activeRows()), column = point.query < 0 ? point.key : -1, focused = rows.size > 0 || column >= 0;
  const y = k => (k + 0.5) * plate.cell, bend = plate.strand / 2, usual = css('--strand'), accent = css('--accent-strand');
  let strands = [];
  for (let i = 0; i < N; i++)
    for (let j = 0; j < M; j++) {
      const s = strength(shown.weights[i * M + j]);
      if (s > 0.08) strands.push({ i, j, s, on: rows.has(i) || j === column });
    }
  strands.sort((a, b) => a.on - b.on || a.s - b.s);
  if (strands.length > MOST_STRANDS) strands = strands.slice(-MOST_STRANDS);
  for (const { i, j, s, on } of strands) {
    context.strokeStyle = `rgba(${on ? accent : usual},${on ? Math.max(s, 0.15) : focused ? s * 0.12 : s * s})`;
    context.lineWidth = 0.5 + 2.5 * s * Math.min(1, plate.cell / 16);
    context.beginPath();
    context.moveTo(0, y(i));
    context.bezierCurveTo(bend, y(i), bend, y(j), plate.strand, y(j));
    context.stroke();
  }
}

/** Cross-hair, the labels under it, and the number. */
function drawPoint() {
  const { query, key } = point, { cell, rowLabel, columnLabel } = plate, rows = activeRows();
  for (const id of Object.keys(makeLabel)) $(id).querySelectorAll('.on').forEach(element => element.remove());
  for (const i of rows) for (const id of ['row-labels', 'looking']) $(id).append(makeLabel[id](i));
  if (key >= 0) for (const id of ['column-labels', 'looked-at']) $(id).append(makeLabel[id](key));
  $('cross-row').style.display = rows.length === 1 ? 'block' : 'none';
  $('cross-column').style.display = key >= 0 ? 'block' : 'none';
  if (rows.length === 1) place($('cross-row'), rowLabel - 1, columnLabel + rows[0] * cell - 1, plate.width + 2, cell + 2);
  if (key >= 0) place($('cross-column'), rowLabel + key * cell - 1, columnLabel - 1, cell + 2, plate.height + 2);
  if (query < 0 || key < 0 || !point.cell) {
    $('readout').replaceChildren(record.cross ? 'rows are the target, columns the source' : 'rows look, columns are looked at');
    return;
  }
  const name = (tokens, k) => make('bdi', { textContent: tokens[k] });
  $('readout').replaceChildren(name(record.queries, query), ' → ', name(record.keys, key), '  ', make('b', { textContent: numberAt(query, key) }),
    `  (row ${query}, column ${key})`);
}

/* ---- words ---------------------------------------------------------------------------------------------------------------- */

const caveats = {
  one: L * H > 1 ? `One head is one of ${L * H}; what it reads may be outweighed by what others read.` : '',
  mean: 'A mean blurs: heads that look at different tokens make a picture that none of them has.',
  max: 'A maximum shows the strongest look of any head; its rows do not sum to 1.',
};

function drawWords() {
  const layers = [...new Set(state.chosen.map(n => Math.floor(n / H)))];
  const where = layers.length === 1 ? ` of layer ${record.layers[layers[0]]}` : ` of ${plural(layers.length, 'layer')}`;
  const what = { one: headName(state.layer, state.head), mean: `mean of ${plural(state.chosen.length, 'head')}${where}`, max: `maximum of ${plural(state.chosen.length, 'head')}${where}` }[state.mode];
  $('title').textContent = what[0].toUpperCase() + what.slice(1) + (state.hideFirst ? ' · first token hidden, the rest renormalised' : '');
  $('caveat').textContent = caveats[state.mode];
  for (const group of document.querySelectorAll('#toggles [data-field]'))
    for (const button of group.children) button.setAttribute('aria-pressed', String(state[group.dataset.field] === button.value));
  $('hide-first').checked = state.hideFirst;
  drawScale();
}

/** The colours from none to all, with the weights that have them. */
function drawScale() {
  const ramp = $('ramp').getContext('2d'), image = ramp.createImageData(256, 1), colors = map(), wide = 200;
  for (let x = 0; x < 256; x++) image.data.set([...colors.subarray(3 * x, 3 * x + 3), 255], 4 * x);
  ramp.putImageData(image, 0, 0);
  const ticks = scales[state.scale].ticks.map(w => place(make('span', { textContent: String(w).replace(/^0\./, '.') }), strength(w) * wide));
  $('scale').replaceChildren($('ramp'), ...ticks);
}

function drawTable() {
  const table = $('row-table'), i = state.kept.length ? state.kept[0] : N - 1;
  if (!table.open) return;
  table.querySelector('caption').textContent = `${$('title').textContent}: row ${i}, ${record.queries[i]}`;
  const cell = (tag, text) => make(tag, { textContent: text, dir: 'auto' });
  table.querySelector('tbody').replaceChildren(...record.keys.map((token, j) => [token, j]).filter(([, j]) => !Number.isNaN(weightAt(i, j)))
    .map(([token, j]) => make('tr', {}, cell('td', token), cell('td', numberAt(i, j)))));
}

function writeOnce() {
  const [layers, heads, shared] = record.model_shape, title = record.model || 'attention';
  document.title = `${title} · heed`;
  $('model').textContent = title;
  const groups = shared && shared !== heads ? ` (${shared} key/value)` : '';
  const here = L < layers || H < heads ? ` · here ${L} × ${H}` : '', tokens = record.cross ? `${plural(N, 'token')} from ${M}` : N === M ? plural(M, 'token') : `${N} of ${M} tokens look`;
  $('shape').textContent = [record.family, `${plural(layers, 'layer')} × ${plural(heads, 'head')}${groups}${here}`, tokens].filter(Boolean).join(' · ');
  $('grid-note').textContent = L * H > 1 ? 'Arrow keys move. Shift-click adds a head to a mean.' : '';
  const seconds = record.seconds > 0 ? `${record.seconds < 10 ? record.seconds.toFixed(2) : Math.round(record.seconds)} s` : '';
  $('small-print').textContent = [record.model, record.file, record.hash, `heed ${record.heed}`, seconds, record.command].filter(Boolean).join(' · ');
}

/* ---- drawing all of it, and events ---------------------------------------------------------------------------------------- */

function draw() {
  compose();
  drawWords();
  drawFrames();
  drawMatrix();
  drawHover();
  drawTable();
}

/** What follows the pointer. */
function drawHover() {
  drawStrip();
  drawPoint();
  drawStrands();
}

function layOut() {
  planGrid();
  drawGrid();
  planPlate();
  buildPlate();
  draw();
}

function change(edit) {
  const before = `${state.scale} ${state.hideFirst}`;
  edit();
  remember();
  if (before !== `${state.scale} ${state.hideFirst}`) drawGrid();
  draw();
}

function pointAt(query, key, cell = false) {
  if (point.query === query && point.key === key && point.cell === cell) return;
  Object.assign(point, { query, key, cell });
  drawHover();
}

function listen() {
  const cellOf = event => [Math.floor(event.offsetY / plate.cell), Math.floor(event.offsetX / plate.cell)];
  const cells = $('cells'), thumbnails = $('thumbnails'), strands = $('strands');
  const over = event => {
    const [i, j] = cellOf(event);
    if (i >= 0 && j >= 0 && i < N && j < M) pointAt(i, j, true);
  };
  cells.addEventListener('pointermove', over);
  cells.addEventListener('pointerdown', over);
  cells.addEventListener('pointerleave', () => pointAt(-1, -1));
  cells.addEventListener('click', event => change(() => keep(Math.min(N - 1, cellOf(event)[0]), event.shiftKey)));
  strands.addEventListener('pointermove', event => {
    const k = cellOf(event)[0], left = event.offsetX < plate.strand / 2;
    pointAt(left && k < N ? k : -1, !left && k < M ? k : -1);
  });
  strands.addEventListener('pointerleave', () => pointAt(-1, -1));

  const headOf = event => [Math.min(L - 1, Math.max(0, Math.floor(event.offsetY / grid.pitch))), Math.min(H - 1, Math.max(0, Math.floor(event.offsetX / grid.pitch)))];
  const overHead = n => {
    point.head = n;
    drawFrames();
  };
  thumbnails.addEventListener('pointermove', event => overHead(number(...headOf(event))));
  thumbnails.addEventListener('pointerleave', () => overHead(-1));
  thumbnails.addEventListener('click', event => change(() => (event.shiftKey ? addHead : chooseHead)(...headOf(event))));

  for (const group of document.querySelectorAll('#toggles [data-field]'))
    group.addEventListener('click', event => {
      if (!event.target.value) return;
      change(() => (group.dataset.field === 'mode' ? chooseMode(event.target.value) : (state.scale = event.target.value)));
    });
  $('hide-first').addEventListener('change', event => change(() => (state.hideFirst = event.target.checked)));
  $('row-table').addEventListener('toggle', drawTable);

  addEventListener('keydown', event => {
    const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === 'Escape') change(() => (state.kept = []));
    if (!move) return;
    event.preventDefault();
    change(() => chooseHead(state.layer + move[0], state.head + move[1]));
  });
  addEventListener('hashchange', () => {
    if (location.hash === toFragment()) return;
    fromFragment();
    layOut();
  });
  addEventListener('resize', layOut);
  darkScheme.addEventListener('change', layOut);
  const print = on => {
    printing = on;
    document.documentElement.classList.toggle('printing', on);
    layOut();
  };
  addEventListener('beforeprint', () => print(true));
  addEventListener('afterprint', () => print(false));
}

async function start() {
  const bytes = await decode(), split = starts[L].code;
  codes = bytes.subarray(0, split);
  refinements = bytes.subarray(split, split + starts[L].refinement);
  if (record.visible) visible = bytes.subarray(split + starts[L].refinement);
  writeOnce();
  buildStrips();
  fromFragment();
  layOut();
  listen();
}

start().catch(error => {
  document.querySelector('main').prepend(make('p', { className: 'failure', textContent: `This browser cannot draw the page: ${error.message}` }));
  throw error;
});
