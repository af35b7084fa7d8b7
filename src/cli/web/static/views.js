// SPDX-License-Identifier: Apache-2.0
// The views of one node, card or pod, of what waits, of quotas and claims, and of moves.

import {drawHistory} from "./history.js";
import {choice, drawTools, isBad, partsOf, searched} from "./cluster.js";
import {age, bar, bytes, el, percent, ratio} from "./draw.js";
import {cards, claims, findCard, isSilent, nodes, quotas, sharesOf, status, useIn, useOfCard, useOfHolder, waiting, wordsOfShare} from "./data.js";
import {ask} from "./session.js";
import {t} from "./texts.js";

const podLink = (ns, pod) => el("a", {href: `#/pod/${ns}/${pod}`}, `${ns}/${pod}`);
const cardLink = (card) => el("a", {href: "#/card/" + card.name}, card.name);
const nodeLink = (node) => el("a", {href: "#/node/" + node.name}, node.name);
const readingOr = (text) => status.time ? text : t("reading");

const NUMBERS = new Set(["compute", "busy", "memory", "used", "unused"]);

// Titles are names of texts; a cell is a text or elements. On a narrow screen each cell has its title beside it.
function table(label, titles, rows, none, kind = "") {
    if (rows.length === 0)
        return el("p", {class: "none"}, none);
    const of = (title) => ({class: NUMBERS.has(title) ? "number" : null});
    const row = (cells) => cells.map((c, i) => el("td", {...of(titles[i]), "data-title": t(titles[i])},
                                                  c === "" ? null : el("div", {}, c)));
    return el("table", {"aria-label": label, class: kind},
              el("thead", {}, el("tr", {}, titles.map((title) => el("th", {scope: "col", ...of(title)}, t(title))))),
              el("tbody", {}, rows.map((r) => Array.isArray(r) ? el("tr", {}, row(r)) : el("tr", {class: r.kind}, row(r.cells)))));
}

const facts = (list) => el("dl", {class: "facts"}, list.filter(([, value]) => value !== null && value !== "").map(([title, value]) =>
    el("div", {class: title === t("reason") ? "wide" : null}, el("dt", {}, title), el("dd", {}, value))));

const amount = (value, whole, shown) => whole > 0 ? `${shown(value)} / ${shown(whole)}` : "-";

function coreAndMemory(card, used) {
    const busy = used?.busy === undefined ? undefined : used.busy * card.core / 100;
    return [
        [t("compute"), [amount(card.tcore, card.core, percent), bar(card.core, partsOf(card, "core"), busy)]],
        [t("memory"), [amount(card.tmem, card.mem, bytes), bar(card.mem, partsOf(card, "mem"), used?.used)]],
        [t("busy"), percent(used?.busy)],
        [t("used"), bytes(used?.used)],
    ];
}

// ---- shares ----

const coreOf = (h) => h.core ? percent(h.core) : t("noLimit");
const memoryOf = (h) => h.mem ? bytes(h.mem) : t("noLimit");

const unusedOf = ({mem}, use) => use?.used === undefined || !mem ? undefined : Math.max(0, mem - use.used);

function shareCells({node, card, holder}) {
    const use = useOfHolder(node, card, holder);
    return [coreOf(holder), percent(use?.busy), memoryOf(holder), bytes(use?.used), bytes(unusedOf(holder, use))];
}

// The pod and the container; of a ResourceClaim, all that have its share together.
const nameCells = (holder) => holder.claim
    ? [holder.users.map((u) => el("div", {}, podLink(holder.ns, u.pod), ` ${u.c}`)), t("claimShare", holder.claim)]
    : [podLink(holder.ns, holder.pod), holder.c];

const SHARE_TITLES = ["compute", "busy", "memory", "used", "unused"];

// What of a card no container has.
const restOf = (card) => [
    ...(card.kept ?? []).map((k) => [t("kept", k.by), "", coreOf(k), "", memoryOf(k), "", ""]),
    ...(card.other ? [[t("other"), "", "", "", "", bytes(card.other), ""]] : [])];

const sharesOfCard = (node, card) => table(t("holders"), ["pod", "holder", ...SHARE_TITLES], [
    ...card.h.map((holder) => [...nameCells(holder), ...shareCells({node, card, holder})]),
    ...restOf(card)], t("noShares"));

