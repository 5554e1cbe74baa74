// An animated WebP from canvases (developers.google.com/speed/webp/docs/riff_container): each frame holds only what has
// changed since the one before, without loss.

const ascii = (text) => [...text].map((letter) => letter.charCodeAt(0));
const bytes = (number, count) => Array.from({ length: count }, (_, i) => (number >> (8 * i)) & 255);

function chunk(name, ...parts) {
  const body = new Blob(parts);
  return new Blob([new Uint8Array([...ascii(name), ...bytes(body.size, 4)]), body, new Uint8Array(body.size % 2)]);
}

// The box of the pixels that differ, at even places, as [x, y, width, height].
function changed(before, after) {
  const { width, height } = after, old = new Uint32Array(before.data.buffer), now = new Uint32Array(after.data.buffer);
  let [left, top, right, bottom] = [width, height, 0, 0];
  for (let i = 0; i < now.length; i++) {
    if (old[i] === now[i]) continue;
    const x = i % width, y = (i - x) / width;
    if (x < left) left = x;
    if (x >= right) right = x + 1;
    if (y < top) top = y;
    if (y >= bottom) bottom = y + 1;
  }
  if (right === 0) return [0, 0, 2, 2];
  left -= left % 2;
  top -= top % 2;
  return [left, top, right - left, bottom - top];
}

// The image data of a frame as the chunks of a still WebP.
async function still(frame, [x, y, width, height]) {
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  canvas.getContext("2d").putImageData(frame, -x, -y);
  const blob = await new Promise((done) => canvas.toBlob(done, "image/webp", 1));
  if (blob?.type !== "image/webp") throw new Error("This browser cannot write WebP; take the GIF.");
  const file = new Uint8Array(await blob.arrayBuffer()), parts = [];
  for (let at = 12; at < file.length;) {
    const size = new DataView(file.buffer).getUint32(at + 4, true), end = at + 8 + size + (size % 2);
    if (/^(ALPH|VP8 |VP8L)$/.test(String.fromCharCode(...file.slice(at, at + 4)))) parts.push(file.slice(at, end));
    at = end;
  }
  return parts;
}

// `frames` are image data of one size; `delay` tells the milliseconds of each.
export async function animated(frames, delay) {
  const { width, height } = frames[0], flags = 0x02; // an animation
  const parts = [
    chunk("VP8X", new Uint8Array([flags, 0, 0, 0, ...bytes(width - 1, 3), ...bytes(height - 1, 3)])),
    chunk("ANIM", new Uint8Array([255, 255, 255, 255, 0, 0]))];
  for (const [i, frame] of frames.entries()) {
    const box = i ? changed(frames[i - 1], frame) : [0, 0, width, height], [x, y, w, h] = box;
    const noBlend = 0x02;
    const head = [...bytes(x / 2, 3), ...bytes(y / 2, 3), ...bytes(w - 1, 3), ...bytes(h - 1, 3), ...bytes(delay(i), 3), noBlend];
    parts.push(chunk("ANMF", new Uint8Array(head), ...(await still(frame, box))));
  }
  return new Blob([chunk("RIFF", new Uint8Array(ascii("WEBP")), ...parts)], { type: "image/webp" });
}
