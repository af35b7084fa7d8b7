// SPDX-License-Identifier: Apache-2.0
// The view of all nodes: a card is a bar of its shares. Only what is near the window is in the document, so that
// thousands of nodes are as quick as ten.

import {bar, bytes, el, percent, ratio} from "./draw.js";
import {isSilent, nodes, status, useOfCard, useOfHolder, waiting, wordsOf} from "./data.js";
import {t} from "./texts.js";

const CELL_MIN = 142, CELL_HEIGHT = 46, NODE_HEAD = 26, NODE_GAP = 14;
const BEYOND = 900;     // pixels above and below the window

export const choice = {search: "", show: "all", order: "byName", first: "byWaste"};

export const searched = () => choice.search.toLowerCase().split(/\s+/).filter(Boolean);

export const partsOf = (card, of) => [
    ...card.h.map((h, i) => ({amount: h[of], kind: i % 2 ? "share odd" : "share"})),
    ...(card.kept ?? []).map((k) => ({amount: k[of], kind: "kept"}))];

export const isHealthy = (card) => card.state === "Healthy";

// Of a viewer who may read pods and no cards: what these pods have is all that is known of a card.
export const isTold = (card) => card.state !== "-";
export const isBad = (card) => isTold(card) && !isHealthy(card);

// How much of a card is given out, by what is scarcer.
const fullness = (card) => Math.max(ratio(card.tcore, card.core), ratio(card.tmem, card.mem));

// Bytes and percent that containers have of a card and do not use, in parts of a card; 0 where it is not known.
function waste(node, card) {
    let sum = 0;
    for (const holder of card.h) {
        const used = useOfHolder(node, card, holder);
        if (used?.used !== undefined && card.mem > 0)
            sum += Math.max(0, holder.mem - used.used) / card.mem;
    }
    return sum;
}

const SHOW = {
    all: () => true,
    withRoom: (card) => isHealthy(card) && fullness(card) < 100,
    full: (card) => fullness(card) >= 100,
    busyOnes: (card) => card.h.length > 0,
    idle: (card) => card.h.length === 0,
    out: isBad,
};

// The greatest of a node's cards comes first; null: by name.
const ORDER = {
    byName: null,
    byFull: (node, card) => fullness(card),
    byRoom: (node, card) => isHealthy(card) ? 100 - fullness(card) : -1,
    byWaste: waste,
};

const collator = new Intl.Collator("en", {numeric: true});

function select() {
    const words = searched();
    const rank = ORDER[choice.order];
    const found = [];
    for (const node of nodes.values()) {
        if (!words.every((word) => wordsOf(node).includes(word)))
            continue;
        let list = choice.show === "all" ? node.cards : node.cards.filter(SHOW[choice.show]);
        if (list.length === 0)
            continue;
        let most = 0;
        if (rank) {
            const ranks = new Map(list.map((card) => [card, rank(node, card)]));
            list = [...list].sort((a, b) => ranks.get(b) - ranks.get(a));
            most = ranks.get(list[0]);
        }
        found.push({node, list, most});
    }
    return found.sort((a, b) => b.most - a.most || collator.compare(a.node.name, b.node.name));
}

// ---- the sum ----

const SUMS = ["cards", "told", "healthy", "core", "tcore", "mem", "tmem", "used", "knows"];
const noSum = () => Object.fromEntries(SUMS.map((key) => [key, 0]));

function sumOf(node) {
    const sum = noSum(), seen = new Set();
    for (const card of node.cards) {
        const gpu = card.parent ?? card.uuid;
        if (!seen.has(gpu)) {
            seen.add(gpu);
            sum.cards++;
            sum.told += isTold(card);
            sum.healthy += isHealthy(card);
        }
        for (const key of ["core", "tcore", "mem", "tmem"])
            sum[key] += card[key];
        const used = useOfCard(node, card)?.used;
        if (used !== undefined && card.mem > 0) {
            sum.used += used;
            sum.knows += card.mem;
        }
    }
    return sum;
}

function sumUp() {
    const sum = noSum();
    for (const node of nodes.values()) {
        node.sum ??= sumOf(node);
        for (const key of SUMS)
            sum[key] += node.sum[key];
    }
    return sum;
}

function figure(title, value, detail, href) {
    return el("div", {class: "figure"},
              el("dt", {}, title),
              el("dd", {}, href ? el("a", {href}, value) : value, el("small", {}, detail)));
}

