"use strict";
/* What a page can't do without a script: upload in pieces, keep a long sheet light, jump from one mistake to the next. */

document.documentElement.classList.add("scripted");
for (const one of document.querySelectorAll(".with-script")) one.hidden = false;
for (const one of document.querySelectorAll(".without-script")) one.hidden = true;

/* Times in the zone of whoever reads, named; the title has them in UTC. */
const shown = { year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZoneName: "short" };
for (const one of document.querySelectorAll("time[datetime]"))
  one.textContent = new Date(one.dateTime).toLocaleString("en-US", { ...shown, second: "seconds" in one.dataset ? "2-digit" : undefined });

for (const one of document.querySelectorAll("[name=zone]")) one.value = Intl.DateTimeFormat().resolvedOptions().timeZone;

/* What only pages of this address know, beside the session's cookie, which browsers send to every port of this machine. */
let own = "";
try { own = localStorage.page ||= [...crypto.getRandomValues(new Uint8Array(32))].map(one => one.toString(16).padStart(2, "0")).join(""); } catch { /* no storage: the cookie alone */ }
document.addEventListener("formdata", event => { if (own && event.target.method === "post") event.formData.set("page", own); });

/* Upload. Each piece is sealed as it arrives; after a lost answer the server says which piece is next. */
function upload(place) {
  const going = place.querySelector(".going"), told = place.querySelector(".said");
  const bar = going.querySelector("progress"), say = going.querySelector("output");
  const megabytes = bytes => (bytes / 1e6).toFixed(1);
  const wait = ms => new Promise(done => setTimeout(done, ms));
  const headers = { Accept: "application/json", "X-Batchpay-Page": own };
  /* What the server says of a refusal, in its own words; nothing of what stands between it and the browser. */
  const said = async answer => answer.headers.get("Content-Type")?.startsWith("text/plain") ? (await answer.text()).replace(/\.?$/, ".") : "";
  const send = async (url, body) => {
    for (let pause = 400; ; pause = Math.min(2 * pause, 15000)) {
      let why = "";
      try {
        const answer = await fetch(url, { method: "PUT", body, headers });
        if (answer.ok) return (await answer.json()).next;
        why = await said(answer);
        if (answer.status < 500) throw new RangeError(why);
      } catch (error) { if (error instanceof RangeError) throw error; }
      say.textContent = `${why || "The connection was lost."} Trying again.`;
      await wait(pause);
    }
  };
  const fail = sentence => { told.textContent = sentence; told.hidden = false; going.hidden = true; };
  /* Gives what the server calls the file and where to go, or nothing and says why. */
  const all = async (file, about) => {
    told.hidden = true; going.hidden = false; bar.value = 0; say.textContent = file.name;
    try {
      const begun = await fetch(place.dataset.to, { method: "POST", body: new URLSearchParams({ ...about, name: file.name, size: file.size }), headers });
      if (begun.status === 400) throw new RangeError(`The file was not accepted: ${(await begun.json()).error}.`);
      if (!begun.ok) throw new RangeError(await said(begun) || "The file could not be accepted. Nothing was kept.");
      const { id, piece, pieces, to } = await begun.json();
      for (let number = 0; number * piece < file.size;) {
        const content = await file.slice(number * piece, (number + 1) * piece).arrayBuffer();
        number = await send(pieces + number, content);
        bar.value = Math.min(1, number * piece / file.size);
        say.textContent = `${file.name}: ${megabytes(Math.min(file.size, number * piece))} of ${megabytes(file.size)} MB`;
      }
      return { id, to };
    } catch (error) {
      if (error instanceof DOMException) fail("The file was changed or moved while it was read. Nothing was sent; choose it again.");
      else fail(error instanceof RangeError && error.message || "The upload failed. Nothing was sent; try again.");
      return null;
    }
  };
  return { all, fail };
}

