// SPDX-License-Identifier: Apache-2.0
// Elements. Every text of the cluster becomes a text node here: there is no other way from a text to the page.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "path", "line", "text", "rect", "title"]);

// el("a", {href: "#/", class: "x", key: "k", style: {width: "3px"}, on: {click}}, ...children)
export function el(tag, attributes = {}, ...children) {
    const made = SVG_TAGS.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
        if (value === undefined || value === null || value === false || name === "value")
            continue;
        if (name === "on")
            made.listeners = value;
        else if (name === "style")
            Object.assign(made.style, value);
        else if (name === "key")
            made.key = value;
        else
            made.setAttribute(name, value === true ? "" : String(value));
    }
    listen(made, {}, made.listeners ?? {});
    made.append(...children.flat(2).filter((c) => c !== null && c !== undefined && c !== false));
    if (attributes.value !== undefined)
        made.value = attributes.value;      // of a select its options must be there
    return made;
}

function listen(element, before, after) {
    for (const [type, call] of Object.entries(before))
        if (after[type] !== call)
            element.removeEventListener(type, call);
    for (const [type, call] of Object.entries(after))
        if (before[type] !== call)
            element.addEventListener(type, call);
}

const isSame = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && a.key === b.key;

function patch(old, made) {
    if (old.nodeType === Node.TEXT_NODE) {
        if (old.data !== made.data)
            old.data = made.data;
        return;
    }
    for (const {name} of [...old.attributes])
        if (name !== "style" && !made.hasAttribute(name))
            old.removeAttribute(name);
    for (const {name, value} of made.attributes)
        if (name !== "style" && old.getAttribute(name) !== value)
            old.setAttribute(name, value);
    if (old.style.cssText !== made.style.cssText)
        old.style.cssText = made.style.cssText;
    if ("value" in made && old !== document.activeElement && old.value !== made.value)
        old.value = made.value;
    listen(old, old.listeners ?? {}, made.listeners ?? {});
    old.listeners = made.listeners;
    update(old, [...made.childNodes]);
}

// Makes these the children: those that are there already are changed in place, so focus and scrolling stay.
export function update(parent, wanted) {
    const keyed = new Map([...parent.childNodes].filter((c) => c.key !== undefined).map((c) => [c.key, c]));
    const stays = new Set(wanted.map((w) => w.key));
    for (const child of [...parent.childNodes])
        if (child.key !== undefined && !stays.has(child.key))
            child.remove();
    let at = parent.firstChild;
    for (const made of wanted) {
        const old = made.key !== undefined ? keyed.get(made.key) : at?.key === undefined ? at : null;
        if (old && isSame(old, made)) {
            patch(old, made);
            if (old === at)
                at = at.nextSibling;
            else
                parent.insertBefore(old, at);
        } else {
            parent.insertBefore(made, at);
        }
    }
    while (at) {
        const next = at.nextSibling;
        at.remove();
        at = next;
    }
}

// ---- figures ----

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

export function bytes(value) {
    if (value === undefined || value === null)
        return "-";
    let unit = 0;
    for (; value >= 1024 && unit < UNITS.length - 1; unit++)
        value /= 1024;
    return `${value >= 100 || Number.isInteger(value) ? Math.round(value) : value.toFixed(1)} ${UNITS[unit]}`;
}

export const percent = (value) => value === undefined || value === null ? "-" : `${Math.round(value)} %`;
export const ratio = (part, whole) => whole > 0 ? Math.min(100, 100 * part / whole) : 0;

export function clock(ms, seconds = false) {
    return new Date(ms).toLocaleTimeString([], {hour: "2-digit", minute: "2-digit",
                                                second: seconds ? "2-digit" : undefined, hour12: false});
}

export function age(seconds) {
    const [n, unit] = seconds < 120 ? [seconds, "s"] : seconds < 7200 ? [seconds / 60, "m"]
        : seconds < 172800 ? [seconds / 3600, "h"] : [seconds / 86400, "d"];
    return `${Math.max(0, Math.floor(n))}${unit}`;
}

// ---- bars ----

// Parts are {amount, kind}; `used` is a line below them.
export function bar(whole, parts, used) {
    return el("span", {class: "bar", "aria-hidden": "true"},
              el("span", {class: "parts"}, parts.filter((p) => p.amount > 0).map((p) =>
                  el("i", {class: p.kind, style: {width: ratio(p.amount, whole) + "%"}}))),
              used === undefined ? null : el("b", {style: {width: ratio(used, whole) + "%"}}));
}

// ---- charts ----

const WIDTH = 600, HEIGHT = 96;

function pathOf(values, most, from) {
    let path = "", draws = false;
    values.forEach((value, i) => {
        if (value === null) {
            draws = false;
            return;
        }
        const x = WIDTH * (from + i) / 359, y = HEIGHT - HEIGHT * Math.min(1, value / most);
        path += `${draws ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
        draws = true;
    });
    return path;
}

// Lines {values, kind} of up to 360 steps, the newest last; `at`: the step that is marked, from the oldest of the hour.
export function chart(label, lines, most, at) {
    const x = WIDTH * at / 359;
    return el("svg", {class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img",
                      "aria-label": label},
              [0, 1, 2, 3, 4, 5, 6].map((n) => el("line", {class: "tick", x1: n * WIDTH / 6, x2: n * WIDTH / 6, y1: 0, y2: HEIGHT})),
              lines.map((l) => el("path", {class: l.kind, d: pathOf(l.values, most, 360 - l.values.length)})),
              el("line", {class: "mark", x1: x, x2: x, y1: 0, y2: HEIGHT}));
}
