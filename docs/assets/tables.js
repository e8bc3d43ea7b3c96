// Tables that are wider than the page scroll; the keyboard has to reach them too.
document.addEventListener("DOMContentLoaded", () => {
  const reach = () => {
    for (const box of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset pre > code")) {
      if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    }
  };
  requestAnimationFrame(reach);
  addEventListener("resize", reach);
});
