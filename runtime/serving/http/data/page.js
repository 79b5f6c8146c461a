"use strict";
// The page: sends the conversation, shows drafted and other tokens apart as they arrive.
const by = (id) => document.getElementById(id);
let messages = [];
let running = null;
let model = "";

function headers() {
  const key = by("key").value;
  const all = { "Content-Type": "application/json" };
  if (key) all.Authorization = "Bearer " + key;
  return all;
}

async function greet() {
  const answer = await fetch("/v1/models", { headers: headers() });
  if (!answer.ok) { by("model").textContent = "(needs an API key: see Options)"; return; }
  model = (await answer.json()).data[0].id;
  by("model").textContent = model;
}

function add(kind, text) {
  const item = document.createElement("li");
  item.className = kind;
  item.textContent = text;
  by("talk").append(item);
  item.scrollIntoView({ block: "end" });
  return item;
}

function body() {
  const drafts = by("drafts").value.trim();
  return {
    model, messages, stream: true, specdec_details: true,
    temperature: Number(by("temperature").value), max_tokens: Number(by("tokens").value),
    num_draft_tokens: drafts === "auto" ? drafts : Number(drafts),
  };
}

async function* events(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let left = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (left + value).split("\n\n");
    left = lines.pop();
    for (const line of lines) {
      const data = line.slice("data: ".length);
      if (data !== "[DONE]") yield JSON.parse(data);
    }
  }
}

function show(figures) {
  by("figures").hidden = false;
  by("speed").textContent = figures.tokens_per_second.toFixed(1) + " tokens/s";
  by("plain").textContent = figures.plain_tokens_per_second
    ? "about " + figures.plain_tokens_per_second.toFixed(1) + " tokens/s" : "not known yet";
  by("accepted").textContent =
    Math.round(100 * figures.acceptance_rate) + " % of " + figures.evaluated;
  by("round").textContent = figures.tokens_per_round.toFixed(2);
  by("first").textContent = Math.round(1000 * figures.time_to_first_token) + " ms";
}

async function send(text) {
  if (!model) await greet();
  messages.push({ role: "user", content: text });
  add("user", text);
  const item = add("assistant", "");
  running = new AbortController();
  busy(true);
  let reply = "";
  try {
    const answer = await fetch("/v1/chat/completions", {
      method: "POST", headers: headers(), body: JSON.stringify(body()), signal: running.signal,
    });
    if (!answer.ok) throw new Error((await answer.json()).error.message);
    for await (const event of events(answer)) {
      if (event.error) throw new Error(event.error.message);
      if (event.specdec) show(event.specdec[0]);
      for (const [piece, drafted] of event.choices[0]?.specdec?.spans ?? []) {
        const span = document.createElement("span");
        span.className = drafted ? "draft" : "own";
        span.textContent = piece;
        item.append(span);
        reply += piece;
      }
      item.scrollIntoView({ block: "end" });
      if (event.choices[0]?.finish_reason === "length") add("note", "(cut: the limit of tokens)");
    }
    messages.push({ role: "assistant", content: reply });
  } catch (error) {
    if (error.name === "AbortError") messages.push({ role: "assistant", content: reply });
    else { messages.pop(); add("error", error.message); }
  } finally {
    running = null;
    busy(false);
    by("text").focus();
  }
}

function busy(is) {
  by("send").disabled = is;
  by("reset").disabled = is;
  by("stop").disabled = !is;
}

by("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = by("text").value.trim();
  if (!text || running) return;
  by("text").value = "";
  send(text);
});
by("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    by("form").requestSubmit();
  }
});
by("stop").addEventListener("click", () => running?.abort());
by("reset").addEventListener("click", () => {
  messages = [];
  by("talk").replaceChildren();
  by("text").focus();
});
by("key").addEventListener("change", greet);
setInterval(async () => {
  try {
    const state = await (await fetch("/ready")).json();
    by("load").textContent = state.running + " running, " + state.waiting + " waiting";
  } catch { by("load").textContent = "the server does not answer"; }
}, 2000);
greet();
by("text").focus();
