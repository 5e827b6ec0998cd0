// Paints what a player sends (lockstep/reporting/drawing) on a canvas, at any size and pixel density.
// All texts come from run files: they are only ever drawn, never put into the page as markup.

const FONT = "system-ui, sans-serif";
const LINES = [[96, 165, 250], [248, 113, 113], [74, 222, 128], [251, 146, 60], [192, 132, 252]];
const GROUND = [16, 18, 24];
const CELL = [30, 34, 44];
const GREEN = [74, 190, 110];
const BLUE = [90, 130, 190];

const rgb = (colour, alpha = 1) => `rgb(${colour.join(" ")} / ${alpha})`;

/** Height in CSS pixels of a drawing that is painted at this width. */
export function heightOf(drawing, width) {
  if (drawing.kind === "board") {
    return (width * drawing.height) / drawing.width + legendHeight(drawing);
  }
  if (drawing.kind === "picture") return (width * drawing.height) / drawing.width;
  if (drawing.kind === "charts") return drawing.charts.length * Math.max(170, Math.min(240, width * 0.38));
  if (drawing.kind === "bars") return 62 + 30 * drawing.names.length;
  return 40;
}

/** Paint a drawing; `ink`: the page's text colour as [red, green, blue]; `image`: the decoded picture, if it is one. */
export function paint(canvas, drawing, width, ink, image) {
  const height = heightOf(drawing, width);
  const density = window.devicePixelRatio || 1;
  const size = [Math.round(width * density), Math.round(height * density)];
  // Setting the size clears the canvas and is slow, so only when it changes.
  if (canvas.width !== size[0] || canvas.height !== size[1]) {
    [canvas.width, canvas.height] = size;
    canvas.style.height = `${height}px`;
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(density, 0, 0, density, 0, 0);
  pen.clearRect(0, 0, width, height);
  const painters = { board: paintBoard, charts: paintCharts, bars: paintBars, picture: paintPicture };
  painters[drawing.kind]?.(pen, drawing, width, height, ink, image);
}

function paintPicture(pen, drawing, width, height, ink, image) {
  if (image) pen.drawImage(image, 0, 0, width, height);
}

const legendHeight = (drawing) => (drawing.teams.length ? 28 : 0);

function paintBoard(pen, drawing, width, height, ink) {
  const top = legendHeight(drawing);
  const cell = width / drawing.width;
  if (top) paintTeams(pen, drawing.teams, width, top, ink);
  pen.fillStyle = rgb(GROUND);
  pen.beginPath();
  pen.roundRect(0, top, width, height - top, 6);
  pen.fill();
  const at = (place) => [(place % drawing.width) * cell, top + Math.floor(place / drawing.width) * cell];
  pen.fillStyle = rgb(CELL);
  for (let place = 0; place < drawing.width * drawing.height; place++) {
    const [x, y] = at(place);
    pen.fillRect(x + cell / 32, y + cell / 32, cell * (15 / 16), cell * (15 / 16));
  }
  pen.fillStyle = rgb(drawing.food_colour);
  for (const place of drawing.food) {
    const [x, y] = at(place);
    pen.beginPath();
    pen.arc(x + cell / 2, y + cell / 2, cell * 0.26, 0, 2 * Math.PI);
    pen.fill();
  }
  for (const snake of drawing.snakes) paintSnake(pen, snake, at, cell, drawing.width);
}

/** A snake as one band with round corners; a board may be a torus, where it leaves on one side and returns on the other. */
function paintSnake(pen, snake, at, cell, columns) {
  const middle = (place) => at(place).map((edge) => edge + cell / 2);
  const touch = (one, other) =>
    Math.abs((one % columns) - (other % columns)) +
      Math.abs(Math.floor(one / columns) - Math.floor(other / columns)) === 1;
  pen.lineWidth = cell * 0.68;
  pen.lineCap = pen.lineJoin = "round";
  pen.strokeStyle = rgb(snake.body);
  pen.beginPath();
  snake.cells.forEach((place, number) => {
    const connected = number > 0 && touch(place, snake.cells[number - 1]);
    if (connected) pen.lineTo(...middle(place));
    else {
      pen.moveTo(...middle(place));
      // A cell on its own is a dot: a line without length has no cap in some browsers.
      pen.lineTo(middle(place)[0] + 0.01, middle(place)[1]);
    }
  });
  pen.stroke();
  if (!snake.cells.length) return;
  pen.fillStyle = rgb(snake.head);
  pen.beginPath();
  pen.arc(...middle(snake.cells[0]), cell * 0.34, 0, 2 * Math.PI);
  pen.fill();
}

function paintTeams(pen, teams, width, height, ink) {
  let x = 2;
  pen.textBaseline = "middle";
  pen.textAlign = "left";
  for (const size of [14, 12, 10, 9]) {
    pen.font = `600 ${size}px ${FONT}`;
    const needed = teams.reduce((sum, team) => sum + pen.measureText(team.name).width + 15 * team.colours.length + 24, 0);
    if (needed <= width) break;
  }
  for (const team of teams) {
    for (const colour of team.colours) {
      pen.fillStyle = rgb(colour);
      pen.beginPath();
      pen.roundRect(x, height / 2 - 6, 12, 12, 3);
      pen.fill();
      x += 15;
    }
    pen.fillStyle = rgb(ink);
    pen.fillText(team.name, x + 4, height / 2 + 1);
    x += pen.measureText(team.name).width + 24;
  }
}

function paintCharts(pen, drawing, width, height, ink) {
  const each = height / drawing.charts.length;
  drawing.charts.forEach((chart, number) => paintChart(pen, chart, width, number * each, each, ink));
}

function paintChart(pen, chart, width, top, height, ink) {
  const [left, right, above, below] = [64, 12, 30, 26];
  const values = chart.lines.flatMap((line) => line.values);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const margin = (high - low) * 0.04 || Math.max(Math.abs(high), 1) * 0.05;
  const ticks = roundTicks(low - margin, high + margin, (height - above - below) / 40, true);
  const [bottom, ceiling] = [ticks[0], ticks[ticks.length - 1]];
  const x = (day) => left + (day / chart.days) * (width - left - right);
  const y = (value) => top + height - below - ((value - bottom) / (ceiling - bottom)) * (height - above - below);
  pen.font = `12px ${FONT}`;
  pen.textBaseline = "middle";
  pen.lineWidth = 1;
  for (const tick of ticks) {
    pen.strokeStyle = rgb(ink, 0.14);
    pen.beginPath();
    pen.moveTo(left, y(tick));
    pen.lineTo(width - right, y(tick));
    pen.stroke();
    pen.fillStyle = rgb(ink, 0.65);
    pen.textAlign = "right";
    pen.fillText(written(tick, ticks[1] - ticks[0]), left - 8, y(tick));
  }
  pen.textAlign = "center";
  for (const day of roundTicks(0, chart.days, (width - left - right) / 90, false, true)) {
    pen.fillText(written(day, 1), x(day), top + height - below + 14);
  }
  chart.lines.forEach((line, number) => {
    pen.strokeStyle = rgb(LINES[number % LINES.length]);
    pen.lineWidth = 2;
    pen.lineJoin = "round";
    pen.beginPath();
    line.values.forEach((value, day) => pen.lineTo(x(day), y(value)));
    pen.stroke();
  });
  const line = chart.lines[0].values;
  let edge = width - right;
  for (const marks of [...chart.marks].reverse()) {
    for (const day of marks.days) triangle(pen, x(day), y(line[day]), 5, marks);
    pen.fillStyle = rgb(ink, 0.8);
    pen.textAlign = "right";
    pen.fillText(marks.name, edge, top + 15);
    edge -= pen.measureText(marks.name).width + 10;
    triangle(pen, edge, top + 15 + (marks.up ? -10 : 10), 5, marks);
    edge -= 16;
  }
  pen.fillStyle = rgb(ink);
  pen.textAlign = "left";
  pen.font = `600 13px ${FONT}`;
  pen.fillText(chart.title, left, top + 15, edge - left);
}

function triangle(pen, x, y, size, marks) {
  const side = marks.up ? 1 : -1;
  pen.fillStyle = rgb(marks.colour);
  pen.beginPath();
  pen.moveTo(x, y + side * size);
  pen.lineTo(x - size, y + side * 2.8 * size);
  pen.lineTo(x + size, y + side * 2.8 * size);
  pen.fill();
}

function paintBars(pen, drawing, width, height, ink) {
  pen.textAlign = "left";
  pen.textBaseline = "middle";
  drawing.lines.forEach((line, number) => {
    pen.font = `${number ? "" : "600 "}14px ${FONT}`;
    pen.fillStyle = rgb(ink, number ? 0.7 : 1);
    pen.fillText(line, 0, 12 + 22 * number, width);
  });
  const [left, longest] = [72, width - 72 - 110];
  drawing.names.forEach((name, number) => {
    const [top, was] = [58 + 30 * number, number === drawing.actual];
    const share = drawing.shares ? drawing.shares[number] : 0;
    pen.font = `${was ? "600 " : ""}14px ${FONT}`;
    pen.fillStyle = was ? rgb(GREEN) : rgb(ink, 0.7);
    pen.fillText(name, 0, top + 10);
    if (drawing.shares) {
      pen.fillStyle = rgb(was ? GREEN : BLUE);
      pen.fillRect(left, top, Math.max(longest * share, 1), 20);
    }
    const label = (drawing.shares ? `${(100 * share).toFixed(1)}%` : "") + (was ? "  actual" : "");
    pen.fillStyle = was ? rgb(GREEN) : rgb(ink, 0.7);
    pen.fillText(label, left + longest * share + 8, top + 10);
  });
  if (!drawing.shares) {
    pen.fillStyle = rgb(ink, 0.7);
    pen.font = `14px ${FONT}`;
    const lines = inLines(pen, drawing.note, width - left - 70);
    const first = 58 + 15 * drawing.names.length - 10 * (lines.length - 1);
    lines.forEach((line, number) => pen.fillText(line, left + 70, first + 20 * number));
  }
}

/** A text in lines of at most this width, broken between words. */
function inLines(pen, text, width) {
  const lines = [];
  for (const word of text.split(" ")) {
    const longer = `${lines.at(-1)} ${word}`;
    if (lines.length && pen.measureText(longer).width <= width) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines;
}

/** Round numbers from low to high, as lockstep/reporting/drawing/chart.py chooses them. */
function roundTicks(low, high, about, outside = false, whole = false) {
  const rough = Math.max((high - low) / Math.max(about, 1), whole ? 1 : 0);
  const power = 10 ** Math.floor(Math.log10(rough));
  const steps = [1, 2, 2.5, 5, 10].map((factor) => factor * power).filter((step) => step >= rough * (1 - 1e-9));
  const step = steps.find((candidate) => !whole || Number.isInteger(candidate));
  const [down, up] = outside ? [Math.floor, Math.ceil] : [Math.ceil, Math.floor];
  const ticks = [];
  for (let number = down(low / step); number <= up(high / step); number++) ticks.push(number * step);
  return ticks;
}

function written(value, step) {
  const decimals = [0, 1, 2, 3, 4, 5, 6].find((places) => Math.abs(step * 10 ** places - Math.round(step * 10 ** places)) < 1e-6);
  return value.toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
}
