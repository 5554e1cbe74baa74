// Pictures of a run to keep: a PNG, and a film in which the operations appear as time goes by, as WebP or as GIF.

import { applyPalette, GIFEncoder, quantize } from "gifenc";
import { animated } from "./webp.js";

const FRAMES = 60, SECONDS = 6, HOLD = 2000; // the last frame stays for so many milliseconds

export async function makePng(svg) {
  const image = new Image();
  image.src = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
  await image.decode();
  const canvas = Object.assign(document.createElement("canvas"), { width: 2 * image.width, height: 2 * image.height });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(image.src);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

const delay = (i) => (i === FRAMES - 1 ? HOLD : (SECONDS * 1000) / FRAMES);

export const makeWebp = (picture) => animated(picture.frames(FRAMES), delay);

// All frames have the palette of the last one, which shows everything.
export async function makeMovie(picture) {
  const frames = picture.frames(FRAMES);
  const { width, height } = frames[0];
  const palette = quantize(frames.at(-1).data, 256);
  const gif = GIFEncoder();
  for (const [i, frame] of frames.entries()) {
    gif.writeFrame(applyPalette(frame.data, palette), width, height, { palette: i ? undefined : palette, delay: delay(i) });
    if (i % 10 === 0) await new Promise((done) => setTimeout(done)); // the page stays alive
  }
  gif.finish();
  return new Blob([gif.bytes()], { type: "image/gif" });
}
