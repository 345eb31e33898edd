// The page is complete without this: here are only the filter and the forms that try a call.
"use strict";

const key = document.getElementById("key");
const filter = document.getElementById("filter");

filter.addEventListener("input", () => {
  const words = filter.value.toLowerCase().split(/\s+/);
  for (const entry of document.querySelectorAll("[data-finds]")) {
    entry.hidden = !words.every((word) => entry.dataset.finds.includes(word));
  }
});

document.addEventListener("keydown", (event) => {
  const isTyping = /^(INPUT|TEXTAREA)$/.test(event.target.tagName);
  if (event.key === "/" && !isTyping) {
    event.preventDefault();
    filter.focus();
  }
});

// A link to something folded away unfolds it.
const unfold = () => {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target instanceof HTMLDetailsElement) {
    target.open = true;
    target.scrollIntoView();
  }
};
window.addEventListener("hashchange", unfold);
unfold();

// What a form asks for, as fetch takes it.
const requestOf = (form) => {
  const query = new URLSearchParams();
  const headers = {};
  let path = form.dataset.path;
  for (const field of form.querySelectorAll("[data-in]")) {
    const value = field.value;
    if (field.dataset.in === "path") path = path.replace(`{${field.name}}`, encodeURIComponent(value));
    else if (value && field.dataset.in === "query") {
      for (const each of field.dataset.many ? value.split(",") : [value]) query.append(field.name, each.trim());
    } else if (value) headers[field.name] = value;
  }
  if (form.dataset.needsKey && key.value) headers.Authorization = `Bearer ${key.value}`;
  const body = form.elements.body ? form.elements.body.value : undefined;
  if (body) headers["Content-Type"] = "application/json";
  const asked = query.toString();
  return { url: path + (asked ? `?${asked}` : ""), method: form.dataset.method, headers, body: body || undefined };
};

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

const curlOf = ({ url, method, headers, body }) => {
  const parts = ["curl", "-X", method, quoted(location.origin + url)];
  for (const [name, value] of Object.entries(headers)) {
    const shown = name === "Authorization" ? '"Authorization: Bearer $TIDEQ_KEY"' : quoted(`${name}: ${value}`);
    parts.push("-H", shown);
  }
  if (body) parts.push("-d", quoted(body));
  return parts.join(" ");
};

// Numbers beyond what JavaScript can hold stay as they are: only the spaces between values are added.
const pretty = (text) => {
  let depth = 0;
  let isText = false;
  let shown = "";
  const broken = () => `\n${"  ".repeat(depth)}`;
  for (let at = 0; at < text.length; at += 1) {
    const letter = text[at];
    if (isText) {
      shown += letter;
      if (letter === "\\") shown += text[(at += 1)] ?? "";
      else if (letter === '"') isText = false;
    } else if (letter === '"') {
      isText = true;
      shown += letter;
    } else if ("{[".includes(letter) && !"}]".includes(text[at + 1])) {
      depth += 1;
      shown += letter + broken();
    } else if ("}]".includes(letter) && !"{[".includes(text[at - 1])) {
      depth -= 1;
      shown += broken() + letter;
    } else if (letter === ",") shown += letter + broken();
    else if (letter === ":") shown += ": ";
    else shown += letter;
  }
  return shown;
};

const element = (name, text, className = "") => Object.assign(document.createElement(name), { textContent: text, className });

// Shown as it arrives, so that a stream can be watched until it is stopped.
const show = async (response, output) => {
  const status = element("p", `${response.status} ${response.statusText}`, `status s${String(response.status)[0]}`);
  const headers = element("pre", [...response.headers].map(([name, value]) => `${name}: ${value}`).join("\n"));
  const content = element("pre", "");
  content.tabIndex = 0;
  output.replaceChildren(status, headers, content);
  const isJson = (response.headers.get("content-type") ?? "").includes("json");
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    text += part.value;
    content.textContent = text;
  }
  if (isJson) content.textContent = pretty(text);
};

const send = async (form) => {
  const output = form.querySelector("output");
  const stop = form.querySelector(".stop");
  const asked = requestOf(form);
  const control = new AbortController();
  stop.hidden = false;
  stop.onclick = () => control.abort();
  output.replaceChildren(element("p", "Waiting for the answer…"));
  try {
    const { url, ...options } = asked;
    await show(await fetch(url, { ...options, signal: control.signal, credentials: "omit" }), output);
  } catch (error) {
    output.append(element("p", control.signal.aborted ? "Stopped." : `No answer: ${error.message}`));
  } finally {
    stop.hidden = true;
  }
};

for (const form of document.forms) {
  const curl = form.querySelector(".curl");
  const update = () => {
    curl.textContent = curlOf(requestOf(form));
  };
  form.addEventListener("input", update);
  key.addEventListener("input", update);
  update();
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(form);
  });
}
