// SPDX-License-Identifier: Apache-2.0
// The token of this tab, and what is asked with it. It is in a header and in the storage of the tab for this origin,
// port included: a cookie would go to the servers of all ports of 127.0.0.1.

const STORED = "aliquot-token";
const token = takeToken();

function takeToken() {
    const given = new URLSearchParams(location.search).get("token");
    if (location.search)
        history.replaceState(null, "", location.pathname + location.hash);
    try {
        if (given)
            sessionStorage.setItem(STORED, given);
        return sessionStorage.getItem(STORED);
    } catch {
        return given;       // until the page is loaded again, then
    }
}

const request = (path, signal) => fetch(path, {headers: {"X-Aliquot-Token": token}, signal});

async function eachLines(body, onLines) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
        const lines = (rest + part.value).split("\n");
        rest = lines.pop();
        onLines(lines.filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)));
    }
}

// Data of server-sent events until their end, which is returned: "lost", "tooMany", "refused" or "noToken".
export async function listen(path, signal, onOpen, onLines) {
    if (!token)
        return "noToken";
    try {
        const answer = await request(path, signal);
        if (answer.status === 401 || answer.status === 403)
            return "refused";
        if (!answer.ok)
            return answer.status === 503 ? "tooMany" : "lost";
        onOpen();
        await eachLines(answer.body, onLines);
    } catch {
        // it is lost like one that ends
    }
    return "lost";
}

// {data} or {error}.
export async function ask(path, parameters) {
    try {
        const answer = await request(path + "?" + new URLSearchParams(parameters));
        if (!answer.ok)
            return {error: await answer.text()};
        return {data: await answer.json()};
    } catch (error) {
        return {error: String(error.message ?? error)};
    }
}
