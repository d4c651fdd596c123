// Adds an output's products again, in the browser, as probe.order.replay does in NumPy: the operands
// are generated anew (probe.case.operands, kind "cancel"), the window is found (probe.case.geometry), and the
// stored tree is evaluated with the stored roundings. Nothing here touches the page.
"use strict";

const Probe = { data: {}, index: null };

(() => {
  // ---- formats: precision, smallest exponent, largest exponent
  const FORMATS = { float64: [53, -1022, 1023], float32: [24, -126, 127], tf32: [11, -126, 127], bfloat16: [8, -126, 127], float16: [11, -14, 15] };
  const view = new DataView(new ArrayBuffer(8));

  function exponent(value) {
    view.setFloat64(0, value);
    return ((view.getUint32(0) >>> 20) & 0x7ff) - 1023;
  }

  function round(value, format, truncate = false) {
    if (format === "float64" || value === 0 || !isFinite(value)) return value;
    if (format === "float32" && !truncate) return Math.fround(value);
    const [precision, least, most] = FORMATS[format];
    const unit = 2 ** (Math.max(exponent(value), least) - precision + 1);
    const scaled = value / unit; // exact: a power of two
    let whole = Math.trunc(scaled);
    const rest = Math.abs(scaled - whole);
    if (!truncate && (rest > 0.5 || (rest === 0.5 && whole % 2))) whole += Math.sign(scaled);
    const result = whole === 0 ? 0 * Math.sign(value) : whole * unit;
    const top = (2 - 2 ** (1 - precision)) * 2 ** most;
    return Math.abs(result) <= top ? result : Math.sign(result) * (truncate ? top : Infinity);
  }

  // The sum's error by Knuth's TwoSum, whose last bit then makes the sum odd: rounding that to a format with
  // two bits less gives what rounding the exact sum gives (Boldo and Melquiond, 2008).
  function toOdd(total, error) {
    if (error === 0 || !isFinite(total)) return total;
    view.setFloat64(0, total);
    if (view.getUint32(4) & 1) return total;
    const bits = view.getBigInt64(0) + (error > 0 === total > 0 ? 1n : -1n);
    view.setBigInt64(0, bits);
    return view.getFloat64(0);
  }

  function lost(a, b, total) {
    const kept = total - a;
    return a - (total - kept) + (b - kept);
  }

  const oddSum = (a, b) => toOdd(a + b, lost(a, b, a + b));

  // Dekker's product with Veltkamp's splitting: what a float64 product loses.
  function lostOfProduct(a, b, product) {
    const cut = (v) => { const c = 134217729 * v; return c - (c - v); };
    const [ah, bh] = [cut(a), cut(b)], [al, bl] = [a - ah, b - bh];
    return al * bl - (product - ah * bh - al * bh - ah * bl);
  }

  // float64's fused multiply-add by Boldo and Melquiond's algorithm; no overflow or underflow is expected.
  function fma(a, b, c) {
    const high = a * b, low = lostOfProduct(a, b, high);
    const part = c + low, partLow = lost(c, low, part);
    const sum = high + part, sumLow = lost(high, part, sum);
    return sum + oddSum(partLow, sumLow);
  }

  // ---- bits
  function toBits(value, dtype) {
    if (dtype === "float64") { view.setFloat64(0, value); return view.getBigUint64(0); }
    if (dtype !== "float16") { view.setFloat32(0, value); return BigInt(dtype === "bfloat16" ? view.getUint16(0) : view.getUint32(0)); }
    const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0, size = Math.abs(value);
    if (size === Infinity) return BigInt(sign | 0x7c00);
    const e = Math.max(exponent(size), -14), digits = size / 2 ** (e - 10); // 2^10 and more where normal
    return BigInt(sign | (digits < 1024 ? digits : ((e + 15) << 10) | (digits - 1024)));
  }

  function fromBits(bits, dtype) {
    if (dtype === "float64") { view.setBigUint64(0, BigInt(bits)); return view.getFloat64(0); }
    const number = Number(bits);
    if (dtype !== "float16") { view.setUint32(0, dtype === "bfloat16" ? number * 65536 : number); return view.getFloat32(0); }
    const e = (number >> 10) & 31, m = number & 1023, sign = number & 0x8000 ? -1 : 1;
    if (e === 31) return m ? NaN : sign * Infinity;
    return sign * (e ? (1024 + m) * 2 ** (e - 25) : m * 2 ** -24);
  }

  function ulps(a, b, dtype) { // signed, right minus left, of bits
    const width = { float64: 64n, float32: 32n }[dtype] || 16n, sign = 1n << (width - 1n);
    const ordered = (v) => (v & sign ? -(v ^ sign) : v);
    return Number(ordered(BigInt(b)) - ordered(BigInt(a)));
  }

  // ---- operands: splitmix64's finaliser over the coordinates, in halves of 32 bits
  let H = 0, L = 0;
  function multiply(hi, lo, bhi, blo) {
    const a0 = lo & 0xffff, a1 = lo >>> 16, b0 = blo & 0xffff, b1 = blo >>> 16;
    const p00 = a0 * b0, p01 = a0 * b1, p10 = a1 * b0;
    const middle = (p00 >>> 16) + (p01 & 0xffff) + (p10 & 0xffff);
    L = ((middle << 16) | (p00 & 0xffff)) >>> 0;
    H = (a1 * b1 + (p01 >>> 16) + (p10 >>> 16) + (middle >>> 16) + Math.imul(hi, blo) + Math.imul(lo, bhi)) >>> 0;
  }
  function mix(hi, lo) {
    multiply(hi ^ (hi >>> 30), lo ^ ((lo >>> 30) | (hi << 2)), 0xbf58476d, 0x1ce4e5b9);
    multiply(H ^ (H >>> 27), L ^ ((L >>> 27) | (H << 5)), 0x94d049bb, 0x133111eb);
    const h = H;
    H = (H ^ (H >>> 31)) >>> 0;
    L = (L ^ ((L >>> 31) | (h << 1))) >>> 0;
  }
  const GOLDEN = 0x9e3779b97f4a7c15n, TENSORS = { x: 1n, w: 2n };

  function starter(seed, tensor, draw) { // gives the upper 32 bits of the hash of any element
    const start = BigInt.asUintN(64, BigInt(seed) + GOLDEN * (1n + TENSORS[tensor] + 8n * BigInt(draw)));
    mix(Number(start >> 32n), Number(start & 0xffffffffn));
    const first = [H, L];
    return (place) => {
      let [h, l] = first;
      for (const index of place) {
        multiply(0, index + 1, 0x9e3779b9, 0x7f4a7c15);
        const low = L + l;
        mix((H + h + (low > 0xffffffff ? 1 : 0)) >>> 0, low >>> 0);
        h = H; l = L;
      }
      return H;
    };
  }

  function weights(spec, filter, leaves) { // of one filter: the case's own, or probe.case.operands.cancel_weights
    if (spec.weights) return Array.from({ length: leaves }, (_, leaf) => round(spec.weights[leaf * spec.filters + filter], spec.dtype));
    const precision = FORMATS[spec.dtype][0], digits = Math.floor(precision / 2) - 2;
    const most = 2 ** (Math.min(3, Math.floor(precision / 5)) - 1), step = 2 ** -digits;
    const first = starter(spec.seed, "w", 0), second = starter(spec.seed, "w", 1);
    const small = Array.from({ length: leaves }, (_, leaf) => {
      const h = first([leaf, filter]), fine = second([leaf, filter]);
      const units = (most + (h % most)) * (h & 0x80000000 ? -1 : 1);
      return units + Math.floor((0.25 + ((h >>> 8) & 0xffff) * 2 ** -19) / step) * step + (0.25 + fine * 2 ** -35) * step;
    });
    const size = (draw, e) => Math.floor((1.25 + starter(spec.seed, "w", draw)([0, filter]) * 2 ** -33) * 2 ** e);
    const fraction = (v) => v - Math.floor(v);
    if (leaves >= 2) {
      const last = leaves - 4 - (leaves % 8 === 3 ? 1 : 0);
      const middle = leaves < 5 ? [] : leaves < 8 ? [[0, 4]] : last > 6 ? [[1, 2], [last, last + 1]] : [[1, 2]];
      const [one, other] = leaves < 5 ? [leaves - 2, leaves - 1] : leaves < 8 ? [2, 3] : [4, 6];
      for (const [a, b] of middle) {
        const s = size(2 + a, precision - 1 - digits);
        small[a] = s + fraction(small[a]); small[b] -= s;
      }
      const s = size(2 + one, precision - 1);
      small[one] = s; small[other] = -s;
      if (leaves === 4) {
        const extra = size(2, Math.floor(precision / 2) - 3);
        small[1] = extra + fraction(small[1]); small[other] -= extra;
      }
    }
    return small.map((v) => round(v, spec.dtype));
  }

  // ---- geometry: one side of a comparison
  const product = (sizes) => sizes.reduce((a, b) => a * b, 1);

  function around(spec, axis, size) {
    const extent = (spec.kernel[axis] - 1) * spec.dilation[axis] + 1, stride = spec.stride[axis], padding = spec.padding;
    if (padding === "valid") return [0, 0, extent];
    if (padding === "caffe") return [(extent - 1) >> 1, (extent - 1) >> 1, extent];
    if (Array.isArray(padding)) return [...padding[axis], extent];
    const missing = Math.max(Math.floor((size - 1) / stride) * stride + extent - size, 0), less = missing >> 1;
    return padding === "same" ? [less, missing - less, extent] : [missing - less, less, extent];
  }

  function side(spec, vary, value) {
    const rank = spec.kernel.length, sizes = rank ? [...spec.others, vary === "length" ? value : spec.length] : [];
    const pads = sizes.map((size, axis) => around(spec, axis, size));
    const outs = sizes.map((size, axis) => Math.floor((size + pads[axis][0] + pads[axis][1] - pads[axis][2]) / spec.stride[axis]) + 1);
    const batch = vary === "batch" ? value : spec.batch, filters = vary === "filters" ? value : spec.filters;
    return { sizes, pads, outs, batch, filters, shape: [batch, ...outs, filters], outputs: batch * product(outs) * filters };
  }

  function unravel(index, shape) {
    const place = [];
    for (let axis = shape.length - 1; axis >= 0; axis--) { place[axis] = index % shape[axis]; index = Math.floor(index / shape[axis]); }
    return place;
  }
  const ravel = (place, shape) => place.reduce((flat, at, axis) => flat * shape[axis] + at, 0);

  function partner(spec, left, right, index) { // the right output that reads the same values
    const place = unravel(index, left.shape);
    left.outs.forEach((_, axis) => { place[axis + 1] += (right.pads[axis][0] - left.pads[axis][0]) / spec.stride[axis]; });
    return ravel(place, right.shape);
  }

  function operands(spec, where, index) { // what every leaf of one output meets: x is null at padding
    const place = unravel(index, where.shape), filter = place[place.length - 1];
    const group = spec.in_channels / spec.groups, leaves = product(spec.kernel) * group;
    const channel = Math.floor(filter / (where.filters / spec.groups)) * group;
    const x = new Float64Array(leaves), draw = starter(spec.seed, "x", 0), step = 2 ** (1 - FORMATS[spec.dtype][0]);
    for (let leaf = 0; leaf < leaves; leaf++) {
      const at = unravel(Math.floor(leaf / group), spec.kernel).map(
        (tap, axis) => place[axis + 1] * spec.stride[axis] - where.pads[axis][0] + tap * spec.dilation[axis]);
      const inside = at.every((one, axis) => one >= 0 && one < where.sizes[axis]);
      const coordinates = [place[0], ...at, channel + (leaf % group)];
      const value = spec.operands === "ramp" ? 10 * at.at(-1) : 1 + (1 + (draw(coordinates) >>> 29)) * step;
      x[leaf] = inside ? round(value, spec.dtype) : 0;
    }
    spec.columns ??= new Map();
    if (!spec.columns.has(filter)) spec.columns.set(filter, weights(spec, filter, leaves));
    const bias = Array.isArray(spec.bias) ? spec.bias[filter] : spec.bias;
    return { x, w: spec.columns.get(filter), bias: bias === null ? 0 : round(bias, spec.dtype), place };
  }

  // ---- trees: nodes as probe.order.tree has them, children >= 0 leaves, < 0 nodes (~child), BIAS the bias
  const BIAS = 2 ** 30;
  const parsed = new Map();
  function parse(text) {
    if (parsed.has(text)) return parsed.get(text);
    const nodes = [], stack = [[]];
    for (const [token] of text.matchAll(/\d+|[b()]/g)) {
      if (token === "(") stack.push([]);
      else if (token === ")") { nodes.push(stack.pop()); stack.at(-1).push(~(nodes.length - 1)); }
      else stack.at(-1).push(token === "b" ? BIAS : Number(token));
    }
    if (stack[0].length > 1) nodes.push(stack[0]);
    parsed.set(text, { nodes, only: stack[0][0] });
    return parsed.get(text);
  }

  function evaluate(tree, rounding, met, dtype) { // the values of all nodes, and the output
    const { x, w } = met, operand = rounding.products, kept = rounding.nodes || dtype, step = rounding.through || kept;
    const productFormat = rounding.product_format || kept;
    rounding.sets ??= Object.fromEntries(["fused", "narrow", "cut"].map((name) => [name, new Set(rounding[name])]));
    const { fused, narrow, cut } = rounding.sets;
    const values = new Array(tree.nodes.length);
    const factors = (leaf) => (operand ? [round(x[leaf], operand), round(w[leaf], operand)] : [x[leaf], w[leaf]]);
    const term = (child) => {
      if (child < 0) return values[~child];
      if (child === BIAS) return met.bias;
      const [a, b] = factors(child);
      return fused.has(child) ? a * b : round(a * b, productFormat);
    };
    for (let node = 0; node < tree.nodes.length; node++) {
      const [a, b] = tree.nodes[node];
      let value;
      if (dtype === "float64" && (fused.has(a) || fused.has(b))) {
        const [leaf, rest] = fused.has(b) ? [b, a] : [a, b];
        value = fma(...factors(leaf), term(rest));
      } else {
        const left = term(a), right = term(b);
        value = step === "float64" ? left + right : round(oddSum(left, right), step);
      }
      if (step !== kept) value = round(value, kept);
      if (narrow.has(node)) value = round(value, dtype, cut.has(node));
      values[node] = value;
    }
    const last = tree.nodes.length ? values.at(-1) : term(tree.only);
    return { values, output: round(last, dtype, cut.has(tree.nodes.length - 1)) };
  }

  // The rounded formats of shown partial sums, as probe.order.replay.partial_sums names them.
  const formatOf = (rounding, node, dtype) => (rounding.sets.narrow.has(node) ? dtype : rounding.nodes || dtype);

  // Numbers of nodes, equal on both sides where the same leaves are added in the same order and rounded alike.
  function numbered(tree, rounding, table) {
    const number = (key) => { if (!table.has(key)) table.set(key, table.size); return table.get(key); };
    const head = [rounding.products, rounding.nodes, rounding.through, rounding.product_format].join();
    const numbers = [];
    tree.nodes.forEach((children, node) => {
      const terms = children.map((child) => (child < 0 ? numbers[~child] : number(`p${child}${rounding.sets.fused.has(child)}`)));
      numbers.push(number([head, rounding.sets.narrow.has(node), rounding.sets.cut.has(node), ...terms.sort((a, b) => a - b)].join()));
    });
    return numbers;
  }

  // A key of the leaves below every node, in whatever order they are added: their number, and two sums of hashes.
  function leafKeys(tree) {
    const keys = [];
    const of = (child) => { if (child < 0) return keys[~child]; mix(0, child + 1); return [1, H, L]; };
    for (const children of tree.nodes) keys.push(children.map(of).reduce(([n, a, b], [m, c, d]) => [n + m, (a + c) >>> 0, (b ^ d) >>> 0]));
    return keys.map(String);
  }

  // ---- one question: both sides of one output of a stored pair
  function summation(file, pair, which, index) {
    const found = file.sides[`${pair.case}|${pair.vary}|${pair[which]}`] || [];
    return found.find(([, , ranges]) => { for (let i = 0; i < ranges.length; i += 2) if (index >= ranges[i] && index < ranges[i + 1]) return true; return false; });
  }

  function ask(file, pair, index) {
    const spec = file.cases[pair.case], sides = ["at", "against"].map((which) => side(spec, pair.vary, pair[which]));
    const indices = [index, partner(spec, ...sides, index)];
    const answers = sides.map((where, i) => {
      const found = summation(file, pair, i ? "against" : "at", indices[i]);
      if (!found) return null;
      const tree = parse(file.orders[found[0]][0]), rounding = file.roundings[found[1]], met = operands(spec, where, indices[i]);
      const run = evaluate(tree, rounding, met, spec.dtype);
      return { ...run, tree, rounding, met, order: file.orders[found[0]], index: indices[i], bits: toBits(run.output, spec.dtype) };
    });
    return { spec, sides, answers, dtype: spec.dtype };
  }

  Object.assign(Probe, { round, toBits, fromBits, ulps, operands, side, unravel, evaluate, parse, ask, numbered, formatOf, summation, partner, leafKeys, BIAS });
})();
