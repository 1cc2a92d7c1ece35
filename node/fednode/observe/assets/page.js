"use strict";
// Read four JSON documents of the node (status, peers, history, events) and show them. Every text of
// the node is put into the page as text, never as HTML.
const EVERY_MS = 1000;
const ROUNDS = 1000; // most rounds of a chart
const EVENTS = 80; // most records in the list
const POINTS = 200; // most points of a line
const SPLITS = ["own", "base", "new", "validation"];
const LOST = ["dead", "refused", "quarantined"];
const SENT = ["payload_out", "serialized_out", "wire_out"];
const GONE = ["left", "revoked"];
const the = (id) => document.getElementById(id);

// The link's fragment has the token: browsers send a fragment to no server. The tab keeps the token
// for a reload, in a store that belongs to this host and this port.
function takeToken() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token === null) return false;
  sessionStorage.setItem("token", token);
  history.replaceState(null, "", location.pathname);
  return true;
}
takeToken();
addEventListener("hashchange", () => takeToken() && location.reload());
const token = sessionStorage.getItem("token");

const request = (path, more) =>
  fetch(path, { ...more, headers: token ? { Authorization: `Bearer ${token}` } : {} });

async function read(path) {
  const answer = await request(path);
  if (!answer.ok) throw Object.assign(new Error(await answer.text()), { status: answer.status });
  return answer.json();
}

// Writing numbers -----------------------------------------------------------------------------------

function duration(seconds) {
  const units = [["s", 60], ["min", 60], ["h", 24], ["days", Infinity]];
  let value = seconds;
  for (const [unit, most] of units) {
    if (Math.round(value) < most) return `${Math.round(value)} ${unit}`;
    value /= most;
  }
}

function bytes(count) {
  const at = count < 1000 ? 0 : Math.min(5, Math.floor(Math.log10(count) / 3));
  return `${at ? +(count / 1000 ** at).toFixed(1) : count} ${["B", "kB", "MB", "GB", "TB", "PB"][at]}`;
}

const percent = (share) => `${+(100 * share).toPrecision(3)} %`;
const number = (value) => `${+value.toPrecision(3)}`;

function clock(seconds) {
  const then = new Date(1000 * seconds);
  const day = then.toDateString() === new Date().toDateString() ? "" : `${then.toLocaleDateString("sv")} `;
  return day + then.toLocaleTimeString("sv");
}

// Building elements ---------------------------------------------------------------------------------

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const small = (...texts) => element("span", { class: "small" }, ...texts);
const badge = (text, state = text) => element("span", { class: `badge ${state}` }, text);

const shown = new Map();

// Replace the children of an element if what they show has changed; keep the keyboard's focus.
function put(id, key, build) {
  const text = JSON.stringify(key);
  if (shown.get(id) === text) return;
  shown.set(id, text);
  const place = the(id);
  const held = place.contains(document.activeElement) ? document.activeElement : null;
  place.replaceChildren(...build().filter(Boolean));
  if (held === null) return;
  // A button that is gone must not pass the focus on to another site's button.
  const same = [...place.querySelectorAll("button")].find((one) => one.textContent === held.textContent);
  (same ?? place.closest("section")?.querySelector("h2[tabindex]"))?.focus();
}

// The status ----------------------------------------------------------------------------------------

const word = (state) => (state === "dead" ? "offline" : state);

// The peers that take no part, in few words; "" if there are none.
function lost(peers) {
  const away = peers.filter((one) => LOST.includes(one.state));
  if (away.length === 1) return `: ${away[0].name} is ${word(away[0].state)}`;
  return away.length ? `: ${away.length} peers are lost` : "";
}

function accuracy(measured) {
  const key = SPLITS.find((split) => typeof measured[split] === "number");
  const zero = measured[`zero_shot_${key}`];
  return key ? [`${key} ${percent(measured[key])}`, typeof zero === "number" ? `zero-shot ${percent(zero)}` : ""] : ["", ""];
}

// A sentence; the commands that it names stand between backquotes.
const sentence = (text) => text.split("`").map((part, at) => (at % 2 ? element("code", {}, part) : part));
const paragraph = (text, kind = "note") => element("p", { class: kind }, ...sentence(text));

