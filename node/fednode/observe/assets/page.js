"use strict";
// The node renders; this puts what changed in its place, and sends the reader's commands.
const lost = document.getElementById("lost");
const said = document.getElementById("said");

function put(part, html) {
  const scrolled = [...part.querySelectorAll("[tabindex]")].map((one) => one.scrollTop);
  const held = part.contains(document.activeElement) ? document.activeElement : null;
  part.innerHTML = html;
  part.querySelectorAll("[tabindex]").forEach((one, at) => { one.scrollTop = scrolled[at] ?? 0; });
  if (held === null) return;
  // A newcomer's button that is gone must not pass the focus on to another newcomer's button.
  const same = [...part.querySelectorAll("button")].find((one) => one.textContent === held.textContent);
  (same ?? part.querySelector("[data-command], h2[tabindex]"))?.focus();
}

const live = new EventSource("live");
live.onopen = () => { lost.hidden = true; };
live.onerror = () => { lost.hidden = false; };
live.onmessage = (event) => {
  lost.hidden = true;
  for (const [name, html] of Object.entries(JSON.parse(event.data))) {
    const part = document.getElementById(name);
    if (part === null) continue;
    put(part, html);
    const titled = part.querySelector("[data-title]");
    if (titled !== null) document.title = titled.dataset.title;
  }
};

// Send a request of the operator; show what the node says, unless `take` takes the answer.
async function ask(path, form, take) {
  try {
    const answer = await fetch(path, { method: "POST", body: form && new URLSearchParams(form) });
    const text = await answer.text();
    if (take && answer.ok) return take(text);
    said.textContent = text;
  } catch {
    said.textContent = "This node does not answer; nothing was asked of it.";
  }
  said.hidden = false;
}

document.addEventListener("click", (event) => {
  const { command, newcomer, site, id, decide, digest } = event.target.closest("button")?.dataset ?? {};
  if (command) ask(`command/${command}`);
  if (decide) ask(`settings/${decide}`, { digest });
  if (newcomer) ask(`newcomers/${newcomer}`, { site, id });
});

document.getElementById("invite")?.addEventListener("submit", (event) => {
  event.preventDefault();
  ask("newcomers/invite", new FormData(event.target), (html) => {
    const place = document.getElementById("invitation");
    place.innerHTML = html;
    said.hidden = true;
    place.querySelector("h3").focus();
  });
});
