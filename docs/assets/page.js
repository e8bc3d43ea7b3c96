// What the theme leaves out for those who do not use a mouse, or do not see the page.
document.addEventListener("DOMContentLoaded", () => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  const reach = new ResizeObserver(seen => {
    for (const { target } of seen) {
      if (target.scrollWidth > target.clientWidth) target.tabIndex = 0;
    }
  });
  requestAnimationFrame(() => {
    const scrolling = ".md-typeset__scrollwrap, .md-typeset pre > code";
    for (const box of document.querySelectorAll(scrolling)) reach.observe(box);
  });
});