function showStatus({ reader, status: now, headline, facts, mesh_gain: whole }) {
  const operator = reader === "operator";
  const alerts = [
    ...now.warnings.map((text) => [text, "alert"]),
    ...now.events.map((one) => [`${clock(one.time)} ${one.text}`, one.level === "error" ? "alert bad" : "alert"]),
    reader === "stranger" && [
      "The token in this link is not the one of this node, so you see what members see. " +
      `\`fednode status ${now.name}\` on the node's own machine prints the operator's link.`, "alert"],
  ].filter(Boolean);
  document.title = `${now.name}${lost(now.peers)} \u00b7 fednode`;
  the("name").textContent = now.name;
  put("badges", now.life, () => [badge(now.life)]);
  the("headline").textContent = headline;
  put("alerts", alerts, () => alerts.map(([text, kind]) => paragraph(text, kind)));
  const gains = [...now.compared, whole].filter(Boolean);
  put("gains", gains, () => gains.map((text) => paragraph(text)));
  the("help").hidden = !gains.length;
  put("facts", facts, () => facts.map(([title, text]) =>
    element("div", {}, element("dt", {}, title), element("dd", {}, text))));
  put("notes", now.notes, () => now.notes.map((text) => paragraph(text)));
  const acts = { waiting: "pause", running: "pause", paused: "resume" };
  const act = operator && acts[now.life];
  the("command").hidden = !act;
  if (act && the("act").dataset.command !== act) {
    the("act").dataset.command = act;
    the("act").textContent = act === "pause" ? "Pause this node" : "Resume this node";
    the("act-note").textContent =
      act === "pause" ? "It finishes its round and begins no other." : "It goes on with its next round.";
  }
  showClasses(now);
  the("node").hidden = false;
}

function showClasses(now) {
  the("classes-part").hidden = !now.classes.length;
  put("classes", now.classes, () => now.classes.map((name) => element("li", {}, name)));
}

// The peers -----------------------------------------------------------------------------------------

// A column: its title, and the content of its cell for a peer and what the peer says of itself.
function columns(now) {
  const reason = (peer) => [peer.reason, peer.unreached, peer.path_why].filter(Boolean).join("; ");
  return [
    ["state", (peer) => [badge(word(peer.state), peer.state),
      reason(peer) && element("span", { class: "small why" }, reason(peer))]],
    ["round", (peer) => [`${peer.round}`], "n"],
    ["heard", (peer) => [peer.heard_s < 0 ? "never" : `${duration(peer.heard_s)} ago`], "n"],
    ["sent to it", (peer) => [bytes(peer.traffic.serialized_out)], "n"],
    ["received", (peer) => [bytes(peer.traffic.serialized_in)], "n"],
    ["it says of itself", (peer, says) => (says
      ? [`${says.life}${says.life === "running" ? `, ${says.phase}` : ""}`, says.ago_s > 10 && small(` ${duration(says.ago_s)} ago`)]
      : [small("did not answer")]), "said"],
    ["accuracy", (peer, says) => {
      const [own, zero] = accuracy(says?.measured ?? {});
      return [own, zero && element("span", { class: "small why" }, zero)];
    }, "n"],
  ];
}

function showPeers({ reader, status: now }, reports) {
  the("nobody").hidden = now.peers.length > 0;
  const wanted = columns(now);
  const cell = (name, role, kind, ...children) => element(name, { role, ...kind }, ...children.filter(Boolean));
  put("peers", [now.peers, reports, reader], () => (now.peers.length ? [
    element("thead", { role: "rowgroup" }, element("tr", { role: "row" },
      ...[["peer"], ...wanted].map(([title, , kind]) =>
        cell("th", "columnheader", { scope: "col", class: kind ?? "" }, title)),
      ...(reader === "operator" ? [cell("th", "columnheader", { scope: "col" }, "remove")] : []))),
    element("tbody", { role: "rowgroup" }, ...now.peers.map((peer) => element("tr", { role: "row" },
      cell("th", "rowheader", { scope: "row" }, peer.name,
        element("span", { class: "small where" }, peer.address + (peer.path.startsWith("relay") ? `: ${peer.path}` : ""))),
      ...wanted.map(([title, content, kind]) =>
        cell("td", "cell", { "data-name": title, class: kind ?? "" }, ...content(peer, reports[peer.name]))),
      ...(reader === "operator" ? [cell("td", "cell", { "data-name": "remove" }, removal(peer))] : [])))),
  ] : []));
}

// The node does not hold the mesh key, which a removal takes, so the page names the command.
function removal(peer) {
  if (GONE.includes(peer.state)) return "";
  return element("button", { type: "button", "data-remove": peer.name }, `Remove ${peer.name}`);
}

// The history ---------------------------------------------------------------------------------------

let rounds = [];
let counts = {}; // the traffic of the last round, as the node counts it