/* A payment file is dropped or chosen, and uploaded at once. */
function uploads(drop) {
  const form = drop.querySelector("form"), picked = form.elements.file, { all, fail } = upload(drop);
  let busy = false;
  const take = async file => {
    if (busy) { const told = drop.querySelector(".said"); told.textContent = "One file at a time: this one is not uploaded yet."; told.hidden = false; }
    if (busy || !file) return;
    busy = true;
    const about = {};
    for (const name of ["before", "expect_rows", "expect_total"]) if (form.elements[name]?.value) about[name] = form.elements[name].value;
    const done = await all(file, about);
    if (done) location.assign(done.to);
    else { busy = false; picked.value = ""; }
  };
  picked.addEventListener("change", () => take(picked.files[0]));
  form.addEventListener("submit", event => { event.preventDefault(); take(picked.files[0]); });
  for (const kind of ["dragenter", "dragover"]) addEventListener(kind, event => { event.preventDefault(); drop.classList.add("over"); });
  addEventListener("dragleave", event => { if (!event.relatedTarget) drop.classList.remove("over"); });
  addEventListener("drop", event => { event.preventDefault(); drop.classList.remove("over");
    const { files } = event.dataTransfer;
    if (files.length > 1 && !busy) fail("One file at a time. Nothing was uploaded.");
    else take(files[0]);
  });
}

/* An export of the bank is uploaded in pieces when its form is sent, and the form then names it. */
function exports(form) {
  const { all } = upload(form), { upload: id, export: picked } = form.elements;
  form.addEventListener("submit", async event => {
    if (id.value) return;
    event.preventDefault();
    if (form.dataset.busy || !picked.files[0]) return;
    form.dataset.busy = "1";
    const done = await all(picked.files[0], {});
    delete form.dataset.busy;
    if (!done) return;
    id.value = done.id; picked.disabled = true;
    form.requestSubmit();
  });
}

/* The sheet: a hundred rows at a time, fetched when they are near and dropped when they are far. */
function sheets(sheet) {
  const ROW = 44, STEP = 10, { rows, block, count, columns } = sheet.dataset, bodies = [...sheet.querySelectorAll("tbody")];
  const heightOf = at => ROW * Math.min(block, count - at * block);
  const letGo = (body, height) => {
    const cell = document.createElement("td"), row = document.createElement("tr");
    cell.colSpan = columns; row.className = "hole"; row.append(cell); row.style.height = `${height}px`;
    body.replaceChildren(row); delete body.dataset.here;
  };
  const fetchRows = async body => {
    if ("here" in body.dataset || body.dataset.asked) return;
    body.dataset.asked = "1";
    const url = new URL(rows, location.href);
    url.searchParams.set("from", body.dataset.from);
    const answer = await fetch(url).catch(() => null);
    if (answer?.ok && !answer.redirected) await fill(body, await answer.text());
    else if (answer?.redirected) location.reload();
    delete body.dataset.asked;
  };
  /* A few rows per frame, so that scrolling never waits for a hundred; the gap below them shrinks as they come. Each time
     just before the frame is drawn: what came between a scroll and its frame was laid out twice. */
  const fill = async (body, text) => {
    const parsed = document.createElement("template"), hole = body.rows[0];
    parsed.innerHTML = text;
    for (const rows = [...parsed.content.children]; rows.length;) {
      await new Promise(requestAnimationFrame);
      if (!body.dataset.near) return letGo(body, heightOf(bodies.indexOf(body)));
      hole.before(...rows.splice(0, STEP));
      hole.style.height = `${ROW * rows.length}px`;
    }
    hole.remove(); body.dataset.here = "";
  };
  /* Columns keep the width that the first rows gave them: a new block lays out only itself. */
  const table = sheet.querySelector("table"), heads = [...table.tHead.rows[0].cells];
  const fix = () => {
    for (const one of [table, ...heads]) one.style.width = "";
    table.style.tableLayout = "auto";
    const widths = heads.map(head => Math.ceil(head.getBoundingClientRect().width) + 1);
    heads.forEach((head, at) => { head.style.width = `${widths[at]}px`; });
    table.style.width = `${widths.reduce((sum, width) => sum + width, 0)}px`;
    table.style.tableLayout = "fixed";
  };
  fix();
  addEventListener("resize", fix);
  /* Sticky cells cost a third of every frame: they are sticky only when scrolled to the side. */
  const level = () => sheet.classList.toggle("level", !sheet.scrollLeft);
  level();
  sheet.addEventListener("scroll", level, { passive: true });
  bodies.forEach((body, at) => { if (!("here" in body.dataset)) letGo(body, heightOf(at)); });
  const watch = new IntersectionObserver(seen => {
    for (const { target, isIntersecting } of seen) {
      if (isIntersecting) { target.dataset.near = "1"; fetchRows(target); }
      else { delete target.dataset.near; if ("here" in target.dataset) letGo(target, target.offsetHeight); }
    }
  }, { root: sheet, rootMargin: "1200px 0px" });
  bodies.forEach(body => watch.observe(body));

  /* With many columns the first wrong cell is off to the side: it is brought beside what is wrong, where that stays. */
  const why = heads.find(head => head.className === "why"), first = sheet.querySelector("td.error");
  if (first && why && getComputedStyle(why).position === "sticky" && first.offsetLeft + first.offsetWidth > sheet.clientWidth)
    sheet.scrollLeft = first.offsetLeft - heads[0].offsetWidth - why.offsetWidth - 16;

  /* A cell that is cut short is read whole when it has the focus. */
  sheet.addEventListener("click", event => {
    const cell = event.target.closest("th, td");
    if (cell) { cell.tabIndex = -1; cell.focus({ preventScroll: true }); }
  });

  let current = null;
  const jump = async forward => {
    const found = () => [...sheet.querySelectorAll("td.error, tr:not(:has(td.error)) > td.why")];
    let cells = found(), at = current?.isConnected ? cells.indexOf(current) + (forward ? 1 : -1) : 0;
    if (at >= cells.length) {
      const next = bodies.find(body => !("here" in body.dataset) && body.offsetTop >= sheet.scrollTop);
      if (!next) return;
      next.dataset.near = "1"; await fetchRows(next);
      cells = found(); at = cells.indexOf(current) + 1;
    }
    if (!cells[at]) return;
    const why = cell => cell?.closest("tr").querySelector(".why")?.classList;
    current?.classList.remove("here"); why(current)?.remove("open");
    current = cells[at]; current.classList.add("here"); why(current)?.add("open");
    current.scrollIntoView({ block: "center", inline: "center" });
  };
  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
    if (event.key === "n" || event.key === "p") jump(event.key === "n");
  });
}

