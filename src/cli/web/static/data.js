// SPDX-License-Identifier: Apache-2.0
// What the server has said: lines of /api/events, each with a key, in maps by kind. Paths and members: docs/web.md.

import {isForwarded, keep, keeps, listen, takeKept} from "./session.js";

export const nodes = new Map();     // name -> {name, runs, cards, words, sum}
export const use = new Map();       // node -> line
export const waiting = new Map();   // "namespace/pod" -> line
export const quotas = new Map();
export const claims = new Map();
export const status = {connection: "connecting", time: 0, trouble: [], silent: 0, namespace: null};

const REST_MS = 500;
const KEPT_MAX = 2 << 20;           // characters; a browser keeps some five million for a tab
const AGAIN_MS = 3000;
const known = new Set();            // keys of lines that are shown
let unconfirmed = null;             // after a connection broke: keys that the new one has not named yet
let connection = null;       // what ends it
let again = 0;               // the timer of the next one
let changed = false;
let announced = -Infinity;    // when
let hadCards = false;         // then
let listener = () => {};

const KINDS = {
    c: {
        put(key, [node, run], line) {
            const known = nodes.get(node) ?? {name: node, runs: new Map()};
            known.runs.set(run, line.cards);
            nodes.set(node, gather(known));
        },
        remove(key, [node, run]) {
            const known = nodes.get(node);
            known?.runs.delete(run);
            if (known?.runs.size)
                gather(known);
            else
                nodes.delete(node);
        },
    },
    u: {
        put(key, [node], line) {
            use.set(node, line);
            forgetSum(node);
        },
        remove(key, [node]) {
            use.delete(node);
            forgetSum(node);
        },
    },
    w: rows(waiting),
    q: rows(quotas),
    m: rows(claims),
    state: {
        put(key, parts, line) {
            Object.assign(status, {time: line.time, trouble: line.trouble, silent: line.silent,
                                   namespace: line.namespace ?? null});
            for (const old of unconfirmed ?? [])
                apply({k: old, gone: true});
            unconfirmed = null;
        },
        remove() {},
    },
};

function rows(map) {
    return {put: (key, parts, line) => map.set(key, line), remove: (key) => map.delete(key)};
}

function gather(node) {
    node.cards = [...node.runs.values()].flat().sort((a, b) => a.i - b.i || (a.name < b.name ? -1 : 1));
    node.words = node.sum = null;
    return node;
}

// What is made of a node's cards and of their use is kept with it: see sumOf().
function forgetSum(name) {
    const node = nodes.get(name);
    if (node)
        node.sum = null;
}

// Of a ResourceClaim, all that have its share together.
export const wordsOfShare = (h) =>
    [h.pod, ...h.claim ? [h.claim, ...h.users.map((u) => u.pod)] : []].map((name) => h.ns + "/" + name).join(" ");

const hasPod = (holder, pod) => holder.pod === pod || (holder.users ?? []).some((u) => u.pod === pod);

// What a search looks in.
export function wordsOf(node) {
    node.words ??= [node.name, ...node.cards.flatMap((c) => [
        c.name, c.model, c.uuid, c.state, ...c.h.map(wordsOfShare)])].join("\n").toLowerCase();
    return node.words;
}

export function apply(line) {
    const [kind, ...parts] = line.k.split("/");
    if (!KINDS[kind])
        return;
    unconfirmed?.delete(line.k);
    if (line.gone) {
        known.delete(line.k);
        KINDS[kind].remove(line.k, parts);
    } else {
        known.add(line.k);
        KINDS[kind].put(line.k, parts, line);
    }
}

export function* cards() {
    for (const node of nodes.values())
        for (const card of node.cards)
            yield {node, card};
}

export function findCard(name) {
    for (const found of cards())
        if (found.card.name === name)
            return found;
    return null;
}

export const useOfCard = (node, card) => use.get(node.name)?.cards.find((c) => c.uuid === card.uuid);
export const useIn = (used, holder) => used?.h.find((h) => h.uid === holder.uid && (holder.claim || h.c === holder.c));
export const useOfHolder = (node, card, holder) => useIn(useOfCard(node, card), holder);
export const isSilent = (node) => use.get(node.name)?.answers === false;

// Shares of a pod: {node, card, holder}.
export function sharesOf(namespace, pod) {
    const found = [];
    for (const {node, card} of cards())
        for (const holder of card.h)
            if (holder.ns === namespace && hasPod(holder, pod))
                found.push({node, card, holder});
    return found;
}

// Not with each of the hundred events of a large cluster, but at once with the first cards.
function announce() {
    if (changed)
        return;
    changed = true;
    const rest = hadCards ? REST_MS : 0;
    hadCards = nodes.size > 0;
    setTimeout(() => {
        changed = false;
        announced = performance.now();
        listener();
    }, Math.max(0, announced + rest - performance.now()));
}

function onOpen() {
    unconfirmed = new Set(known);
    status.connection = "open";
    announce();
}

function onLines(lines) {
    for (const line of lines)
        apply(JSON.parse(line));
    announce();
}

async function connect() {
    clearTimeout(again);
    if (connection || (document.hidden && !isForwarded))
        return;
    const own = connection = new AbortController();
    const end = await listen("/api/events", own.signal, onOpen, onLines);
    if (connection !== own)
        return;     // the page was hidden
    connection = null;
    status.connection = end;
    if (end === "lost" || end === "tooMany")
        goOn();
    announce();
}

function goOn() {
    if (isForwarded)
        status.connection = "ended";
    else
        again = setTimeout(connect, AGAIN_MS);
}

// The viewer says so.
export function connectAgain() {
    status.connection = "connecting";
    connect();
    announce();
}

// A page that is not seen costs the cluster nothing. Only one that could not connect again by itself stays connected.
function onVisibility() {
    if (document.hidden) {
        clearTimeout(again);
        connection?.abort();
        connection = null;
    } else {
        connect();
    }
}

// ---- over a reload ----

// What is shown, as lines that show it.
function* lines() {
    for (const {name, runs} of nodes.values())
        for (const [run, list] of runs)
            yield {k: `c/${name}/${run}`, cards: list};
    for (const map of [use, waiting, quotas, claims])
        yield* map.values();
    if (status.time)
        yield {k: "state", ...status};
}

function textOfLines() {
    const texts = [];
    let size = 0;
    for (const line of lines()) {
        texts.push(JSON.stringify(line));
        size += texts.at(-1).length + 1;
        if (size > KEPT_MAX)
            return null;
    }
    return texts.join("\n");
}

// Until the server has told everything, the page shows what it has shown before.
function applyKept() {
    try {
        for (const text of takeKept()?.split("\n") ?? [])
            apply(JSON.parse(text));
    } catch {
        // another release has kept it
    }
}

export function start(onChange) {
    listener = onChange;
    applyKept();
    if (keeps)
        addEventListener("pagehide", () => keep(textOfLines()));
    if (!isForwarded)
        document.addEventListener("visibilitychange", onVisibility);
    connect();
}
