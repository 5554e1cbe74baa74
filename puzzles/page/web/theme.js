// Light or dark: as the system says, until the player chooses.

import { keepTheme, theme } from "./store.js";

const system = matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set();

export const isDark = () => (theme() ? theme() === "dark" : system.matches);
export const onTheme = (listener) => { listeners.add(listener); listener(isDark()); return () => listeners.delete(listener); };

export function apply() {
  document.documentElement.dataset.theme = isDark() ? "dark" : "light";
  for (const listener of listeners) listener(isDark());
}

export function toggle() {
  keepTheme(isDark() ? "light" : "dark");
  apply();
}

system.addEventListener("change", apply);
