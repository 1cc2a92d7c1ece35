"use strict";
// The node renders; this shows its parts as they change, and sends the reader's commands.
const lost = document.getElementById("lost");
const said = document.getElementById("said");
const seen = {};

// The link's fragment has the token: browsers send a fragment to no server. The tab keeps the token
// for a reload, in a store that belongs to this host and this port.
function take() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token === null) return false;
  sessionStorage.setItem("token", token);
  history.replaceState(null, "", location.pathname);
  return true;
}
take();
addEventListener("hashchange", () => take() && location.reload());
const token = sessionStorage.getItem("token");

function request(path, more) {
  return fetch(path, { ...more, headers: token ? { Authorization: `Bearer ${token}` } : {} });
}

// An <img> cannot show a token, so the images that come into view are fetched here.
const view = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (!isIntersecting) continue;
    view.unobserve(target);
    request(target.dataset.image).then(async (answer) => {
      if (!answer.ok) return;
      target.onload = () => URL.revokeObjectURL(target.src);
      target.src = URL.createObjectURL(await answer.blob());
    }).catch(() => {});
  }
});

function put(part, html) {
  const scrolled = [...part.querySelectorAll("[tabindex]")].map((one) => one.scrollTop);
  const held = part.contains(document.activeElement) ? document.activeElement : null;
  part.innerHTML = html;
  part.querySelectorAll("[tabindex]").forEach((one, at) => { one.scrollTop = scrolled[at] ?? 0; });
  part.querySelectorAll("[data-image]").forEach((one) => view.observe(one));
  const titled = part.querySelector("[data-title]");
  if (titled !== null) document.title = titled.dataset.title;
  if (held === null) return;
  // A newcomer's button that is gone must not pass the focus on to another newcomer's button.
  const same = [...part.querySelectorAll("button")].find((one) => one.textContent === held.textContent);
  (same ?? part.querySelector("[data-command], h2[tabindex]"))?.focus();
}

function show(parts) {
  for (const [name, html] of Object.entries(parts)) {
    if (seen[name] === html) continue; // a new stream sends all parts; a form in use stays
    seen[name] = html;
    put(document.getElementById(name), html);
  }
}

function tell(text) {
  said.textContent = text;
  said.hidden = false;
}

// Follow the node: one line for what changed.
async function follow() {
  try {
    const answer = await request("live");
    if (!answer.ok) {
      tell(await answer.text());
      if (answer.status === 401) return;
    } else {
      lost.hidden = true;
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (let got = await reader.read(); !got.done; got = await reader.read()) {
        const lines = (rest + got.value).split("\n");
        rest = lines.pop();
        lines.filter(Boolean).forEach((line) => show(JSON.parse(line)));
      }
      lost.hidden = false;
    }
  } catch {
    lost.hidden = false;
  }
  setTimeout(follow, 3000);
}
follow();

// Send a request of the operator; show what the node says, unless `use` takes the answer.
async function ask(path, form, use) {
  try {
    const answer = await request(path, { method: "POST", body: form && new URLSearchParams(form) });
    const text = await answer.text();
    if (use && answer.ok) return use(text);
    tell(text);
  } catch {
    tell("This node does not answer; nothing was asked of it.");
  }
}

document.addEventListener("click", (event) => {
  const { command, newcomer, site, id } = event.target.closest("button")?.dataset ?? {};
  if (command) ask(`command/${command}`);
  if (newcomer) ask(`newcomers/${newcomer}`, { site, id });
});

document.addEventListener("submit", (event) => {
  event.preventDefault();
  ask("newcomers/invite", new FormData(event.target), (html) => {
    const place = document.getElementById("invitation");
    place.innerHTML = html;
    said.hidden = true;
    place.querySelector("h3").focus();
  });
});
