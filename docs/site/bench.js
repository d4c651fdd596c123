// Below an answer: the products of one output, to be added in another order, or rounded otherwise.
"use strict";
const Bench = (() => {
  const MOST = 64; // sums whose products can still be seen side by side
  const element = (tag, text, name) => Object.assign(document.createElement(tag), { textContent: text ?? "", className: name ?? "" });

  // Shapes of a sum by what is added to what: nodes as probe.order.tree has them, of the places 0 ... n-1.
  const chain = (n) => Array.from({ length: n - 1 }, (_, i) => (i ? [~(i - 1), i + 1] : [0, 1]));
  function pairwise(n) {
    const nodes = [];
    const half = (from, to) => {
      if (to - from === 1) return from;
      const middle = from + Math.ceil((to - from) / 2), left = half(from, middle), right = half(middle, to);
      return ~(nodes.push([left, right]) - 1);
    };
    half(0, n);
    return nodes;
  }

  function leaves(tree) { // from left to right, as the tree is drawn
    const found = [], visit = [~(tree.nodes.length - 1)];
    while (visit.length) {
      const child = visit.pop();
      if (child < 0) visit.push(...[...tree.nodes[~child]].reverse());
      else found.push(child);
    }
    return found;
  }

  function bench(answers, dtype, text, hex) {
    const [left] = answers, box = element("section", "", "bench"), start = answers.map((one) => leaves(one.tree));
    const shapes = answers.map((one, i) => one.tree.nodes.map((children) => children.map((child) => (child < 0 ? child : start[i].indexOf(child)))));
    const revealed = answers.map((one) => one.rounding.sets.fused.size > 0);
    let order = [...start[0]], held = null, focus = null;
    box.append(element("h3", "Add it yourself"));
    box.append(element("p", "Drag a product onto another to exchange the two, or choose it and press the arrow keys. Every box is x · w, before it is rounded."));
    const shape = element("select"), fma = Object.assign(element("input"), { type: "checkbox", checked: revealed[0] });
    const names = ["the left run's order", "the right run's order", "one after the other", "halves of halves"];
    shape.append(...names.map((name, i) => new Option(name, i)));
    const ask = element("p"), labels = [element("label", "order "), element("label")], again = element("button", "as it was");
    labels[0].append(shape);
    labels[1].append(fma, " fuse products with their additions (FMA)");
    again.type = "button";
    ask.append(...labels, again);
    const row = element("div", "", "products"), result = element("p", "", "result"), formula = element("p", "", "formula");
    result.setAttribute("aria-live", "polite");
    box.append(ask, row, result, formula);

    const name = (leaf) => (leaf === Probe.BIAS ? "b" : `p${leaf}`);
    const product = (leaf) => (leaf === Probe.BIAS ? left.met.bias : left.met.x[leaf] * left.met.w[leaf]);
    function nodes() {
      const form = Number(shape.value), n = order.length;
      return form < 2 ? shapes[form] : form === 2 ? chain(n) : pairwise(n);
    }
    function changed() {
      const tree = { nodes: nodes().map((children) => children.map((child) => (child < 0 ? child : order[child]))) };
      const side = answers[shape.value === "1" ? 1 : 0], plain = { ...side.rounding, narrow: [], cut: [], sets: undefined };
      const first = new Set(tree.nodes.filter((children) => children.every((child) => child >= 0)).map((children) => children[0]));
      // of two products that meet, one is fused; nothing of another shape is known of the roundings between
      plain.fused = fma.checked ? order.filter((leaf) => leaf !== Probe.BIAS && !first.has(leaf)) : [];
      const untouched = Number(shape.value) < 2 && fma.checked === revealed[shape.value] && order.every((leaf, i) => leaf === start[shape.value][i]);
      const { output } = Probe.evaluate(tree, untouched ? side.rounding : plain, left.met, dtype), bits = Probe.toBits(output, dtype);
      const apart = answers.map((one, i) => [Math.abs(Probe.ulps(one.bits, bits, dtype)), ["left", "right"][i]]);
      result.replaceChildren(element("b", `${text(output, dtype)} (${bitwise(bits, left.bits)})`), ` ${apart.map(([n, run]) => (n ? `${n.toLocaleString("en")} ulp from the ${run} run` : `the bits of the ${run} run`)).join(", ")}; `, hex(bits, dtype));
      const said = (child) => (child < 0 ? `(${tree.nodes[~child].map(said).join(" + ")})` : name(child));
      formula.textContent = said(~(tree.nodes.length - 1)).slice(1, -1);
      row.replaceChildren(...order.map((leaf, i) => chip(leaf, i)));
      if (focus !== null) row.children[focus].focus();
    }
    function bitwise(bits, other) { // the last eight bits, and which of them moved
      const last = (n) => (BigInt(n) & 255n).toString(2).padStart(8, "0"), [now, then] = [last(bits), last(other)];
      return "... " + [...now].map((bit, i) => (bit === then[i] ? bit : `[${bit}]`)).join("");
    }
    function exchange(from, to) {
      if (to < 0 || to >= order.length) return;
      [order[from], order[to]] = [order[to], order[from]];
      focus = to;
      changed();
    }
    function chip(leaf, i) {
      const one = element("button", "", "product"), { x, w } = left.met;
      one.type = "button"; one.draggable = true;
      one.append(element("b", name(leaf)), leaf === Probe.BIAS ? "bias" : `${text(x[leaf], dtype)} · ${text(w[leaf], dtype)}`, element("i", String(Number(product(leaf).toPrecision(9)))));
      one.addEventListener("dragstart", () => { held = i; });
      one.addEventListener("dragover", (event) => event.preventDefault());
      one.addEventListener("drop", (event) => { event.preventDefault(); if (held !== null) exchange(held, i); held = null; });
      one.addEventListener("keydown", (event) => {
        const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -1, ArrowDown: 1 }[event.key];
        if (!step) return;
        event.preventDefault(); event.stopPropagation();
        exchange(i, i + step);
      });
      // two taps exchange where nothing can be dragged
      one.addEventListener("click", () => { if (held !== null && held !== i) { const from = held; held = null; exchange(from, i); } else { held = i; } });
      return one;
    }
    shape.addEventListener("change", () => { order = [...start[shape.value === "1" ? 1 : 0]]; fma.checked = revealed[shape.value === "1" ? 1 : 0]; focus = null; changed(); });
    fma.addEventListener("change", () => { focus = null; changed(); });
    again.addEventListener("click", () => { order = [...start[shape.value === "1" ? 1 : 0]]; fma.checked = revealed[shape.value === "1" ? 1 : 0]; focus = null; changed(); });
    changed();
    return box;
  }

  return { bench, MOST };
})();
