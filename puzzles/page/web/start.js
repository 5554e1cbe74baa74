// Starts the page where the browser can run it, and says in a sentence why not elsewhere. In old JavaScript, since it runs
// in every browser.

(function () {
  var main = document.getElementById("main");
  if (location.hash.length > 1) document.getElementById("welcome").hidden = true; // the address names another part of the page
  function say(words) {
    if (main.getAttribute("data-page")) return; // the page itself is there
    main.textContent = "";
    var place = document.createElement("p");
    place.className = "banner";
    place.setAttribute("role", "alert");
    place.appendChild(document.createTextNode(words));
    main.appendChild(place);
  }
  var OLD = "This browser is too old for the game, which runs Python in it. Use a Chrome, Edge, Firefox or Safari of the last two years.";
  var script = document.createElement("script");
  if (!("noModule" in script && window.WebAssembly && window.DecompressionStream && Object.hasOwn && [].findLastIndex)) return say(OLD);
  script.type = "module";
  script.src = "main.js";
  script.onerror = function () { say("The page could not be loaded completely. Check the connection, then reload it."); };
  window.addEventListener("error", function (event) {
    if (/main\.js/.test(event.filename)) say(event.error instanceof SyntaxError ? OLD : "The page could not be started: " + event.message + ". Reload it.");
  });
  var isBegun = false;
  function begin() {
    if (!isBegun) document.body.appendChild(script);
    isBegun = true;
  }

  // A newer version of the site takes over if this is the only page; then the page is loaded again, even if it has begun:
  // the browser may need longer than this waits, and the newer worker has no files of this version.
  function ask(newer) {
    var channel = new MessageChannel();
    channel.port1.onmessage = function (event) { if (!event.data.isAlone) begin(); };
    workers.addEventListener("controllerchange", function () { location.reload(); });
    newer.postMessage("", [channel.port2]);
    setTimeout(begin, 5000); // it may have ended without an answer
  }

  var workers = navigator.serviceWorker;
  if (!workers || !workers.controller) return begin();
  workers.getRegistration().then(function (found) { if (found && found.waiting) ask(found.waiting); else begin(); }, begin);
})();
