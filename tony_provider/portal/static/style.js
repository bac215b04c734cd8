// The style sheets of the pages, loaded once, before the first page is shown.

const load = (file) =>
  new Promise((resolve, reject) => {
    const sheet = Object.assign(document.createElement("link"), { rel: "stylesheet" });
    sheet.href = new URL(file, import.meta.url).href;
    sheet.onload = resolve;
    sheet.onerror = () => reject(new Error(`${sheet.href} cannot be loaded`));
    document.head.append(sheet);
  });

export const loaded = Promise.all([load("vendor/uPlot.css"), load("portal.css")]);