/* A form is sent once, however often its button is pressed, and only while somebody is signed in: what was filled in
   stays otherwise, and another tab can sign in. The page to sign in leads on whoever is. */
document.addEventListener("submit", async event => {
  const form = event.target, { sent } = form.dataset;
  if (event.defaultPrevented || form.method === "get" || form.matches(".door, .who")) return;
  if (sent === "go") { form.dataset.sent = "1"; return; }
  event.preventDefault();
  if (sent) return;
  form.dataset.sent = "asked";
  form.querySelector(".stays")?.remove();
  const answer = await fetch("/sign-in", { method: "HEAD", redirect: "manual" }).catch(() => null);
  if (answer?.type === "opaqueredirect" || answer && !answer.ok) {
    form.dataset.sent = "go";
    form.requestSubmit(event.submitter);
    return;
  }
  delete form.dataset.sent;
  const why = document.createElement("p"), link = document.createElement("a");
  why.className = "said bad stays"; why.role = "alert";
  why.textContent = `${answer ? "You are signed out." : "batchpay can’t be reached at the moment."} Nothing was done, and what you filled in stays here. `;
  link.href = "/sign-in"; link.target = "_blank"; link.textContent = "Sign in in another tab";
  if (answer) why.append(link, ", then press the button again.");
  form.prepend(why);
});
addEventListener("pageshow", event => {
  if (event.persisted) location.reload();
  for (const form of document.forms) delete form.dataset.sent;
});

/* Nobody sees old numbers unknowingly: whatever polls by itself says when it gets no answer. */
const lost = document.createElement("p");
lost.className = "said bad"; lost.role = "status";
lost.textContent = "batchpay can’t be reached at the moment. What is under way goes on; this page tries again.";
for (const kind of ["htmx:sendError", "htmx:responseError"]) document.addEventListener(kind, () => document.getElementById("main").prepend(lost));
document.addEventListener("htmx:afterSwap", () => lost.remove());

/* A link to enroll by: its token stands behind the #, which no server and no log is sent, and leaves the address at once. */
const link = document.getElementById("link");
if (link && location.hash.length > 1) {
  link.elements.token.value = location.hash.slice(1);
  history.replaceState(null, "", location.pathname);
  link.submit();
}

const bank = document.getElementById("export"), drop = document.getElementById("drop"), sheet = document.getElementById("sheet");
if (bank) exports(bank);
if (drop) uploads(drop);
if (sheet) sheets(sheet);
