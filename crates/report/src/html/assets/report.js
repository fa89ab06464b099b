"use strict";
// Reading off, enlarging and hiding curves. The figure is complete without this.
(() => {
  const source = document.getElementById("ccdf-data");
  const figure = document.getElementById("ccdf");
  if (!source || !figure) return;
  const data = JSON.parse(source.textContent);
  const SIDE = 1000; // units of the inner SVG, as the page's figure has them
  const SVG = "http://www.w3.org/2000/svg";
  const frame = figure.querySelector(".frame");
  const ticks = figure.querySelector(".ticks");
  const cursor = figure.querySelector(".cursor");
  const wholeTicks = [...ticks.childNodes].map((node) => node.cloneNode(true));
  const whole = { x: data.x, y: data.y };
  let view = whole;
  const hidden = new Set();
  document.documentElement.classList.add("scripted");

  // positions on the axes, 0 to 1 from the left and from the top, and back
  const left = (ns) => Math.log(ns / view.x[0]) / Math.log(view.x[1] / view.x[0]);
  const top = (share) => 1 - Math.log(share / view.y[0]) / Math.log(view.y[1] / view.y[0]);
  const timeAt = (at) => view.x[0] * (view.x[1] / view.x[0]) ** at;
  const shareAt = (at) => view.y[0] * (view.y[1] / view.y[0]) ** (1 - at);

  const element = (parent, name, attributes, text) => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    parent.append(made);
    return made;
  };
  const html = (name, attributes, ...children) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };

  // three significant digits, as the rest of the page writes times
  const time = (ns) => {
    const [value, unit] = ns < 999.5 ? [ns, "ns"] : ns < 999.5e3 ? [ns / 1e3, "µs"]
      : ns < 999.5e6 ? [ns / 1e6, "ms"] : [ns / 1e9, "s"];
    const decimals = unit === "ns" ? 0 : value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    return value.toFixed(decimals) + " " + unit;
  };
  const round = (ns) => time(ns).replace(/(\.\d*?)0+(?= )/, "$1").replace(". ", " ");
  // as many nines as the share needs
  const percent = (share) => {
    const decimals = Math.min(6, Math.max(1, Math.ceil(-Math.log10(share)) - 1 + (share < 0.1 ? 1 : 0)));
    return (100 * (1 - share)).toFixed(decimals) + " %";
  };

  // the time that this share of requests exceeds, between points by straight lines on
  // the logarithmic axes
  const read = (points, share) => {
    const right = points.findIndex(([, y]) => y <= share);
    if (right < 0) return null;
    const [x1, y1] = points[right];
    if (right === 0) return y1 === share ? x1 : null;
    const [x0, y0] = points[right - 1];
    if (y0 <= y1) return x1;
    return x0 * (x1 / x0) ** (Math.log(y0 / share) / Math.log(y0 / y1));
  };

  // round values on a logarithmic axis; on a short one, evenly spaced round values
  const steps = (from, to, most) => {
    const among = (mantissas) => {
      const found = [];
      for (let power = Math.floor(Math.log10(from)); power <= Math.ceil(Math.log10(to)); power++)
        for (const mantissa of mantissas) {
          const x = mantissa * 10 ** power;
          if (x >= from && x <= to) found.push(x);
        }
      return found;
    };
    const choices = [[1, 2, 3, 5, 7], [1, 2, 5], [1]].map(among);
    const found = choices.find((choice) => choice.length <= most) || choices[2];
    if (found.length >= 4) return found;
    const rough = (to - from) / 5;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find((mantissa) => mantissa * power >= rough);
    const even = [];
    for (let i = Math.ceil(from / step); i * step <= to; i++) even.push(i * step);
    return even;
  };

  const draw = () => {
    for (const curve of data.curves) {
      const path = figure.querySelector(".curves .curve." + curve.class);
      path.setAttribute("visibility", hidden.has(curve.class) ? "hidden" : "visible");
      path.setAttribute("d", curve.points.map(([ns, share], i) =>
        (i ? "L" : "M") + (SIDE * left(ns)).toFixed(1) + " " + (SIDE * top(share)).toFixed(1)).join(""));
    }
    if (view === whole) {
      ticks.replaceChildren(...wholeTicks.map((node) => node.cloneNode(true)));
    } else {
      ticks.replaceChildren();
      for (const ns of steps(view.x[0], view.x[1], 10)) {
        const at = (100 * left(ns)).toFixed(3) + "%";
        element(ticks, "line", { x1: at, x2: at, y1: 0, y2: "100%" });
        element(ticks, "text", { class: "x", x: at, y: "100%", dy: "1.5em" }, round(ns));
      }
      for (const share of steps(view.y[0], view.y[1], 9)) {
        const at = (100 * top(share)).toFixed(3) + "%";
        element(ticks, "line", { x1: 0, x2: "100%", y1: at, y2: at });
        element(ticks, "text", { class: "y", x: -10, y: at, dy: "0.35em" },
          parseFloat((100 * (1 - share)).toFixed(6)) + " %");
      }
      // the mark of t stays at its time
      for (const mark of wholeTicks.filter((node) => node.classList?.contains("service"))) {
        const names = mark.localName === "line" ? ["x1", "x2"] : ["x"];
        const at = parseFloat(mark.getAttribute(names[0])) / 100;
        const x = left(whole.x[0] * (whole.x[1] / whole.x[0]) ** at);
        if (x < 0 || x > 1) continue;
        const moved = mark.cloneNode(true);
        for (const name of names) moved.setAttribute(name, 100 * x + "%");
        ticks.append(moved);
      }
    }
    reset.hidden = view === whole;
    point(share);
  };

  // the reading: a share of requests, and each curve's time there
  let share = Math.max(0.01, data.y[0]);
  const slider = html("input", { type: "range", min: 0, max: 1000, step: 1, "aria-label": "Percentile to read off" });
  const output = html("output", { "aria-live": "off" });
  figure.querySelector(".axis").before(html("div", { class: "reading" }, slider, output));
  const wholeTop = (y) => 1 - Math.log(y / whole.y[0]) / Math.log(whole.y[1] / whole.y[0]);

  const point = (at) => {
    share = Math.min(whole.y[1], Math.max(whole.y[0], at));
    slider.value = Math.round(1000 * wholeTop(share));
    cursor.replaceChildren();
    const y = top(share);
    const seen = y >= 0 && y <= 1;
    if (seen) element(cursor, "line", { x1: 0, x2: "100%", y1: 100 * y + "%", y2: 100 * y + "%" });
    const parts = [html("span", {}, percent(share) + " are faster than")];
    const ideal = data.curves.find((curve) => curve.class === "ideal");
    for (const curve of data.curves) {
      if (hidden.has(curve.class)) continue;
      const ns = read(curve.points, share);
      if (ns === null) {
        parts.push(html("span", {}, html("b", { class: curve.class }, curve.label), " –"));
        continue;
      }
      const x = left(ns);
      if (seen && x >= 0 && x <= 1)
        element(cursor, "circle", { class: curve.class, cx: 100 * x + "%", cy: 100 * y + "%", r: 6 });
      const best = ideal && read(ideal.points, share);
      const ratio = curve.class === "measured" && best ? " (" + (ns / best).toFixed(2) + "× the ideal)" : "";
      parts.push(html("span", {}, html("b", { class: curve.class }, curve.label), " " + time(ns) + ratio));
    }
    output.replaceChildren(...parts);
    slider.setAttribute("aria-valuetext", parts.map((part) => part.textContent).join(", "));
  };
  slider.addEventListener("input", () => {
    point(whole.y[0] * (whole.y[1] / whole.y[0]) ** (1 - slider.value / 1000));
  });

  // names become switches
  const legend = figure.querySelector(".legend");
  for (const item of legend.querySelectorAll("li")) {
    const button = html("button", { type: "button", "aria-pressed": "true" }, ...item.childNodes);
    button.addEventListener("click", () => {
      const name = item.dataset.series;
      if (!hidden.delete(name)) hidden.add(name);
      button.setAttribute("aria-pressed", String(!hidden.has(name)));
      draw();
    });
    item.replaceChildren(button);
  }
  const reset = html("button", { type: "button", class: "reset" }, "Show all of it");
  reset.addEventListener("click", () => { view = whole; draw(); });
  legend.append(reset);

  // the pointer reads off; dragging encloses the part to enlarge
  const within = (event) => {
    const box = frame.getBoundingClientRect();
    const clamp = (x) => Math.min(1, Math.max(0, x));
    return [clamp((event.clientX - box.left) / box.width), clamp((event.clientY - box.top) / box.height)];
  };
  let start = null;
  frame.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    point(shareAt(within(event)[1]));
    if (event.pointerType === "touch") return; // there dragging scrolls the page
    start = within(event);
    frame.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  frame.addEventListener("pointermove", (event) => {
    const at = within(event);
    point(shareAt(at[1]));
    if (start) {
      element(cursor, "rect", {
        x: 100 * Math.min(start[0], at[0]) + "%", y: 100 * Math.min(start[1], at[1]) + "%",
        width: 100 * Math.abs(start[0] - at[0]) + "%", height: 100 * Math.abs(start[1] - at[1]) + "%",
      });
    }
  });
  frame.addEventListener("pointerup", (event) => {
    if (!start) return;
    const at = within(event);
    const [x0, x1] = [start[0], at[0]].sort((a, b) => a - b);
    const [y0, y1] = [start[1], at[1]].sort((a, b) => a - b);
    start = null;
    // smaller than this it was a press, not a drag
    const isDrag = x1 - x0 > 0.02 && y1 - y0 > 0.02;
    // on a shorter axis the labels, of three digits, would repeat
    const isTooShort = timeAt(x1) / timeAt(x0) < 1.05;
    if (isDrag && !isTooShort)
      view = { x: [timeAt(x0), timeAt(x1)], y: [shareAt(y1), shareAt(y0)] };
    draw();
  });
  frame.addEventListener("pointercancel", () => { start = null; point(share); });
  frame.addEventListener("dblclick", () => { view = whole; draw(); });
  draw();
})();
