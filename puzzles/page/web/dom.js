// Elements in one expression: h("p", { class: "note" }, "text", other).

export function h(tag, given = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (name === "html") element.innerHTML = value; // only what our own builder wrote
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child != null && child !== false));
  return element;
}

export const button = (words, onclick, given = {}) => h("button", { type: "button", onclick, ...given }, words);

// The address of a picture, for an image: nothing in it can run.
export const svgAddress = (svg) => `data:image/svg+xml,${encodeURIComponent(svg)}`;

// Offers a file to save.
export function save(name, blob) {
  const link = h("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

// A sentence that goes away by itself, and that screen readers say.
export function tell(words) {
  const place = document.getElementById("toast");
  place.textContent = words;
  place.classList.add("shown");
  clearTimeout(tell.timer);
  tell.timer = setTimeout(() => place.classList.remove("shown"), 6000);
}

// After the page was next drawn, or soon where nothing draws, as in a tab in the background.
export const painted = () => new Promise((done) => {
  requestAnimationFrame(() => setTimeout(done));
  setTimeout(done, 400);
});

// Once an element is in the window.
export const seen = (element) => new Promise((done) => {
  const observer = new IntersectionObserver((found) => {
    if (!found.some((one) => one.isIntersecting)) return;
    observer.disconnect();
    done();
  }, { rootMargin: "200px" });
  observer.observe(element);
});
