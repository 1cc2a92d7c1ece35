"use strict";
// The node renders; this puts what changed in its place, and sends the reader's commands.
const lost = document.getElementById("lost");
const said = document.getElementById("said");

function put(part, html) {
  const scrolled = [...part.querySelectorAll("[tabindex]")].map((one) => one.scrollTop);
  const held = part.contains(document.activeElement) ? document.activeElement.tagName : "";
  part.innerHTML = html;
  part.querySelectorAll("[tabindex]").forEach((one, at) => { one.scrollTop = scrolled[at] ?? 0; });
  if (held === "BUTTON") part.querySelector("button")?.focus();
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

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-command]");
  if (button === null) return;
  try {
    const answer = await fetch(`command/${button.dataset.command}`, { method: "POST" });
    said.textContent = await answer.text();
  } catch {
    said.textContent = "This node does not answer; nothing was asked of it.";
  }
  said.hidden = false;
});