function drawSum() {
    const sum = sumUp();
    return el("dl", {class: "sum"},
              figure(t("nodes"), String(nodes.size), ""),
              figure(t("cards"), String(sum.cards), sum.told ? `${sum.healthy} ${t("healthy")}` : ""),
              figure(t("compute"), sum.core ? percent(ratio(sum.tcore, sum.core)) : percent(sum.tcore), t("givenOut")),
              figure(t("memory"), sum.mem ? percent(ratio(sum.tmem, sum.mem)) : bytes(sum.tmem), `${t("givenOut")}, ${
                  sum.knows ? percent(ratio(sum.used, sum.knows)) : "-"} ${t("inUse")}`),
              figure(t("waitingPods"), String(waiting.size), "", "#/waiting"));
}

// ---- tools ----

function field(label, control) {
    return el("label", {}, el("span", {}, label), control);
}

function selector(name, options, changed) {
    return el("select", {id: name, value: choice[name], on: {change: (event) => {
        choice[name] = event.target.value;
        changed();
    }}}, options.map((o) => el("option", {value: o}, t(o))));
}

// Selectors are [label, the name of what is chosen, options].
export function drawTools(changed, selectors) {
    return el("form", {class: "tools", role: "search", on: {submit}},
              field(t("search"), el("input", {id: "search", type: "search", placeholder: t("searchHint"), autocomplete: "off",
                                              spellcheck: "false", value: choice.search, on: {input: (event) => {
                                                  choice.search = event.target.value;
                                                  changed();
                                              }}})),
              selectors.map(([label, name, options]) => field(t(label), selector(name, options, changed))));
}

const submit = (event) => event.preventDefault();

// ---- nodes ----

function cell(node, card) {
    const used = useOfCard(node, card);
    const name = card.profile ? `${card.i} ${card.profile}` : String(card.i);
    const busy = used?.busy, core = card.core || 100;
    return el("a", {class: isBad(card) ? "cell bad" : "cell", href: "#/card/" + card.name, key: card.name},
              el("span", {class: "cell-head", "aria-hidden": "true"},
                 el("span", {class: "name"}, name),
                 isBad(card) ? el("span", {class: "state"}, card.state)
                     : card.tcore + card.tmem === 0 ? el("span", {}, t("free"))
                     : el("span", {}, percent(ratio(card.tcore, core)), " · ", bytes(card.tmem))),
              el("span", {class: "hidden"}, t("cardHidden", name, node.name, card.state, percent(ratio(card.tcore, core)),
                                              bytes(card.tmem), card.mem ? bytes(card.mem) : "-", card.h.length)),
              bar(core, partsOf(card, "core"), busy === undefined ? undefined : busy * core / 100),
              bar(card.mem || card.tmem, partsOf(card, "mem"), used?.used));
}

function modelsOf(node) {
    return [...new Set(node.cards.map((c) => c.model.replace(/^NVIDIA /, "")))].join(", ");
}

function drawNode({node, list}, columns) {
    return el("section", {class: "node", key: node.name, "aria-label": `${t("node")} ${node.name}`},
              el("div", {class: "node-head"}, el("h2", {}, el("a", {href: "#/node/" + node.name}, node.name)),
                 el("small", {}, modelsOf(node), isSilent(node) ? el("em", {}, " · " + t("noAnswer")) : null)),
              el("div", {class: "cells", style: {gridTemplateColumns: `repeat(${columns}, minmax(0, 1fr))`}},
                 list.map((card) => cell(node, card))));
}

const gap = (key, height) => el("div", {key, class: "gap", style: {height: height + "px"}});

// The nodes that are near the window, between gaps of the height of the others.
function drawWindow(found, main) {
    const columns = Math.max(1, Math.floor((main.clientWidth - 24) / CELL_MIN));
    const height = ({list}) => NODE_HEAD + NODE_GAP + CELL_HEIGHT * Math.ceil(list.length / columns);
    const top = main.querySelector("#nodes")?.getBoundingClientRect().top ?? 300;
    const first = -top - BEYOND, last = -top + innerHeight + BEYOND;
    const drawn = [];
    let at = 0, before = 0, after = 0;
    for (const one of found) {
        const h = height(one);
        if (at + h < first)
            before += h;
        else if (at > last)
            after += h;
        else
            drawn.push(drawNode(one, columns));
        at += h;
    }
    return el("div", {id: "nodes"}, gap("before", before), drawn, gap("after", after));
}

function emptyText() {
    if (nodes.size > 0)
        return t("nothing");
    return status.time ? t("noCards") : t("reading");
}

export function drawCluster(main, changed) {
    const found = select();
    const shown = found.reduce((n, {list}) => n + list.length, 0);
    return [el("h1", {class: "hidden"}, t("cluster")), drawSum(),
            drawTools(changed, [["show", "show", Object.keys(SHOW)], ["order", "order", Object.keys(ORDER)]]),
            el("p", {class: "note", role: "status"},
               found.length ? t("shown", found.length, nodes.size, shown) : emptyText(), el("span", {class: "legend"}, t("legend"))),
            drawWindow(found, main)];
}
