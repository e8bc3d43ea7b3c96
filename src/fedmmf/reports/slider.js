// Moves the markers of the trade-off's curves. Without it the page shows the point of the run.
"use strict";
{
  const slider = document.getElementById("threshold");
  if (slider) {
    const points = JSON.parse(document.getElementById("threshold-points").textContent);
    const words = document.getElementById("threshold-words");
    const charts = document.getElementById("threshold-charts");
    const markers = charts.querySelectorAll(".marker");
    const dots = charts.querySelectorAll(".dot");

    const show = () => {
      const point = points[Number(slider.value)];
      point.dots.forEach(([x, y], chart) => {
        markers[chart].setAttribute("transform", `translate(${x} 0)`);
        dots[chart].classList.toggle("absent", y === null);
        dots[chart].setAttribute("cx", x);
        dots[chart].setAttribute("cy", y ?? 0);
      });
      slider.setAttribute("aria-valuetext", point.value);
      words.textContent = point.words;
    };

    slider.addEventListener("input", show);
    slider.parentElement.hidden = false;
    show(); // a browser may have kept the slider's place over a reload
  }
}
