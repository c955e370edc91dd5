// What is in the database, as a list.
const place = (id) => document.getElementById(id);

function token() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    sessionStorage.setItem("telem-token", given);
    history.replaceState(null, "", location.pathname + location.search);
  }
  return given ?? sessionStorage.getItem("telem-token");
}

async function show() {
  const shown = token();
  const headers = shown ? { Authorization: `Bearer ${shown}` } : {};
  const answer = await fetch("api/page", { headers });
  const body = await answer.json();
  if (!answer.ok) {
    place("state").textContent = body.error.message;
    return;
  }
  place("state").textContent = `telem ${body.version}, node ${body.node}, ${body.live ? "live" : "saved"}`;
  for (const metric of body.metrics) {
    const line = document.createElement("li");
    line.textContent = `${metric.name}: ${metric.series} series`;
    place("metrics").append(line);
  }
}

show().catch((error) => {
  place("state").textContent = `${error}`;
});