async function readHistory({ round, measured }) {
  if (rounds.length && rounds.at(-1).round > round) [rounds, counts] = [[], {}]; // the rounds began again
  const last = rounds.at(-1)?.round ?? 0;
  if (rounds.length && last >= round) return;
  const answer = await read(`history?since=${Math.max(last + 1, round - ROUNDS)}`);
  for (const one of answer.rounds) {
    for (const key of SENT) {
      // The counts of a round begin at 0 with each start of the node.
      const [before, grown] = [rounds.at(-1)?.traffic ?? {}, one.traffic[key] - (counts[key] ?? 0)];
      counts[key] = one.traffic[key];
      one.traffic[key] = (before[key] ?? 0) + (grown < 0 ? counts[key] : grown);
    }
    rounds.push(one);
  }
  rounds = rounds.slice(-ROUNDS);
  put("charts", [round, rounds.length], () => [
    chart("Accuracy", percent, SPLITS.map((key) => [key, (one) => one.metrics[key]]),
      SPLITS.map((key) => [key, measured[`zero_shot_${key}`]])),
    chart("Training loss", number, [["loss", (one) => one.metrics.loss]]),
    chart("Bytes sent", bytes, [
      ["tensors", (one) => one.traffic.payload_out],
      ["whole messages", (one) => one.traffic.serialized_out],
      ["on the wire, about", (one) => one.traffic.wire_out],
    ]),
  ]);
}

function drawn(name, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// 3 to 7 round numbers around two values, in steps of 1, 2 or 5 times a power of ten.
function scale(low, high) {
  if (high - low <= 1e-9 * Math.max(Math.abs(low), Math.abs(high), 1)) {
    [low, high] = high ? [Math.min(low, 0), Math.max(high, 0)] : [0, 1]; // equal values: from 0
  }
  const power = 10 ** Math.floor(Math.log10((high - low) / 4));
  const step = [1, 2, 5, 10].map((digit) => digit * power).find((one) => one * 4 >= (high - low) * (1 - 1e-9));
  const [first, last] = [Math.floor(low / step + 1e-9), Math.ceil(high / step - 1e-9)];
  return Array.from({ length: last - first + 1 }, (_, at) => (first + at) * step);
}

// A chart of lines over rounds: `series` are names and what to take of a round; `levels` dashed lines.
function chart(title, write, series, levels = []) {
  const lines = series
    .map(([name, take]) => [name, rounds.map((one) => [one.round, take(one)])])
    .map(([name, points]) => [name, points.filter(([, value]) => typeof value === "number")])
    .filter(([, points]) => points.length);
  const place = (name) => lines.findIndex(([one]) => one === name);
  const section = element("section", { "aria-label": title }, element("h2", {}, title));
  if (!lines.length) {
    section.append(element("p", { class: "small" }, "Nothing yet."));
    return section;
  }
  const flat = levels.filter(([name, value]) => typeof value === "number" && place(name) >= 0);
  const values = [...lines.flatMap(([, points]) => points), ...flat].map(([, value]) => value);
  const marks = scale(Math.min(...values), Math.max(...values));
  const [first, last] = [rounds[0].round, rounds.at(-1).round];
  const x = (round) => 62 + 328 * (last > first ? (round - first) / (last - first) : 0.5);
  const y = (value) => 178 - 166 * (value - marks[0]) / (marks.at(-1) - marks[0]);
  const said = [
    ...lines.map(([name, points]) => [name, points.at(-1)[1], place(name), ""]),
    ...flat.map(([name, value]) => [`zero-shot ${name}`, value, place(name), " dashed"]),
  ];
  const label = `${title} up to round ${last}: ${said.map(([name, value]) => `${name} ${write(value)}`).join("; ")}`;
  const svg = drawn("svg", { viewBox: "0 0 400 200", role: "img", "aria-label": label });
  for (const mark of marks) {
    svg.append(drawn("line", { class: "grid", x1: 62, x2: 390, y1: y(mark), y2: y(mark) }),
      drawn("text", { class: "tick", x: 56, y: y(mark) + 4, "text-anchor": "end" }, write(mark)));
  }
  svg.append(drawn("text", { class: "tick", x: 62, y: 196 }, last > first ? `${first}` : ""),
    drawn("text", { class: "tick", x: 390, y: 196, "text-anchor": "end" }, `round ${last}`));
  for (const [name, value] of flat) {
    const at = { x1: 62, x2: 390, y1: y(value), y2: y(value) };
    svg.append(drawn("line", { class: `line level line-${place(name)}`, ...at }));
  }
  lines.forEach(([, points], at) => {
    const every = Math.ceil(points.length / POINTS);
    const kept = points.filter((_, index) => index % every === 0 || index === points.length - 1);
    const places = kept.map(([round, value]) => [x(round).toFixed(1), y(value).toFixed(1)]);
    const line = drawn("g", { class: `line line-${at}` }, drawn("polyline", { points: places.join(" ") }));
    if (kept.length <= 60) line.append(...places.map(([cx, cy]) => drawn("circle", { cx, cy, r: 2.5 })));
    svg.append(line);
  });
  const pointed = element("p", { class: "small pointed" }, "\u00a0");
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const at = 400 * (event.clientX - box.left) / box.width;
    const far = (one) => Math.abs(x(one.round) - at);
    const near = rounds.reduce((best, one) => (far(one) < far(best) ? one : best));
    const texts = lines.map(([name, points]) => [name, points.find(([round]) => round === near.round)])
      .filter(([, point]) => point).map(([name, point]) => `${name} ${write(point[1])}`);
    pointed.textContent = `round ${near.round}: ${texts.join(", ") || "not measured"}`;
  });
  svg.addEventListener("pointerleave", () => { pointed.textContent = "\u00a0"; });
  const legend = said.map(([name, value, at, kind]) =>
    element("span", {}, element("span", { class: `key key-${at}${kind}` }), `${name} ${write(value)}`));
  section.append(svg, element("p", { class: "legend" }, ...legend), pointed);
  return section;
}

