// A list of which only the visible rows are in the page. Rows are asked for in parts, as they come into view.

/** The rows of one request. */
const PART = 200;

/** How many parts are kept. */
const MOST_PARTS = 60;

/** How many rows are made above and below those that are seen. */
const MORE = 10;

/** No browser scrolls further than some million pixels; beyond that, a pixel stands for more. */
const MOST_PIXELS = 8_000_000;

export class ScrollList {
  /**
   * `load(from, count)` resolves to `{ total, rows }`. `render(row, element)` fills an element; `chosen(row, at)`
   * is called when a row is chosen with the mouse or the keyboard.
   */
  constructor({ height, load, render, chosen = () => {}, label, header = null, failed = () => {} }) {
    Object.assign(this, { height, load, render, chosen, failed });
    this.total = 0;
    this.at = -1;
    this.parts = new Map();
    this.shown = new Map();
    this.spare = [];
    this.version = 0;
    this.body = document.createElement("div");
    this.body.className = "rows";
    this.element = document.createElement("div");
    this.element.className = "scroll";
    this.element.tabIndex = 0;
    this.element.setAttribute("role", "listbox");
    this.element.setAttribute("aria-label", label);
    this.element.append(this.body);
    this.outer = document.createElement("div");
    this.outer.className = "list";
    if (header) this.outer.append(header);
    this.outer.append(this.element);
    this.element.addEventListener("scroll", () => this.soon(), { passive: true });
    this.element.addEventListener("keydown", (event) => this.key(event));
    this.body.addEventListener("click", (event) => {
      const row = event.target.closest("[data-at]");
      if (row && !event.target.closest("a,button")) this.choose(Number(row.dataset.at));
    });
    this.resized = new ResizeObserver(() => this.soon());
    this.resized.observe(this.element);
  }

  /** Sets how many rows there are. Rows from `changed` on are asked for again. */
  setTotal(total, changed = this.total) {
    const isAtEnd = this.isAtEnd();
    // What is known of these rows is shown until the new ones are there.
    for (const [part, known] of this.parts) if ((part + 1) * PART > changed) known.isOld = true;
    this.total = total;
    this.pixels = Math.min(total * this.height, MOST_PIXELS);
    this.body.style.setProperty("height", `${this.pixels}px`);
    this.element.setAttribute("aria-setsize", String(total));
    if (isAtEnd && this.follows) this.element.scrollTop = this.pixels;
    this.soon();
  }

  /** Forgets all rows. */
  reset(total) {
    this.version += 1;
    this.parts.clear();
    this.at = -1;
    this.element.scrollTop = 0;
    this.setTotal(total, 0);
  }

  isAtEnd() {
    return this.element.scrollTop + this.element.clientHeight >= (this.pixels ?? 0) - 2 * this.height;
  }

  /** The first row that is seen, and how far it is above the top. */
  top() {
    const most = this.pixels - this.element.clientHeight;
    const all = this.total * this.height - this.element.clientHeight;
    const scrolled = this.element.scrollTop;
    if (most <= 0 || all <= most) return scrolled;
    return (scrolled / most) * all;
  }

  soon() {
    if (this.drawing) return;
    this.drawing = requestAnimationFrame(() => {
      this.drawing = null;
      this.draw();
    });
  }

  row(at) {
    return this.parts.get(Math.floor(at / PART))?.rows?.[at % PART];
  }

  draw() {
    const top = this.top();
    const first = Math.max(0, Math.floor(top / this.height) - MORE);
    const last = Math.min(this.total, Math.ceil((top + this.element.clientHeight) / this.height) + MORE);
    for (let part = Math.floor(first / PART); part * PART < last; part += 1) this.ask(part);
    // The part that is seen next if the scrolling continues.
    const ahead = top >= (this.before ?? 0) ? last + PART : first - PART;
    this.before = top;
    if (ahead >= 0 && ahead < this.total) this.ask(Math.floor(ahead / PART));
    for (const [at, element] of this.shown) {
      if (at < first || at >= last) {
        this.shown.delete(at);
        element.hidden = true;
        this.spare.push(element);
      }
    }
    // Where a pixel stands for more, rows are placed around what is seen.
    const shift = this.element.scrollTop - top;
    for (let at = first; at < last; at += 1) {
      let element = this.shown.get(at);
      const row = this.row(at);
      if (!element) {
        element = this.spare.pop() ?? this.made();
        element.hidden = false;
        element.dataset.at = String(at);
        element.id = `row-${at}`;
        element.row = undefined;
        this.shown.set(at, element);
      }
      if (element.row !== (row ?? null)) {
        element.row = row ?? null;
        if (row) this.render(row, element, at);
        else element.replaceChildren();
      }
      element.style.setProperty("transform", `translateY(${at * this.height + shift}px)`);
      const isChosen = at === this.at;
      if (element.isChosen !== isChosen) {
        element.isChosen = isChosen;
        element.classList.toggle("chosen", isChosen);
        element.setAttribute("aria-selected", String(isChosen));
      }
      element.setAttribute("aria-posinset", String(at + 1));
    }
  }

  made() {
    const element = document.createElement("div");
    element.className = "row";
    element.setAttribute("role", "option");
    element.style.setProperty("height", `${this.height}px`);
    this.body.append(element);
    return element;
  }

  ask(part) {
    const known = this.parts.get(part);
    if (known && !known.isOld) {
      // The part that was used last is forgotten last.
      this.parts.delete(part);
      this.parts.set(part, known);
      return known.promise;
    }
    while (this.parts.size >= MOST_PARTS) this.parts.delete(this.parts.keys().next().value);
    const { version } = this;
    const asked = { rows: known?.rows ?? null, promise: null, isOld: false };
    this.parts.set(part, asked);
    asked.promise = this.load(part * PART, PART).then(
      ({ rows }) => {
        if (this.version !== version) return;
        asked.rows = rows;
        this.soon();
      },
      (error) => {
        if (this.parts.get(part) === asked) this.parts.delete(part);
        if (error.name !== "AbortError") this.failed(error);
      },
    );
    return asked.promise;
  }

  key(event) {
    if (event.target !== this.element || event.altKey || event.ctrlKey || event.metaKey) return;
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.height) - 1);
    const to = {
      ArrowDown: this.at + 1,
      ArrowUp: this.at - 1,
      PageDown: this.at + page,
      PageUp: this.at - page,
      Home: 0,
      End: this.total - 1,
      j: this.at + 1,
      k: this.at - 1,
    }[event.key];
    if (to === undefined || this.total === 0) return;
    event.preventDefault();
    this.choose(Math.min(this.total - 1, Math.max(0, to)));
  }

  /** Chooses a row, and brings it into view. */
  async choose(at) {
    this.at = at;
    this.show(at);
    this.element.setAttribute("aria-activedescendant", `row-${at}`);
    await this.ask(Math.floor(at / PART));
    const row = this.row(at);
    if (row && this.at === at) this.chosen(row, at);
  }

  show(at) {
    const top = this.top();
    const [from, to] = [at * this.height, (at + 1) * this.height];
    const scale = (wanted) => {
      const most = this.pixels - this.element.clientHeight;
      const all = this.total * this.height - this.element.clientHeight;
      return all <= most || all <= 0 ? wanted : (wanted / all) * most;
    };
    if (from < top) this.element.scrollTop = scale(from);
    else if (to > top + this.element.clientHeight) this.element.scrollTop = scale(to - this.element.clientHeight);
    this.soon();
  }
}
