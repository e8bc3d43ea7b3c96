// Keeps the page up to date: when the server says that something is new, the page is asked for
// again, and what differs is changed in place. So focus, scrolling and what was unfolded stay.
"use strict";
{
  const SILENCE = 40000; // ms; the server says something every 15 s
  const AGAIN = 3000; // ms until another try
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

  const refresh = async () => {
    asked = true;
    if (asking) return; // one question at a time; the answer to the last is the newest
    asking = true;
    try {
      while (asked) {
        asked = false;
        const reply = await fetch("./", { cache: "no-store", signal: AbortSignal.timeout(10000) });
        if (!reply.ok) throw new Error(String(reply.status));
        show(await reply.text());
        tell(true);
      }
    } catch {
      again();
    } finally {
      asking = false;
    }
  };

  const tell = (connected) => {
    live.hidden = !connected;
    if (connected === lost.hidden) return;
    const since = new Date().toISOString().slice(11, 19);
    lost.textContent = connected
      ? ""
      : `No connection to the server since ${since} UTC. Below is what was known last; ` +
        "the page goes on by itself as soon as the server answers.";
    lost.hidden = connected;
  };

  const hear = () => {
    clearTimeout(watchdog);
    watchdog = setTimeout(again, SILENCE); // a line that was cut says nothing, not even that
  };

  const again = () => {
    tell(false);
    close();
    retry = setTimeout(connect, AGAIN);
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
