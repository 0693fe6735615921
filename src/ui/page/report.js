"use strict";
// A report: one run, from the data that stands in the file.
(function () {
  const got = JSON.parse(document.getElementById("data").textContent);
  new RunView(document.getElementById("main"), got.run.name).add(got);
  if (typeof Dygraph === "undefined") document.getElementById("main").append(make("p", {class: "soft"}, "This program was built without the library that draws curves."));
})();
