"use strict";
// Draws what replay/report made: options of ECharts as JSON, with "@name" where a function belongs.
(() => {
  const figures = JSON.parse(document.getElementById("report").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const palettes = {
    light: ["#0b62a8", "#c2570c", "#0f7f5f", "#a23b85", "#8a6d00", "#4a7fb5", "#7a4fc0", "#b03a3a", "#66707d"],
    dark: ["#5fb0f0", "#f09a4a", "#45c79f", "#e58cc6", "#e0c44c", "#9cc3ea", "#b79bf2", "#f08080", "#aab4c0"],
  };
  const endings = {
    Preempted: ["#c2570c", "#f09a4a"], Evicted: ["#b03a3a", "#f07070"], Failed: ["#8a6d00", "#e0c44c"],
    Succeeded: ["#0f7f5f", "#3fae8b"], Running: ["#0b62a8", "#4f97d0"], Deleted: ["#66707d", "#8c96a3"],
    NodeLost: ["#7a4fc0", "#b79bf2"], Pending: ["#66707d", "#8c96a3"],
  };

  const number = (value) => value.toLocaleString("en-US", { maximumFractionDigits: 2 });
  function duration(seconds) {
    if (seconds < 0) return "-" + duration(-seconds);
    if (seconds < 1) return seconds ? parseFloat((seconds * 1000).toPrecision(3)) + "ms" : "0s";
    if (seconds < 60) return parseFloat(seconds.toFixed(2)) + "s";
    const whole = Math.round(seconds);
    const units = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];
    const first = units.findIndex(([, size]) => whole >= size);
    const rest = first + 1 < units.length ? Math.floor((whole % units[first][1]) / units[first + 1][1]) : 0;
    return Math.floor(whole / units[first][1]) + units[first][0] + (rest ? rest + units[first + 1][0] : "");
  }
  function wall(ns) {
    for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["us", 1e3]]) {
      if (ns >= size) return parseFloat((ns / size).toPrecision(3)) + " " + unit;
    }
    return ns + " ns";
  }
  const escaped = (text) => echarts.format.encodeHTML(String(text));
  function interval(params, api) {
    const [from, to] = [api.coord([api.value(0), api.value(2)]), api.coord([api.value(1), api.value(2) + 1])];
    const gap = Math.min(2, (to[1] - from[1]) * 0.2);
    const area = params.coordSys;
    const shape = echarts.graphic.clipRectByRect(
      { x: from[0], y: from[1] + gap / 2, width: Math.max(1.5, to[0] - from[0]), height: Math.max(1, to[1] - from[1] - gap) },
      { x: area.x, y: area.y, width: area.width, height: area.height },
    );
    return shape && { type: "rect", shape, style: { fill: api.visual("color") } };
  }
  const formatters = {
    duration,
    wall,
    percent: (value) => number(value) + "%",
    count: (value) => number(value),
    pointer: (params) => "at " + duration(params.value),
    side: (params) => params.name.slice(1),
    brief: (params) => params.name.slice(1).replace(/^\w+ [^/ ]+\//, ""),
    flow: (params) =>
      params.dataType === "edge"
        ? escaped(params.data.source.slice(1)) + " displaced " + number(params.data.value) + " of " + escaped(params.data.target.slice(1))
        : escaped(params.name.slice(1)) + ": " + number(params.value),
    wallPoint: (params) => escaped(params.value[1]) + "<br>" + escaped(params.seriesName) + ": " + wall(params.value[0]),
    pod: (params) => {
      const [from, to, , priority] = params.value;
      return `<b>${escaped(params.name)}</b><br>priority ${priority}<br>` +
        `from ${duration(from)} to ${duration(to)}<br>${escaped(params.seriesName)} ${escaped(params.data.why)}`;
    },
    interval,
  };

  // Names of pods and messages are data: only these keys hold a formatter's name.
  const holders = new Set(["formatter", "valueFormatter", "labelFormatter", "renderItem"]);
  function resolved(value, key) {
    if (holders.has(key) && typeof value === "string" && value[0] === "@") return formatters[value.slice(1)];
    if (key === "data" || value === null || typeof value !== "object") return value;
    if (Array.isArray(value)) return value.map((each) => resolved(each, key));
    return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, resolved(each, name)]));
  }

  const font = getComputedStyle(document.body).fontFamily;
  function themed(option, title, width) {
    const css = getComputedStyle(document.documentElement);
    const [text, muted, line, card] = ["--text", "--muted", "--line", "--card"].map((name) => css.getPropertyValue(name).trim());
    const shade = dark.matches ? 1 : 0;
    const labels = ({ type, data }, isX) => type === "category" && (isX
      ? { width: Math.max(40, (0.9 * width) / data.length), overflow: "break", interval: 0, hideOverlap: true }
      : { width: Math.min(260, width * 0.4), overflow: "break", lineHeight: 13 });
    const axis = (each, isX) => ({
      ...each,
      axisLabel: { color: muted, ...each.axisLabel, ...labels(each, isX) },
      axisLine: { lineStyle: { color: line } },
      axisTick: { lineStyle: { color: line } },
      splitLine: { lineStyle: { color: line, opacity: 0.6 }, ...each.splitLine },
      ...(each.axisPointer && { axisPointer: { ...each.axisPointer, label: { ...each.axisPointer.label, backgroundColor: muted, color: card } } }),
    });
    return {
      ...option,
      animation: false,
      aria: { enabled: true, label: { description: title + ". The same figures stand in the table below the chart." } },
      color: palettes[dark.matches ? "dark" : "light"],
      textStyle: { color: text, fontFamily: font },
      ...(option.legend && { legend: { textStyle: { color: text }, pageTextStyle: { color: text }, pageIconColor: text, pageIconInactiveColor: line, inactiveColor: muted, ...option.legend } }),
      tooltip: { confine: true, backgroundColor: card, borderColor: line, textStyle: { color: text }, ...option.tooltip },
      ...(option.xAxis && { xAxis: axis(option.xAxis, true), yAxis: axis(option.yAxis, false) }),
      series: option.series.map((each) => ({
        ...each,
        ...(each.type === "custom" && { itemStyle: { color: endings[each.name][shade] } }),
        ...(each.type === "sankey" && { label: { color: text, textBorderColor: card, textBorderWidth: 3, width: width * 0.44, ...each.label, ...(width < 700 && { formatter: formatters.brief }) } }),
      })),
    };
  }

  function draw(holder) {
    const { title, charts } = figures[holder.dataset.figure];
    const select = document.querySelector(`select[data-choice="${holder.dataset.figure}"]`);
    const option = charts[select ? select.value : Object.keys(charts)[0]];
    const chart = echarts.getInstanceByDom(holder) || echarts.init(holder, null, { renderer: "svg" });
    holder.setAttribute("role", "img");
    chart.setOption(themed(resolved(option), title, holder.clientWidth), { notMerge: true });
  }

  const drawn = [...document.querySelectorAll(".chart")];
  drawn.forEach(draw);
  document.querySelectorAll("select[data-choice]").forEach((select) =>
    select.addEventListener("change", () => draw(document.querySelector(`.chart[data-figure="${select.dataset.choice}"]`))));
  document.querySelectorAll("input[data-search]").forEach((input) =>
    input.addEventListener("input", () => {
      const wanted = input.value.trim().toLowerCase();
      document.getElementById(input.dataset.search).querySelectorAll("tbody tr").forEach((row) => {
        row.hidden = !row.textContent.toLowerCase().includes(wanted);
      });
    }));
  dark.addEventListener("change", () => drawn.forEach(draw));
  const observer = new ResizeObserver((entries) =>
    entries.forEach(({ target }) => {
      const chart = echarts.getInstanceByDom(target);
      if (chart.getWidth() === target.clientWidth) return;
      chart.resize();
      draw(target);
    }));
  drawn.forEach((each) => observer.observe(each));
})();
