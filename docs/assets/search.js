// Search without a server: the index is a script beside the pages, so it works from a folder too.
// A page's score is how many of the words it has, those in titles counted more.
(function () {
  "use strict";
  var input = document.getElementById("dptune-search");
  var list = document.getElementById("dptune-found");
  var said = document.getElementById("dptune-count");
  if (!input || !window.dptuneIndex) return;

  function words(text) {
    return text.toLowerCase().split(/[^a-z0-9_.]+/).filter(Boolean);
  }

  function score(entry, asked) {
    var title = entry.title.toLowerCase();
    var text = entry.text.toLowerCase();
    var total = 0;
    for (var i = 0; i < asked.length; i++) {
      var inTitle = title.indexOf(asked[i]) >= 0;
      var inText = text.indexOf(asked[i]) >= 0;
      if (!inTitle && !inText) return 0;
      total += (inTitle ? 10 : 0) + (inText ? 1 : 0);
    }
    return total;
  }

  function excerpt(text, word) {
    var at = Math.max(0, text.toLowerCase().indexOf(word) - 60);
    return (at > 0 ? "... " : "") + text.slice(at, at + 180) + (at + 180 < text.length ? " ..." : "");
  }

  function show() {
    var asked = words(input.value);
    list.textContent = "";
    said.textContent = "";
    if (!asked.length) return;
    var found = window.dptuneIndex
      .map(function (entry) { return { entry: entry, score: score(entry, asked) }; })
      .filter(function (one) { return one.score > 0; })
      .sort(function (a, b) { return b.score - a.score; });
    said.textContent = found.length + (found.length === 1 ? " place" : " places");
    found.slice(0, 30).forEach(function (one) {
      var item = document.createElement("li");
      var link = document.createElement("a");
      link.href = one.entry.location;
      link.textContent = one.entry.title || one.entry.location;
      var text = document.createElement("div");
      text.textContent = excerpt(one.entry.text, asked[0]);
      item.appendChild(link);
      item.appendChild(text);
      list.appendChild(item);
    });
  }

  input.addEventListener("input", show);
  input.value = new URLSearchParams(window.location.search).get("q") || "";
  input.focus();
  show();
})();
