"use strict";
(() => {
  const root = document.documentElement;
  const trouble = document.getElementById("trouble");
  const button = document.getElementById("theme");
  const printing = document.getElementById("print");
  const live = document.getElementById("live");
  let page = JSON.parse(document.getElementById("charts").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const PAPER = 640; // the width of a chart on paper, in pixels
  let errors = 0;
  let paper = false;

  // Whatever goes wrong is said in the page, and counted where a test can read it.
  const complain = (text) => {
    errors += 1;
    root.dataset.errors = String(errors);
    trouble.hidden = false;
    trouble.textContent = text;
  };
  addEventListener("error", (event) => complain(`The charts could not be drawn: ${event.message}`));
  addEventListener("unhandledrejection", (event) => complain(`The charts could not be drawn: ${event.reason}`));
  document.addEventListener("securitypolicyviolation", (event) => complain(`RefusalError to load ${event.blockedURI}.`));

  const theme = () => (paper ? "light" : root.dataset.theme || (dark.matches ? "dark" : "light"));

  // Colours of the theme stand in the charts by name: "var(--ink)", or "var(--ink) 18%" where they shine through.
  const resolved = (value, style) => {
    if (typeof value === "string") {
      const name = /^var\((--[a-z0-9-]+)\)(?: (\d+)%)?$/.exec(value);
      if (name === null) return value;
      const colour = style.getPropertyValue(name[1]).trim();
      return name[2] ? colour + Math.round(2.55 * Number(name[2])).toString(16).padStart(2, "0") : colour;
    }
    if (Array.isArray(value)) return value.map((inner) => resolved(inner, style));
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, resolved(inner, style)]));
  };

  const draw = async () => {
    const style = getComputedStyle(root);
    const touch = matchMedia("(pointer: coarse)").matches;
    const options = {
      responsive: true,
      displaylogo: false,
      displayModeBar: matchMedia("(hover: hover)").matches ? "hover" : false,
      modeBarButtonsToRemove: ["select2d", "lasso2d", "zoomIn2d", "zoomOut2d", "autoScale2d", "resetCameraLastSave3d"],
      showSendToCloud: false, // nothing leaves the page
      plotlyServerURL: "",
    };
    for (const [number, chart] of page.charts.entries()) {
      const place = document.getElementById(`chart-${number}`);
      const layout = resolved({ template: page.template, ...chart.layout }, style);
      layout.height = chart.height;
      layout.uirevision = "kept"; // a change of theme keeps the zoom
      if (paper) layout.width = PAPER;
      if (touch && layout.dragmode === undefined) layout.dragmode = layout.scene ? "turntable" : false; // a finger scrolls
      await Plotly.react(place, resolved(chart.data, style), layout, options);
      await roomy(place, chart.height);
    }
    root.dataset.charts = "drawn";
  };

  // A legend of several lines gets room of its own instead of the chart's.
  const roomy = async (place, height) => {
    const legend = place.querySelector(".legend .bg");
    const extra = legend === null || place.querySelector("g.legend") === null ? 0 : legend.getBBox().height - 28;
    const wanted = height + Math.max(0, Math.round(extra));
    place.style.height = `${wanted}px`;
    if (wanted !== place.layout.height) await Plotly.relayout(place, { height: wanted });
  };

  // A chart behind a closed fold has no width; it gets one when the fold opens.
  const unfolding = () => {
    for (const fold of document.querySelectorAll("details")) {
      fold.addEventListener("toggle", async () => {
        if (!fold.open || paper) return;
        for (const place of fold.querySelectorAll(".chart")) {
          await Plotly.Plots.resize(place);
          await roomy(place, page.charts[Number(place.id.slice("chart-".length))].height);
        }
      });
    }
  };

  // A page that is served follows what it shows: it asks for news, and puts them in the place of what was there.
  const SOON = 1000, LATER = 3000; // milliseconds
  const renew = async (next) => {
    const open = new Set([...document.querySelectorAll("details[open] > summary")].map((one) => one.textContent));
    for (const place of document.querySelectorAll(".chart")) Plotly.purge(place);
    page = { template: page.template, charts: next.charts, tag: next.tag };
    document.title = document.getElementById("title").textContent = next.title;
    for (const place of ["subtitle", "contents", "banner", "main", "foot"]) {
      document.getElementById(place).innerHTML = next[place];
    }
    for (const summary of document.querySelectorAll("details > summary")) {
      summary.parentElement.open = open.has(summary.textContent);
    }
    await draw();
    unfolding();
  };
  const follow = async () => {
    let state = root.dataset.live;
    let words = live.innerHTML;
    for (;;) {
      await new Promise((done) => setTimeout(done, root.dataset.live === "gone" ? LATER : SOON));
      if (paper) continue;
      let next = null;
      try {
        const answer = await fetch(`content?seen=${encodeURIComponent(page.tag)}`, { cache: "no-store" });
        if (answer.status === 200) next = await answer.json();
      } catch {
        root.dataset.live = "gone";
        live.innerHTML = "<strong>Nobody answers any more.</strong> What is shown is the last that was heard; "
          + "<code>tacit watch</code> serves the page again.";
        continue;
      }
      if (next !== null) {
        await renew(next);
        ({ state, words } = next);
      }
      root.dataset.live = state;
      live.innerHTML = words;
    }
  };

  const inflated = async () => {
    const text = document.getElementById("library").textContent;
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  };

  const start = async () => {
    button.hidden = printing.hidden = false;
    printing.onclick = () => print();
    const served = root.dataset.live !== undefined;
    if (page.charts.length === 0 && !served) {
      root.dataset.charts = "drawn";
      button.onclick = () => { root.dataset.theme = theme() === "dark" ? "light" : "dark"; };
      return;
    }
    if (typeof DecompressionStream === "undefined") {
      complain("This browser is too old to draw the charts: it lacks DecompressionStream. The tables are all here.");
      return;
    }
    const library = document.createElement("script");
    library.textContent = await inflated();
    document.head.append(library);
    library.remove(); // it has run
    await draw();
    button.onclick = () => {
      root.dataset.theme = theme() === "dark" ? "light" : "dark";
      draw();
    };
    unfolding();
    dark.addEventListener("change", () => { if (!root.dataset.theme) draw(); });
    let before; // the theme and the closed folds, to be put back after printing
    addEventListener("beforeprint", () => {
      before = { theme: root.dataset.theme, closed: [...document.querySelectorAll("details:not([open])")] };
      before.closed.forEach((fold) => { fold.open = true; });
      paper = true;
      root.dataset.theme = "light";
      draw();
    });
    addEventListener("afterprint", () => {
      paper = false;
      if (before.theme === undefined) delete root.dataset.theme;
      else root.dataset.theme = before.theme;
      before.closed.forEach((fold) => { fold.open = false; });
      draw();
    });
    if (served) await follow();
  };

  start();
})();
