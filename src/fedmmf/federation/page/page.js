// Keeps the page up to date: when the server says that something is new, the page is asked for
// again, and what differs is changed in place. So focus, scrolling and what was unfolded stay.
"use strict";
{
  const SILENCE = 40000; // ms; the server says something every 15 s
  const AGAIN = 3000; // ms until another try
  const UNTIL =
    "Below is what was known last; the page goes on by itself as soon as the server answers.";
  const LOCKED =
    "The server wants another token: open this address with ?token= and what is in the file " +
    "server/state/token at its end. Below is what was known last.";
  const lost = document.getElementById("lost");
  const live = document.getElementById("live");
  let source, watchdog, retry, asking = false, asked = false;

  const patch = (here, there) => {
    for (const { name } of [...here.attributes]) {
      // Whoever unfolds details wants them to stay so.
      if (!there.hasAttribute(name) && name !== "open") here.removeAttribute(name);
    }
    for (const { name, value } of there.attributes) {
      if (here.getAttribute(name) !== value) here.setAttribute(name, value);
    }
    const old = [...here.childNodes];
    const fresh = [...there.childNodes];
    fresh.forEach((node, place) => {
      const was = old[place];
      if (!was) here.append(node);
      else if (was.nodeName !== node.nodeName) was.replaceWith(node);
      else if (node.nodeType === Node.ELEMENT_NODE) patch(was, node);
      else if (was.data !== node.data) was.data = node.data;
    });
    old.slice(fresh.length).forEach((node) => node.remove());
  };

  const show = (text) => {
    const fresh = new DOMParser().parseFromString(text, "text/html");
    document.title = fresh.title;
    for (const part of document.querySelectorAll("[data-live]")) {
      const there = fresh.getElementById(part.id);
      if (there) patch(part, there);
    }
  };

  const ask = async () => {
    const reply = await fetch("./", { cache: "no-store", signal: AbortSignal.timeout(10000) });
    if (reply.status === 401) tell(LOCKED);
    if (!reply.ok) throw new Error(String(reply.status));
    return reply;
  };

  const refresh = async () => {
    asked = true;
    if (asking) return; // one question at a time; the answer to the last is the newest
    asking = true;
    try {
      while (asked) {
        asked = false;
        show(await (await ask()).text());
        tell("");
      }
    } catch {
      again();
    } finally {
      asking = false;
    }
  };

  // Says what is wrong; nothing is where there is nothing to say.
  const tell = (sentence) => {
    live.hidden = Boolean(sentence);
    lost.hidden = !sentence;
    lost.textContent = sentence;
  };

  const hear = () => {
    clearTimeout(watchdog);
    watchdog = setTimeout(again, SILENCE); // a line that was cut says nothing, not even that
  };

  const again = () => {
    if (lost.hidden) {
      const since = new Date().toISOString().slice(11, 19);
      tell(`No connection to the server since ${since} UTC. ${UNTIL}`);
    }
    close();
    // Events do not say why they fail: the page itself is asked first, and may be locked by now.
    retry = setTimeout(() => ask().then(connect, again), AGAIN);
  };

  const close = () => {
    clearTimeout(watchdog);
    clearTimeout(retry);
    source?.close();
  };

  const connect = () => {
    close();
    source = new EventSource("events");
    source.addEventListener("status", () => { hear(); refresh(); });
    source.addEventListener("beat", hear);
    source.addEventListener("error", again);
    hear();
  };

  // The token has become a cookie: it need not stay where it is seen and copied.
  if (location.search) history.replaceState(null, "", location.pathname + location.hash);
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => { if (event.persisted) connect(); });
  connect();
}
