// The explorer's page: five choices, a heat map, and both sums of one output. The address is the question.
"use strict";
(() => {
  const root = document.getElementById("explore"), canvas = root.querySelector("canvas"), pen = canvas.getContext("2d");
  const $ = (name) => root.querySelector(`[name=${name}]`), part = (name) => root.querySelector(`.${name}`);
  const element = (tag, text, name) => Object.assign(document.createElement(tag), { textContent: text ?? "", className: name ?? "" });
  let file, pair, view, chosen = null, task = 0;

  const hex = (bits, dtype) => "0x" + BigInt(bits).toString(16).padStart({ float64: 16, float32: 8 }[dtype] || 4, "0");
  function text(value, dtype) { // the shortest digits that name the value among its format's
    if (dtype === "float64" || !isFinite(value)) return String(value);
    for (let digits = 1; digits < 17; digits++) {
      const short = value.toPrecision(digits);
      if (Probe.round(Number(short), dtype) === value) return String(Number(short));
    }
    return String(value);
  }

  // ---- the question
  // what a bare address asks: the report that the project began with
  const START = "experiment=version_history&target=tensorflow==1.2.1&case=conv2d 1x5, 1 -> 1, ramp&vary=length&at=7&against=8&output=2";
  const question = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1) || START));
  const run = () => Probe.index[$("experiment").value].find((one) => one.key === $("run").value);
  // An address names a target, a machine and a shape in words: they stay when all is measured again, and keys of runs don't.
  function remember() {
    const { target, machine } = run(), shape = named(pair.case);
    const kept = { experiment: $("experiment").value, target, machine, case: shape, vary: pair.vary, at: pair.at, against: pair.against };
    if (chosen !== null) kept.output = chosen;
    history.replaceState(null, "", "#" + new URLSearchParams(kept));
    document.title = `${shape}: ${pair.vary} ${pair.at} against ${pair.against}, ${target} - probe`;
  }
  function named(id) { // a case's shape in words; cases of one shape are numbered
    const alike = Object.keys(file.cases).filter((one) => file.cases[one].label === file.cases[id].label).sort();
    return file.cases[id].label + (alike.length > 1 ? ` (${1 + alike.indexOf(id)})` : "");
  }

  function fill(select, options, wanted) { // options: [value, text, group]
    select.replaceChildren();
    let group = null;
    for (const [value, label, in_] of options) {
      const option = new Option(label, value);
      if (in_ && group?.label !== in_) select.append((group = Object.assign(document.createElement("optgroup"), { label: in_ })));
      (in_ ? group : select).append(option);
    }
    const values = options.map(([value]) => String(value));
    select.value = values.includes(String(wanted)) ? String(wanted) : values[0];
  }

  function load(run) { // a script, since a page opened from a file can't read other files
    const key = `${$("experiment").value}-${run}`;
    if (Probe.data[key]) return Promise.resolve(Probe.data[key]);
    return new Promise((done, failed) => {
      const script = document.createElement("script");
      script.src = `assets/data/${key}.js`;
      script.onload = () => done(Probe.data[key]);
      script.onerror = () => failed(new Error(`${key}: its data is missing`));
      document.head.append(script);
    });
  }

  const ASKED = ["experiment", "run", "target", "machine", "case", "vary", "at", "against", "output"];
  async function choose(wanted) { // from a question, whole or in part; what is missing gets a default
    delete root.dataset.checked;
    const asked = Object.entries(wanted), missing = [];
    fill($("experiment"), Object.keys(Probe.index).sort().map((name) => [name, name.replaceAll("_", " ")]), wanted.experiment ?? "length_sweep");
    if (wanted.experiment && $("experiment").value !== wanted.experiment) missing.push(`experiment ${wanted.experiment}`);
    const runs = Probe.index[$("experiment").value], fits = runs.filter((one) => one.target === wanted.target);
    fill($("run"), runs.map((one) => [one.key, `${one.target} (${one.version})`, one.processor]), wanted.run ?? (fits.find((one) => one.machine === wanted.machine) ?? fits[0])?.key);
    if (wanted.target && run().target !== wanted.target) missing.push(`target ${wanted.target}`);
    else if (wanted.machine && run().machine !== wanted.machine) missing.push(`machine ${wanted.machine}`);
    if (wanted.run && run().key !== wanted.run) missing.push(`run ${wanted.run}`);
    file = await load($("run").value);
    const cases = [...new Set(file.pairs.map((one) => `${one.case}|${one.vary}`))].map((one) => [one, named(one.split("|")[0]), `by ${one.split("|")[1]}`]);
    const same = cases.find(([one, words]) => [words, one.split("|")[0]].includes(wanted.case) && (!wanted.vary || one.endsWith(`|${wanted.vary}`)));
    fill($("case"), cases.sort((a, b) => a[2].localeCompare(b[2])), same?.[0]);
    if (wanted.case && !same) missing.push(`operation ${wanted.case}${wanted.vary ? ` by ${wanted.vary}` : ""}`);
    const [id, vary] = $("case").value.split("|"), mine = file.pairs.filter((one) => one.case === id && one.vary === vary);
    root.querySelector("[data-vary]").textContent = vary;
    const numbers = (name, rows) => [...new Set(rows.map((one) => one[name]))].sort((a, b) => a - b).map((n) => [n, n]);
    fill($("at"), numbers("at", mine), wanted.at);
    const there = mine.filter((one) => one.at === Number($("at").value));
    fill($("against"), numbers("against", there), wanted.against);
    pair = there.find((one) => one.against === Number($("against").value));
    for (const name of ["at", "against"]) if (wanted[name] && $(name).value !== String(wanted[name])) missing.push(`${vary} ${wanted[name]}`);
    for (const [name] of asked) if (!ASKED.includes(name)) missing.push(`${name}, which is nothing that can be asked`);
    part("notice").textContent = missing.length ? `This address asks for what is not stored here: ${missing.join("; ")}. What is shown instead is the nearest that there is.` : "";
    const output = wanted.output === undefined ? null : Number(wanted.output);
    show(output);
  }

  // ---- the heat map
  function show(output) {
    const spec = file.cases[pair.case], sides = ["at", "against"].map((which) => Probe.side(spec, pair.vary, pair[which]));
    const differs = new Map(pair.kept.map(([index, a, b]) => [index, Math.abs(Probe.ulps(a, b, spec.dtype))]));
    for (let i = 0; i < pair.ranges.length; i += 2) for (let k = pair.ranges[i]; k < pair.ranges[i + 1]; k++) if (!differs.has(k)) differs.set(k, null);
    const columns = sides[0].outputs / sides[0].filters, rows = sides[0].filters;
    const width = Math.max(320, part("map").clientWidth - 8);
    const size = Math.max(3, Math.min(22, Math.floor(width / columns), Math.max(6, Math.floor(260 / rows))));
    view = { spec, sides, differs, columns, rows, size, order: [...differs.keys()].sort((a, b) => a - b) };
    const measured = run(), causes = Object.entries(pair.causes).map(([cause, count]) => `${cause} ${count}`).join(", ");
    part("summary").textContent = `${pair.differing} of ${pair.compared} compared outputs differ` + (pair.max_ulp === null ? "" : `, by up to ${pair.max_ulp.toLocaleString("en")} ulp`) +
      (causes ? `; cause: ${causes}` : "") + `. ${spec.dtype}, ${measured.target}, version ${measured.version}, ${measured.processor}.`;
    chosen = output !== null && output >= 0 && output < sides[0].outputs ? output : (view.order[0] ?? 0);
    paint();
    answer();
    remember();
    check(++task);
  }

  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const SHADES = ["#ffe066", "#ffa94d", "#f76707", "#c92a2a", "#862e9c"];
  const LIMITS = [1, 4, 64, 65536, Infinity];
  function paint() {
    const { columns, rows, size, differs } = view, ratio = window.devicePixelRatio || 1;
    canvas.width = columns * size * ratio; canvas.height = rows * size * ratio;
    canvas.style.width = `${columns * size}px`; canvas.style.height = `${rows * size}px`;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, columns * size, rows * size);
    const gap = size > 4 ? 1 : 0, equal = colour("--equal"), unknown = colour("--bits");
    for (let index = 0; index < columns * rows; index++) {
      const ulp = differs.get(index);
      pen.fillStyle = !differs.has(index) ? equal : ulp === null ? unknown : SHADES[LIMITS.findIndex((most) => ulp <= most)];
      pen.fillRect(Math.floor(index / rows) * size, (index % rows) * size, size - gap, size - gap);
    }
    pen.strokeStyle = colour("--md-default-fg-color"); pen.lineWidth = 2;
    pen.strokeRect(Math.floor(chosen / rows) * size, (chosen % rows) * size, size, size);
    const words = ["1 ulp", "2 to 4", "5 to 64", "to 65,536", "more"];
    part("legend").replaceChildren(...[[equal, "equal, or not compared"], ...SHADES.map((shade, i) => [shade, words[i]]), ...([...differs.values()].includes(null) ? [[unknown, "differs, not added again"]] : [])].map(([shade, word]) => {
      const entry = element("span"), box = element("i");
      box.style.background = shade;
      entry.append(box, word);
      return entry;
    }), element("span", "columns are positions, rows are filters"));
  }

  function check(mine) { // adds every differing output, those with stored bits first, in slices: the page stays quick
    const stored = new Map(pair.kept.map(([index, a, b]) => [index, [BigInt(a), BigInt(b)]])), text = part("summary").textContent;
    const order = [...stored.keys(), ...view.order.filter((index) => !stored.has(index))], end = performance.now() + 4000;
    let done = 0, equal = 0;
    const slice = () => {
      if (mine !== task) return;
      for (const start = performance.now(); done < order.length && performance.now() - start < 12; done++) {
        const index = order[done], { answers } = Probe.ask(file, pair, index), bits = stored.get(index);
        if (!answers.every(Boolean)) continue;
        if (!bits) view.differs.set(index, Math.abs(Probe.ulps(answers[0].bits, answers[1].bits, view.spec.dtype)));
        else if (answers.every((one, i) => one.bits === bits[i])) equal++;
      }
      const more = Math.max(0, done - stored.size);
      part("summary").textContent = `${text} Added again here: ${equal} of ${Math.min(done, stored.size)} outputs with stored bits give these bits in both runs${more ? `; ${more} more are coloured by their sums` : ""}.`;
      if (done < order.length && (done < stored.size || performance.now() < end)) setTimeout(slice, 30);
      else { paint(); root.dataset.checked = `${equal}/${stored.size}`; }
    };
    delete root.dataset.checked;
    setTimeout(slice, 60);
  }

  // ---- one output
  function answer() {
    const started = performance.now(), asked = Probe.ask(file, pair, chosen), box = part("answer"), { dtype, sides } = asked;
    const place = Probe.unravel(chosen, sides[0].shape);
    box.replaceChildren(element("h2", `output [${place.join(", ")}]`));
    const stored = pair.kept.find(([index]) => index === chosen);
    if (asked.answers.some((one) => !one)) {
      box.append(element("p", view.differs.has(chosen) ? "The order of this output is not stored." : "It has the same bits in both runs or is not compared; orders are stored for outputs that differ."));
      return;
    }
    const [left, right] = asked.answers, table = new Map(), ulp = Probe.ulps(left.bits, right.bits, dtype);
    const numbers = asked.answers.map((one) => Probe.numbered(one.tree, one.rounding, table));
    box.append(element("p", `The results differ by ${Math.abs(ulp).toLocaleString("en")} ulp.`));
    const columns = element("div", "", "sides");
    asked.answers.forEach((one, i) => {
      const other = new Set(numbers[1 - i]), own = numbers[i].map((number) => !other.has(number));
      const side = element("section", "", "side"), bits = stored && BigInt(stored[1 + i]);
      side.append(element("h3", `${pair.vary} ${pair[i ? "against" : "at"]}`));
      side.append(element("p", `${text(one.output, dtype)} (${hex(one.bits, dtype)}) ${bits === undefined ? "; the library's bits are not stored" : bits === one.bits ? "= the library's bits" : `≠ the library's ${hex(bits, dtype)}`}`));
      side.append(element("p", `${one.order[1]}; ${fusing(one)}`));
      side.append(drawn(one, own), sums(one, own, asked.answers[1 - i], dtype));
      columns.append(side);
    });
    box.append(columns);
    if (left.tree.nodes.length && left.tree.nodes.length <= Bench.MOST) box.append(Bench.bench(asked.answers, dtype, text, hex));
    root.dataset.milliseconds = (performance.now() - started).toFixed(1);
  }

  function fusing({ tree, rounding }) {
    const able = tree.nodes.filter((node) => node.some((child) => child >= 0 && child !== Probe.BIAS));
    const done = able.filter((node) => node.some((child) => rounding.sets.fused.has(child))).length;
    return done === 0 ? "every product is rounded before it is added" : done === able.length ? "products are fused with their additions (FMA)" : `${done} of ${able.length} additions of a product are fused (FMA)`;
  }

  function drawn({ tree, rounding }, own) { // leaves on the left, the root on the right
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"), box = element("div", "", "tree");
    const make = (tag, attributes, words) => { const one = document.createElementNS(svg.namespaceURI, tag); for (const [k, v] of Object.entries(attributes)) one.setAttribute(k, v); if (words) one.textContent = words; svg.append(one); };
    const depth = [], leaves = [];
    tree.nodes.forEach((children, node) => { depth[node] = 1 + Math.max(0, ...children.map((child) => (child < 0 ? depth[~child] : 0))); });
    const visit = [tree.nodes.length ? ~(tree.nodes.length - 1) : tree.only];
    while (visit.length) { const child = visit.pop(); if (child < 0) visit.push(...[...tree.nodes[~child]].reverse()); else leaves.push(child); }
    const row = leaves.length > 600 ? 3 : leaves.length > 100 ? 6 : 14, place = new Map(leaves.map((leaf, i) => [leaf, 8 + i * row]));
    const step = Math.max(1, Math.min(14, 1200 / Math.max(...depth, 1))), start = 44, y = [];
    leaves.forEach((leaf, i) => { if (row > 8 || i % 25 === 0) make("text", { x: 4, y: place.get(leaf) + 3 }, leaf === Probe.BIAS ? "bias" : `p${leaf}`); });
    tree.nodes.forEach((children, node) => {
      const ends = children.map((child) => (child < 0 ? [start + depth[~child] * step, y[~child]] : [start - 6, place.get(child)])), x = start + depth[node] * step;
      y[node] = (ends[0][1] + ends.at(-1)[1]) / 2;
      make("path", { d: ends.map(([from, at]) => `M${from} ${at}H${x}`).join("") + `M${x} ${ends[0][1]}V${ends.at(-1)[1]}`, class: own[node] ? "own" : "" });
    });
    const wide = start + (Math.max(...depth, 0) + 1) * step, high = leaves.length * row + 12;
    for (const [name, value] of [["width", wide], ["height", high], ["role", "img"], ["aria-label", `summation tree of ${leaves.length} products`]]) svg.setAttribute(name, value);
    box.tabIndex = 0;
    box.append(svg);
    return box;
  }

  const MOST = 400;
  function sums(one, own, other, dtype) {
    const list = element("div", "", "sums"), { tree, rounding, values } = one, found = new Map();
    Probe.leafKeys(other.tree).forEach((key, node) => found.set(key, other.values[node]));
    const mine = Probe.leafKeys(tree);
    const name = (child) => (child < 0 ? `s${~child}` : child === Probe.BIAS ? "b" : `p${child}`);
    let order = false, bits = false;
    const line = (node) => {
      const form = Probe.formatOf(rounding, node, dtype), value = values[node];
      const row = element("div", `s${node} = ${tree.nodes[node].map(name).join(" + ")} = ${text(value, form)} (${hex(Probe.toBits(value, form), form)})`, own[node] ? "own" : "");
      if (own[node] && !order) { order = true; row.append(element("b", one.order[0] === other.order[0] ? "  ← rounding" : "  ← order")); }
      const same = found.get(mine[node]);
      if (!bits && same !== undefined && same !== value) { bits = true; row.append(element("b", "  ← bits")); }
      return row;
    };
    const all = tree.nodes.map((_, node) => node), first = Math.max(0, own.indexOf(true) - 20);
    const few = all.length > MOST ? all.slice(first, first + 100) : all;
    list.tabIndex = 0;
    if (few.length < all.length) list.append(element("div", `sums ${few[0]} to ${few.at(-1)} of ${all.length}, around the first that only this run has`));
    list.append(...few.map(line));
    if (few.length < all.length) list.append(line(all.at(-1)));
    return list;
  }

  // ---- events
  function select(index) {
    chosen = Math.max(0, Math.min(view.sides[0].outputs - 1, index));
    paint(); answer(); remember();
    part("map").scrollLeft = Math.floor(chosen / view.rows) * view.size - part("map").clientWidth / 2;
  }
  const next = (step) => {
    const rest = step > 0 ? view.order.filter((one) => one > chosen) : view.order.filter((one) => one < chosen).reverse();
    if (rest.length) select(rest[0]);
  };
  canvas.addEventListener("click", (event) => {
    const at = (place) => Math.floor(place / view.size);
    select(at(event.offsetX) * view.rows + Math.min(at(event.offsetY), view.rows - 1));
  });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowRight: view.rows, ArrowLeft: -view.rows, ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) select(chosen + step);
    else if (event.key === "n" || event.key === "p") next(event.key === "n" ? 1 : -1);
    else return;
    event.preventDefault(); event.stopPropagation();
  });
  for (const button of root.querySelectorAll("[data-step]")) button.addEventListener("click", () => next(Number(button.dataset.step)));
  part("ask").addEventListener("change", (event) => {
    const names = ["experiment", "run", "case", "at", "against"], upto = names.indexOf(event.target.name), wanted = {};
    for (const name of names.slice(0, upto + 1)) wanted[name] = $(name).value;
    if (wanted.case) [wanted.case, wanted.vary] = wanted.case.split("|"); // here the case's key
    choose(wanted).catch(failed);
  });
  const failed = (error) => { part("summary").textContent = error.message; };
  addEventListener("hashchange", () => choose(question()).catch(failed));
  addEventListener("resize", () => view && show(chosen));
  choose(question()).catch(failed);
})();
