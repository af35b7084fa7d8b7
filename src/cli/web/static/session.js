// SPDX-License-Identifier: Apache-2.0
// The token of this tab, and what is asked with it. It is in a header and in the storage of the tab for this origin,
// port included: a cookie would go to the servers of all ports of 127.0.0.1. On a user's machine the page gets it for
// the code in the address, which is good once. In a cluster it is one of Kubernetes, which is given in a form.

const STORED = "aliquot-token", NAMESPACE = "aliquot-namespace", SHOWN = "aliquot-shown";
const TABS_MS = 500, AGAIN_MS = 1000;
const code = takeCode();
let isUsed = false;     // the code
export const inCluster = await isInCluster();
const tabs = inCluster ? null : new BroadcastChannel("aliquot");
// Whether another program can have the port as soon as the server is gone, as behind `kubectl port-forward`: a token of
// Kubernetes is sent again only when the viewer says so.
export const isForwarded = inCluster && location.protocol === "http:" && /^(localhost|127\.[\d.]+|\[::1\])$/.test(location.hostname);
let hasEnded = false;   // the connection, there
let token = await takeToken(), namespace = load(NAMESPACE);
tabs?.addEventListener("message", ({data}) => !data && token && tabs.postMessage(token));

// Before anything else is done.
function takeCode() {
    const given = new URLSearchParams(location.search).get("code");
    if (location.search)
        history.replaceState(null, "", location.pathname + location.hash);
    return given;
}

// There is no guess: a page that takes a cluster for its user's machine would hand a token of Kubernetes to other tabs.
async function isInCluster() {
    for (;;) {
        try {
            const {kubernetes} = await (await fetch("/api/mode")).json();
            if (typeof kubernetes === "boolean")
                return kubernetes;
        } catch {
            // it is asked again
        }
        await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    }
}

function load(key) {
    try {
        return sessionStorage.getItem(key);
    } catch {
        return null;
    }
}

// What cannot be stored is known until the page is loaded again.
function store(key, value) {
    try {
        if (value)
            sessionStorage.setItem(key, value);
        else
            sessionStorage.removeItem(key);
    } catch {
        // nothing is stored
    }
}

async function exchange() {
    try {
        const answer = await fetch("/api/token", {headers: {"X-Aliquot-Code": code}});
        return answer.ok ? (await answer.json()).token : null;
    } catch {
        return null;
    }
}

async function takeToken() {
    const given = code && !inCluster ? await exchange() : null;
    isUsed = Boolean(code) && !given;
    if (given)
        store(STORED, given);
    return given ?? load(STORED);
}

// Of another tab; null: none has it.
function askTabs() {
    return new Promise((resolve) => {
        tabs.addEventListener("message", ({data}) => data && resolve(data), {signal: AbortSignal.timeout(TABS_MS)});
        tabs.postMessage(null);
        setTimeout(resolve, TABS_MS, null);
    });
}

export const isSignedIn = () => Boolean(token);
export const namespaceAsked = () => namespace ?? "";

// What was shown to another one is gone with the page.
export function signIn(given, only) {
    store(STORED, given.trim());
    store(NAMESPACE, only.trim());
    location.reload();
}

export function signOut() {
    store(STORED, token = null);
    location.reload();
}

// What the tab shows, for itself after a reload. It is of the token; null: nothing. Without HTTPS the page that is loaded
// then can be another server's, to which it would be shown.
export const keeps = inCluster && location.protocol === "https:";
export const keep = (text) => store(SHOWN, keeps && token && text ? token + "\n" + text : null);

export function takeKept() {
    const kept = load(SHOWN), before = token + "\n";
    keep(null);
    return token && kept?.startsWith(before) ? kept.slice(before.length) : null;
}

function headers() {
    const made = {"X-Aliquot-Token": token};
    if (inCluster && namespace)
        made["X-Aliquot-Namespace"] = namespace;
    return made;
}

const request = (path, signal) => fetch(path, {headers: headers(), signal});

// Whether the last event says that the token is refused.
async function eachLines(body, onLines) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "", isRefused = false;
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
        const lines = (rest + part.value).split("\n");
        rest = lines.pop();
        onLines(lines.filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)));
        isRefused ||= lines.includes("event: expired");
    }
    return isRefused;
}

function forget() {
    store(STORED, token = null);
    return inCluster ? "expired" : "refused";
}

// Data of server-sent events until their end, which is returned: "lost", "tooMany", "refused", "noToken", "usedCode", or
// in a cluster "expired": the API server takes the token no more.
export async function listen(path, signal, onOpen, onLines) {
    if (!token && !inCluster)
        store(STORED, token = await askTabs());
    if (!token)
        return isUsed ? "usedCode" : "noToken";
    hasEnded = false;
    try {
        const answer = await request(path, signal);
        if (answer.status === 401)
            return forget();
        if (answer.status === 403)
            return "refused";
        if (!answer.ok)
            return answer.status === 503 ? "tooMany" : "lost";
        onOpen();
        if (await eachLines(answer.body, onLines))
            return forget();
    } catch {
        // it is lost like one that ends
    } finally {
        hasEnded = isForwarded;
    }
    return "lost";
}

// {data} or {error}.
export async function ask(path, parameters) {
    if (hasEnded)
        return {error: "not connected"};
    try {
        const answer = await request(path + "?" + new URLSearchParams(parameters));
        if (!answer.ok)
            return {error: await answer.text()};
        return {data: await answer.json()};
    } catch (error) {
        return {error: String(error.message ?? error)};
    }
}