// The events ----------------------------------------------------------------------------------------

let records = [];

async function readEvents() {
  const answer = await read(`events?since=${records.at(-1)?.number ?? 0}`);
  records = [...records, ...answer.events].slice(-EVENTS);
  showEvents();
}

function showEvents() {
  const wrong = the("only-wrong").checked;
  const listed = records.filter((one) => !wrong || one.level === "warning" || one.level === "error").reverse();
  put("events", [wrong, listed.map((one) => one.number)], () => (listed.length
    ? listed.map((one) => element("li", { class: one.level }, element("time", {}, clock(one.time)), " ", one.text))
    : [element("li", {}, wrong ? "none since the start" : "nothing yet")]));
}
the("only-wrong").addEventListener("change", showEvents);

// Sites that want to be members ---------------------------------------------------------------------

async function readSites() {
  const sites = await read("sites");
  put("waiting", sites.waiting, () => (sites.waiting.length ? sites.waiting.map((site) => {
    const decide = (word, title) => {
      const button = element("button", { type: "button" }, `${title} ${site.name}`);
      button.addEventListener("click", () => ask(`sites/${word}`, { site: site.name, id: site.id }));
      return button;
    };
    return element("li", {},
      element("span", {}, element("strong", {}, site.name), " ", small(site.address)),
      element("span", {}, site.words),
      element("span", { class: "choice" }, decide("admit", "Admit"), " ", decide("refuse", "Refuse")));
  }) : [element("li", { class: "small" }, "No site waits.")]));
  const words = [{ name: "the mesh", words: sites.mesh_words }, ...sites.members];
  put("words", words, () => words.map((site) =>
    element("li", {}, element("strong", {}, site.name), " ", element("span", {}, site.words))));
}

// What the operator asks for ------------------------------------------------------------------------

function tell(text) {
  the("said").replaceChildren(...sentence(text));
  the("said").hidden = false;
}

// Send a request of the operator; show what the node says, unless `use` takes the answer.
async function ask(path, form, use) {
  try {
    const answer = await request(path, { method: "POST", body: form && new URLSearchParams(form) });
    if (use && answer.ok) use(await answer.json());
    else tell(await answer.text());
  } catch {
    tell("This node does not answer; nothing was asked of it.");
  }
  look();
}

the("act").addEventListener("click", (event) => ask(`command/${event.target.dataset.command}`));

the("peers").addEventListener("click", (event) => {
  const name = event.target.dataset.remove;
  if (name) tell(`To remove ${name} for good, run \`fednode remove ${name}\` where the mesh key is.`);
});

the("invite").addEventListener("submit", (event) => {
  event.preventDefault();
  ask("sites/invite", new FormData(event.target), (made) => {
    const then = made.approve ? ", and then waits for you to admit the site" : "";
    the("invitation").replaceChildren(
      element("h3", { tabindex: "-1" }, `The link for ${made.site}`),
      element("p", { class: "small" }, `Send it to this site alone. It can be used once within ${made.days} days${then}. ` +
        "It is shown only here and now. The site types: ", element("code", {}, "fednode join LINK --data DIR")),
      element("p", { class: "link" }, element("code", {}, made.link)),
      element("p", { class: "note" }, `The words of the mesh, which ${made.site} must see, too: `, element("strong", {}, made.words)));
    the("said").hidden = true;
    the("invitation").querySelector("h3").focus();
  });
});

// Look again each second, while the page is in view --------------------------------------------------

let timer = 0;
let looking = false;

async function look() {
  clearTimeout(timer);
  if (looking || document.hidden) return;
  looking = true;
  try {
    const now = await read("status");
    showStatus(now);
    showPeers(now, await read("peers"));
    await readHistory(now.status);
    await readEvents();
    if (now.admits) await readSites();
    document.querySelectorAll(".operator").forEach((one) => { one.hidden = !now.admits; });
    the("lost").hidden = true;
  } catch (fault) {
    if (fault.status) tell(fault.message);
    else the("lost").hidden = false;
    if (fault.status === 401) return;
  } finally {
    looking = false;
  }
  timer = setTimeout(look, EVERY_MS);
}
addEventListener("visibilitychange", look);
look();
