"use strict";
(() => {
  const root = document.documentElement;
  const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const button = document.getElementById("theme");
  const label = () => { button.textContent = dark() ? "Light" : "Dark"; };
  button.hidden = false;
  button.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; label(); });
  label();

  // What the pointer is over: all charts over time show the same moment. Values are read back from the lines drawn.
  const tip = document.getElementById("tip");
  const charts = [...document.querySelectorAll("svg.timed")].map((svg) => ({
    svg,
    scale: Object.fromEntries(["end", "top", "x0", "x1", "y0", "y1"].map((name) => [name, Number(svg.dataset[name])])),
    cross: svg.querySelector(".cross"),
    lines: [...svg.querySelectorAll(".line")].map((path) => ({
      label: path.dataset.label,
      color: path.classList[1],
      points: [...path.getAttribute("d").matchAll(/[ML]([-\d.]+),([-\d.]+)/g)].map((found) => [Number(found[1]), Number(found[2])]),
    })),
  }));
  const nearest = (points, x) => {
    let low = 0, high = points.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (points[middle][0] < x) low = middle; else high = middle;
    }
    return Math.abs(points[low][0] - x) <= Math.abs(points[high][0] - x) ? points[low] : points[high];
  };
  const time = (seconds) => {
    const whole = Math.round(seconds), two = (n) => String(n).padStart(2, "0");
    return seconds < 10 ? `${seconds.toFixed(1)} s` : `${Math.floor(whole / 3600)}:${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
  };
  const text = (value) => {
    const digits = Math.min(6, Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value) || 1))));
    return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  };
  const move = (chart, event) => {
    const { x0, x1, y0, y1, end, top } = chart.scale;
    const box = chart.svg.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * chart.svg.viewBox.baseVal.width;
    const share = Math.min(1, Math.max(0, (x - x0) / (x1 - x0)));
    for (const other of charts) {
      const at = other.scale.x0 + share * (other.scale.x1 - other.scale.x0);
      other.cross.setAttribute("x1", at);
      other.cross.setAttribute("x2", at);
      other.cross.style.visibility = "visible";
    }
    tip.replaceChildren(time(share * end));
    for (const line of chart.lines) {
      if (!line.points.length) continue;
      const value = (nearest(line.points, x)[1] - y0) / (y1 - y0) * top;
      const row = document.createElement("div"), key = document.createElement("i"), bold = document.createElement("b");
      key.className = line.color;
      bold.textContent = `${text(value)} ${chart.svg.dataset.unit}`;
      row.append(key, line.label ? `${line.label}  ` : "", bold);
      tip.append(row);
    }
    tip.style.visibility = "visible";
    const left = event.clientX + 16 + tip.offsetWidth > innerWidth ? event.clientX - 16 - tip.offsetWidth : event.clientX + 16;
    tip.style.left = `${left}px`;
    tip.style.top = `${Math.min(event.clientY + 16, innerHeight - tip.offsetHeight - 8)}px`;
  };
  const leave = () => {
    tip.style.visibility = "hidden";
    for (const chart of charts) chart.cross.style.visibility = "hidden";
  };
  for (const chart of charts) {
    chart.svg.addEventListener("pointermove", (event) => move(chart, event));
    chart.svg.addEventListener("pointerleave", leave);
  }
  root.dataset.ready = String(charts.length);
})();