// ---- node ----

const stateOf = (card) => el("span", {class: isBad(card) ? "state bad" : "state"}, card.state);

// A card and, below it, its shares.
function rowsOf(node, card) {
    const used = useOfCard(node, card), [[, compute], [, memory]] = coreAndMemory(card, used);
    const head = [[cardLink(card), el("small", {}, ` ${card.model} ${card.profile ?? ""} `), stateOf(card),
                   card.why ? el("p", {class: "warn"}, card.why) : null],
                  "", compute, percent(used?.busy), memory, bytes(used?.used), ""];
    return [{kind: "of-card", cells: head},
            ...card.h.map((holder) => [...nameCells(holder), ...shareCells({node, card, holder})]),
            ...restOf(card)];
}

function drawNodeView(name) {
    const node = nodes.get(name);
    if (!node)
        return [el("h1", {}, `${t("node")} ${name}`), el("p", {class: "none"}, readingOr(t("noNode", name)))];
    return [el("h1", {}, `${t("node")} ${name}`),
            isSilent(node) ? el("p", {class: "warn"}, t("noAnswer")) : null,
            table(t("cards"), ["cardOrPod", "holder", ...SHARE_TITLES], node.cards.flatMap((card) => rowsOf(node, card)), "", "of-node")];
}

// ---- card ----

function drawCardView(name) {
    const found = findCard(name);
    if (!found)
        return [el("h1", {}, `${t("card")} ${name}`), el("p", {class: "none"}, readingOr(t("noCard", name)))];
    const {node, card} = found;
    return [el("h1", {}, `${t("card")} ${name}`),
            isSilent(node) ? el("p", {class: "warn"}, t("noAnswer")) : null,
            facts([...coreAndMemory(card, useOfCard(node, card)), [t("node"), nodeLink(node)],
                   [t("state"), [stateOf(card), card.why ? ` ${card.why}` : ""]],
                   [t("model"), `${card.model} ${card.profile ?? ""}`], [t("uuid"), el("code", {}, card.uuid)]]),
            el("h2", {}, t("holders")), sharesOfCard(node, card),
            drawHistory(card.h.map((holder) => ({node, card, holder})), changed)];
}

// ---- what commands say ----

const answers = new Map();      // path and parameters -> {data}, {error}, or null while it is awaited

function command(path, parameters, label) {
    const key = path + JSON.stringify(parameters);
    const fetchIt = () => {
        answers.set(key, null);
        ask(path, parameters).then((answer) => {
            answers.set(key, answer);
            changed();
        });
    };
    if (!answers.has(key))
        fetchIt();
    const answer = answers.get(key);
    return [answer === null ? el("p", {class: "none", role: "status"}, t("asking"))
                : answer.error ? el("p", {class: "warn"}, answer.error)
                : [answer.data.status ? el("p", {class: "warn"}, t("commandFailed", answer.data.status)) : null,
                   el("pre", {tabindex: "0", role: "region", "aria-label": label}, answer.data.text)],
            el("button", {type: "button", disabled: answer === null, on: {click: () => {
                fetchIt();
                changed();
            }}}, t("again"))];
}

let changed = () => {};

// Answers of commands are as old as the view: another look asks again.
export const forgetAnswers = () => answers.clear();

// ---- pod ----

function drawPodView(namespace, name) {
    const shares = sharesOf(namespace, name), waits = waiting.get(`w/${namespace}/${name}`);
    return [el("h1", {}, `${t("pod")} ${namespace}/${name}`),
            waits ? facts([[t("wants"), waits.wants], [t("since"), sinceOf(waits)], [t("reason"), waits.reason]]) : null,
            shares.length ? table(t("holders"), ["card", "node", "holder", ...SHARE_TITLES], shares.map((s) =>
                [cardLink(s.card), nodeLink(s.node), s.holder.claim ? t("claimShare", s.holder.claim) : s.holder.c, ...shareCells(s)])) : null,
            el("h2", {}, t("explanation")),
            command("/api/explain", {namespace, pod: name}, t("explanation")),
            drawHistory(shares, changed)];
}

// ---- containers ----

const ROWS_MAX = 200;

// The greatest comes first, and last what is not known.
const FIRST = {
    byWaste: unusedOf,
    byUsed: (holder, use) => use?.used,
    byBusy: (holder, use) => use?.busy,
    byShare: ({mem}) => mem,
    byName: () => 0,
};

