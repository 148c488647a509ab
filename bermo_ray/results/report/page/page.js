// Points tell of themselves at once. Without this script the browser shows their titles.
(function () {
  "use strict";
  var tooltip = document.getElementById("tooltip");
  var gap = 14;
  document.querySelectorAll("a.point > title").forEach(function (title) {
    title.parentNode.setAttribute("aria-label", title.textContent);
    title.remove(); // else it would be shown twice
  });
  function show(point, x, y) {
    tooltip.textContent = point.getAttribute("aria-label");
    tooltip.hidden = false;
    var size = tooltip.getBoundingClientRect();
    var left = x + gap + size.width > window.innerWidth ? x - gap - size.width : x + gap;
    var top = y + gap + size.height > window.innerHeight ? y - gap - size.height : y + gap;
    tooltip.style.left = Math.max(4, left) + "px";
    tooltip.style.top = Math.max(4, top) + "px";
  }
  function hide() { tooltip.hidden = true; }
  function pointOf(event) { return event.target.closest && event.target.closest("a.point"); }
  document.addEventListener("pointermove", function (event) {
    var point = pointOf(event);
    if (point) { show(point, event.clientX, event.clientY); } else if (!tooltip.hidden) { hide(); }
  });
  document.addEventListener("focusin", function (event) {
    var point = pointOf(event);
    if (!point) { return; }
    var box = point.getBoundingClientRect();
    show(point, box.right, box.bottom);
  });
  document.addEventListener("focusout", hide);
  document.addEventListener("scroll", hide, true);
  document.addEventListener("keydown", function (event) { if (event.key === "Escape") { hide(); } });
})();
