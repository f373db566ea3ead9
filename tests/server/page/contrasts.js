// Of every visible text: its contrast with what is behind it, and the least that it may have. Colours are read through a
// canvas, as styles may name them in any space.
() => {
  const canvas = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
  const read = color => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].map(part => part / 255);
  };
  const over = (top, below) => [0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const ground = node =>
    node === null ? [1, 1, 1, 1] : over(read(getComputedStyle(node).backgroundColor), ground(node.parentElement));
  const light = color => {
    const [r, g, b] = color.map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !node.checkVisibility() || node.closest('.for-readers, .skip')) continue;
    const style = getComputedStyle(node), behind = ground(node);
    const [a, b] = [light(over(read(style.color), behind)), light(behind)];
    const size = parseFloat(style.fontSize);
    found.push({
      text: walker.currentNode.data.trim().slice(0, 40),
      ratio: (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05),
      least: size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5,
    });
  }
  return found;
}