const textOrder = (a, b) => a < b ? -1 : Number(a > b);
const shareOrder = (a, b) => b.rank - a.rank || textOrder(a.holder.ns, b.holder.ns) || textOrder(a.holder.pod, b.holder.pod);

// The first rows, and how many there are: of a large cluster's containers only those that can be shown are kept and sorted.
function selectShares() {
    const words = searched(), rank = FIRST[choice.first];
    let rows = [], count = 0, last = null;      // the last of the rows, once there are so many
    for (const {node, card} of cards()) {
        const used = useOfCard(node, card);
        for (const holder of card.h) {
            const text = words.length ? `${wordsOfShare(holder)} ${holder.c} ${card.name} ${card.model} ${node.name}`.toLowerCase() : "";
            if (!words.every((word) => text.includes(word)))
                continue;
            const share = {node, card, holder, rank: rank(holder, useIn(used, holder)) ?? -1};
            count++;
            if (!last || shareOrder(share, last) < 0)
                rows.push(share);
            if (rows.length === 2 * ROWS_MAX) {
                rows = rows.sort(shareOrder).slice(0, ROWS_MAX);
                last = rows[ROWS_MAX - 1];
            }
        }
    }
    return {rows: rows.sort(shareOrder).slice(0, ROWS_MAX), count};
}

function drawContainers() {
    const {rows, count} = selectShares();
    return [el("h1", {}, t("containers")), drawTools(changed, [["order", "first", Object.keys(FIRST)]]),
            el("p", {class: "note", role: "status"}, t("shownContainers", rows.length, count)),
            table(t("containers"), ["pod", "holder", "card", ...SHARE_TITLES], rows.map((s) =>
                [...nameCells(s.holder), cardLink(s.card), ...shareCells(s)]),
                  readingOr(choice.search ? t("nothing") : t("noShares")))];
}

// ---- waiting pods ----

const sinceOf = (pod) => pod.since ? age(Date.now() / 1000 - pod.since) : "-";

const drawWaiting = () => [
    el("h1", {}, t("waitingPods")),
    table(t("waitingPods"), ["pod", "wants", "since", "reason"],
          [...waiting.values()].sort((a, b) => (a.since ?? 0) - (b.since ?? 0) || (a.k < b.k ? -1 : 1)).map((pod) =>
              [podLink(pod.ns, pod.pod), pod.wants, sinceOf(pod), pod.reason]), readingOr(t("noWaiting")))];

// ---- quotas and claims ----

function quotaCell(of, shown) {
    if (!of)
        return "-";
    const most = of.max ?? of.guaranteed;
    return [t("quotaUse", of.used === undefined ? "-" : shown(of.used), shown(of.guaranteed),
              of.max === undefined ? t("noLimit") : shown(of.max)),
            bar(most, [{amount: of.used ?? 0, kind: "share"}])];
}

const byKey = (map) => [...map.values()].sort((a, b) => (a.k < b.k ? -1 : 1));

const drawQuotas = () => [
    el("h1", {class: "hidden"}, t("quotas")),
    el("h2", {}, t("quotasTitle")),
    table(t("quotasTitle"), ["namespace", "name", "cohort", "compute", "memory", "cardsCount"], byKey(quotas).map((q) =>
        [q.ns, q.name, q.cohort ?? "-", quotaCell(q.core, percent), quotaCell(q.mem, bytes), quotaCell(q.cards, String)]),
          readingOr(t("noQuotas")), "of-quotas"),
    el("h2", {}, t("claimsTitle")),
    table(t("claimsTitle"), ["namespace", "name", "phase", "compute", "memory", "reason"], byKey(claims).map((c) =>
        [c.ns, c.name, c.phase || "-", percent(c.core), bytes(c.mem), c.reason]), readingOr(t("noClaims")))];

// ---- moves ----

const drawMoves = () => [el("h1", {}, t("movesTitle")), el("p", {class: "note"}, t("movesHint")),
                         command("/api/plan", {}, t("movesTitle"))];

export const VIEWS = {containers: drawContainers, node: drawNodeView, card: drawCardView, pod: drawPodView, waiting: drawWaiting,
                      quotas: drawQuotas, moves: drawMoves};

export function onViewChange(call) {
    changed = call;
}
