// SPDX-License-Identifier: Apache-2.0
// The last hour of shares, as the agent of their node has kept it: lines, and the figures of one time.

import {bytes, chart, clock, el, percent} from "./draw.js";
import {ask} from "./session.js";
import {t} from "./texts.js";

const STEPS = 360, PODS_MAX = 16, FRESH_MS = 30000;

const pages = new Map();        // "node/namespace/pod" -> {answer, time}; answer null while it is awaited
let step = STEPS - 1;           // the time that is shown, from the oldest step of the hour

// The page about a pod; asked for again where it is old.
function pageOf(node, holder, changed) {
    const key = `${node.name}/${holder.ns}/${holder.pod}`;
    const known = pages.get(key);
    if (!known || (known.answer && Date.now() - known.time > FRESH_MS)) {
        const page = {answer: known?.answer ?? null, time: Date.now()};
        pages.set(key, page);
        ask("/api/history", {node: node.name, namespace: holder.ns, pod: holder.pod}).then((answer) => {
            Object.assign(page, {answer, time: Date.now()});
            changed();
        });
    }
    return pages.get(key);
}

// A figure of a step of the hour; null where it is not known.
const at = (values, which) => values[values.length - STEPS + which] ?? null;

const inPercent = (values, stepMs) => values.map((v) => v === null ? null : 100 * v / stepMs);

function axis(newest, stepMs) {
    return el("div", {class: "axis", "aria-hidden": "true"}, [0, 1, 2, 3, 4, 5, 6].map((n) =>
        el("span", {}, clock(newest - (6 - n) * STEPS / 6 * stepMs))));
}

// A pod can have several shares.
const keyOf = ({card, holder}) => `${card.uuid}/${holder.uid}/${holder.c}`;

function drawShare({card, holder}, record, stepMs, newest) {
    const name = holder.claim ? `${holder.ns}/${holder.claim}` : `${holder.ns}/${holder.pod} (${holder.c})`;
    const taken = inPercent(record.gpuTimeMs, stepMs), entitled = inPercent(record.gpuEntitledMs, stepMs);
    const most = holder.mem || card.mem, throttled = at(record.throttledMs, step);
    const memory = at(record.memoryUsed, step), compute = at(taken, step), could = at(entitled, step);
    return el("section", {class: "history", key: keyOf({card, holder})},
              el("h3", {}, name),
              el("p", {}, t("memory"), " ", el("b", {}, memory === null ? t("notKnown") : bytes(memory)), " / ", bytes(most)),
              chart(t("memoryChart", name, bytes(most)), [{values: record.memoryUsed, kind: "line"}], most, step),
              axis(newest, stepMs),
              el("p", {}, t("compute"), " ", el("b", {}, compute === null ? t("notKnown") : percent(compute)), ", ",
                 t("couldHave", could === null ? t("notKnown") : percent(could)),
                 throttled ? ", " + t("throttled", (throttled / 1000).toFixed(1)) : ""),
              chart(t("computeChart", name), [{values: entitled, kind: "line limit"}, {values: taken, kind: "line"}], 100, step),
              axis(newest, stepMs));
}

function drawOne(share, changed) {
    const {answer, time} = pageOf(share.node, share.holder, changed);
    const key = keyOf(share);
    if (!answer)
        return el("p", {class: "none", key}, t("asking"));
    if (answer.error)
        return el("p", {class: "warn", key}, t("noHistory", answer.error));
    const record = answer.data.containers.find((c) =>
        c.uuid === share.card.uuid && (share.holder.claim ? c.claimUID === share.holder.uid
            : c.podUID === share.holder.uid && c.container === share.holder.c));
    if (!record)
        return el("p", {class: "none", key}, t("noHistory", t("agentHasNone")));
    return drawShare(share, record, answer.data.stepMs, time - record.agoMs);
}

// Shares are {node, card, holder}.
export function drawHistory(shares, changed) {
    if (shares.length === 0)
        return null;
    const when = clock(Date.now() - (STEPS - 1 - step) * 10000);
    return el("section", {class: "hour"},
              el("h2", {}, t("lastHour")),
              el("label", {class: "when"}, el("span", {}, t("at")),
                 el("input", {id: "step", type: "range", min: 0, max: STEPS - 1, value: String(step), "aria-valuetext": when,
                              on: {input: (event) => {
                                  step = Number(event.target.value);
                                  changed();
                              }}}), el("output", {}, when)),
              shares.slice(0, PODS_MAX).map((share) => drawOne(share, changed)));
}
