// Browsers refuse workers on pages that were opened from disk. There the search runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = Object.assign(document.createElement("iframe"), { hidden: true });
      document.body.append(frame);
      const inside = frame.contentWindow;
      inside.postMessage = (data) => this.#said(data);
      inside.importScripts = (...urls) => urls.reduce((before, next) => before.then(() => loaded(next)), Promise.resolve());
      const loaded = (source) => new Promise((done) => {
        const script = Object.assign(inside.document.createElement("script"), { src: source, onload: done });
        inside.document.body.append(script);
      });
      this.frame = frame;
      this.ready = loaded(url);
    }
    #said(data) {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      this.onmessage?.(event);
    }
    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() { this.frame.remove(); }
  };
}
