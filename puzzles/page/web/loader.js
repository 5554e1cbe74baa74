// A worker that loads files of Python, so that the page is not busy with each piece that comes. It tells how many bytes have
// come, then the files by name: blobs, which are passed on without a copy.

onmessage = async ({ data: { files } }) => {
  let come = 0, told = 0;
  const progress = () => {
    if (performance.now() - told < 50) return;
    told = performance.now();
    postMessage({ come });
  };
  try {
    const found = await Promise.all(Object.entries(files).map(async ([name, { address, size }]) => {
      const answer = await fetch(address, { priority: "low" }), file = address.split("/").at(-1); // the page comes first
      if (!answer.ok) throw new Error(`${file}: ${answer.status}`);
      const pieces = [];
      let here = 0;
      for (const reader = answer.body.getReader(); ;) {
        const { done, value } = await reader.read();
        if (done) break;
        here += value.length;
        if (here > size) throw new Error(`${file} is not of this version of the site`);
        pieces.push(value);
        come += value.length;
        progress();
      }
      if (here !== size) throw new Error(`${file} came only in part`);
      return [name, new Blob(pieces)];
    }));
    postMessage({ found: Object.fromEntries(found) });
  } catch (why) {
    postMessage({ why: why.message });
  }
};
