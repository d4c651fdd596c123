// A page opened from a file may not start a worker, and Material's search is one: this runs it in a frame.
"use strict";
if (location.protocol === "file:")
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inner = (this.inner = frame.contentWindow);
      this.ready = new Promise((done) => {
        const script = inner.document.createElement("script");
        const answer = (data) => { const event = new MessageEvent("message", { data }); this.dispatchEvent(event); this.onmessage?.(event); };
        Object.assign(inner, {
          postMessage: answer,
          importScripts: (...urls) => urls.reduce((before, one) => before.then(() => new Promise((loaded) => {
            const next = inner.document.createElement("script");
            Object.assign(next, { src: one, onload: loaded });
            inner.document.head.append(next);
          })), Promise.resolve()),
        });
        Object.assign(script, { src: url, onload: done });
        inner.document.head.append(script);
      });
    }
    postMessage(data) { this.ready.then(() => this.inner.dispatchEvent(new MessageEvent("message", { data }))); }
  };
