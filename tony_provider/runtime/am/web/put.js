(() => {
  "use strict";
  // TensorBoard requests its curves by POST, which YARN's proxy rejects. So this script sends each POST as a PUT, and
  // the application master converts it back. The body is sent as JSON in ASCII, because the proxy drops forms, line
  // breaks and all other characters.
  const json = "application/json";
  const form = "application/x-www-form-urlencoded;charset=UTF-8";
  const plain = "text/plain;charset=UTF-8";
  const escaped = (letter) => "\\u" + letter.charCodeAt(0).toString(16).padStart(4, "0");
  const wrapped = (type, body) => JSON.stringify({type, body}).replace(/[\u007f-\uffff]/g, escaped);

  const {open, setRequestHeader, send} = XMLHttpRequest.prototype;
  const posts = new WeakMap(); // content type of each request
  XMLHttpRequest.prototype.open = function (method, ...rest) {
    posts.delete(this);
    if (String(method).toUpperCase() !== "POST") return open.call(this, method, ...rest);
    posts.set(this, "");
    return open.call(this, "PUT", ...rest);
  };
  XMLHttpRequest.prototype.setRequestHeader = function (name, value) {
    if (!posts.has(this) || String(name).toLowerCase() !== "content-type") return setRequestHeader.call(this, name, value);
    posts.set(this, value);
  };
  XMLHttpRequest.prototype.send = function (body) {
    if (!posts.has(this)) return send.call(this, body);
    const isForm = body instanceof FormData || body instanceof URLSearchParams;
    const text = isForm ? new URLSearchParams(body) : ArrayBuffer.isView(body) ? new TextDecoder().decode(body) : body ?? "";
    setRequestHeader.call(this, "Content-Type", json);
    return send.call(this, wrapped(isForm ? form : posts.get(this) || plain, String(text)));
  };

  const fetchAny = window.fetch;
  window.fetch = async (input, init) => {
    const method = init?.method ?? (input instanceof Request ? input.method : "GET");
    if (method.toUpperCase() !== "POST") return fetchAny(input, init);
    const request = new Request(input, init);
    const headers = new Headers(request.headers);
    headers.set("Content-Type", json);
    const body = wrapped(request.headers.get("Content-Type") ?? plain, await request.text());
    return fetchAny(request.url, {method: "PUT", headers, body, signal: request.signal});
  };
})();
