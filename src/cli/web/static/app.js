// SPDX-License-Identifier: Apache-2.0
// The frame: which view the address names (#/card/NAME), the line above it, keys and the language.

import {choice, drawCluster} from "./cluster.js";
import {clock, el, update} from "./draw.js";
import {connectAgain, start, status, waiting} from "./data.js";
import {drawLogin} from "./login.js";
import {inCluster, isSignedIn, signOut} from "./session.js";
import {chooseLanguage, otherLanguage, t} from "./texts.js";
import {VIEWS, forgetAnswers, onViewChange} from "./views.js";

const main = document.getElementById("main");
const LINKS = [["", "cluster"], ["containers", "containers"], ["waiting", "waiting"], ["quotas", "quotas"], ["moves", "moves"]];
const PARTS = {cards: "partCards", use: "partUse", waiting: "partWaiting", quotas: "partQuotas", claims: "partClaims", memory: "partMemory"};
const LANGUAGE = "aliquot-language";

// An address that was typed can be no escaped text.
function unescaped(text) {
    try {
        return decodeURIComponent(text);
    } catch {
        return text;
    }
}

const route = () => location.hash.replace(/^#\/?/, "").split("/").map(unescaped);

const asksForToken = () => inCluster && !isSignedIn();

// Whether the page has no token, and knows nothing from before.
const isShut = () => !inCluster && ["refused", "noToken", "usedCode"].includes(status.connection) && !status.time;

const drawShut = () => [el("h1", {}, t("notShown")), el("p", {class: "warn", role: "alert"}, t(status.connection)),
                        el("p", {class: "none"}, t("goodOnce"))];

function drawView() {
    if (asksForToken())
        return drawLogin(status.connection === "expired");
    if (isShut())
        return drawShut();
    const [view, ...names] = route();
    return VIEWS[view] ? VIEWS[view](...names) : drawCluster(main, draw);
}

function drawNav() {
    const [view] = route();
    return LINKS.map(([path, text]) => el("a", {href: "#/" + path, "aria-current": view === path ? "page" : null},
        t(text), path === "waiting" && waiting.size > 0 ? el("span", {class: "count"}, String(waiting.size)) : null));
}

function statusText() {
    if (asksForToken() || isShut())
        return "";
    if (status.connection !== "open")
        return t(status.connection);
    const parts = [status.time ? t("asOf", clock(status.time, true)) : t("reading")];
    if (status.namespace)
        parts.push(t("onlyNamespace", status.namespace));
    if (status.silent > 0)
        parts.push(status.silent === 1 ? t("oneSilent") : t("silent", status.silent));
    return parts.join(" · ");
}

const drawEnded = () => el("p", {key: "ended"}, t("endedLong"), " ",
                           el("button", {id: "again", type: "button", on: {click: connectAgain}}, t("connectAgain")));

function drawTrouble() {
    if (asksForToken())
        return [];
    const troubles = status.trouble.map((trouble) => el(
        "p", {key: trouble.part}, el("b", {}, t(PARTS[trouble.part])), ": ", t(trouble.refused ? "isRefused" : "isTroubled", trouble.text)));
    return status.connection === "ended" ? [drawEnded(), ...troubles] : troubles;
}

let drawing = false;
let searchNext = false;     // the next view begins in its search

function drawNow() {
    const nav = document.getElementById("nav"), button = document.getElementById("language"), out = document.getElementById("out");
    update(nav, asksForToken() ? [] : drawNav());
    out.hidden = !inCluster || !isSignedIn();
    out.textContent = t("signOut");
    nav.setAttribute("aria-label", t("sections"));
    update(document.getElementById("status"), [document.createTextNode(statusText())]);
    update(document.getElementById("trouble"), drawTrouble());
    button.textContent = t("otherLanguage");
    button.title = t("otherLanguageLong");
    button.lang = otherLanguage();
    update(main, drawView().flat(3).filter(Boolean));
    document.title = ["Aliquot", ...route().filter(Boolean)].join(" · ");
}

// At most once a frame.
function draw() {
    if (drawing)
        return;
    drawing = true;
    requestAnimationFrame(() => {
        drawing = false;
        drawNow();
    });
}

function onRoute() {
    forgetAnswers();
    update(main, []);
    scrollTo(0, 0);
    drawNow();
    (searchNext && document.getElementById("search") || main).focus({preventScroll: true});
    searchNext = false;
}

// ---- keys ----

function moveAmongCells(event) {
    const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    const cells = [...main.querySelectorAll("a.cell")];
    const next = step && cells[cells.indexOf(document.activeElement) + step];
    if (!next || !cells.includes(document.activeElement))
        return;
    event.preventDefault();
    next.focus();
}

function onKey(event) {
    const writes = event.target.matches?.("input, select, textarea");
    if (event.key === "/" && !writes) {
        event.preventDefault();
        const search = document.getElementById("search");
        if (!search) {
            location.hash = "#/";
            searchNext = true;
        }
        search?.focus();
    } else if (event.key === "Escape" && event.target.id === "search") {
        choice.search = event.target.value = "";
        draw();
    } else if (!writes) {
        moveAmongCells(event);
    }
}

// ---- start ----

function stored() {
    try {
        return localStorage.getItem(LANGUAGE);
    } catch {
        return null;
    }
}

function switchLanguage() {
    const wanted = otherLanguage();
    try {
        localStorage.setItem(LANGUAGE, wanted);
    } catch {
        // it is for this page only, then
    }
    chooseLanguage(wanted);
    draw();
}

chooseLanguage(stored() ?? navigator.language);
document.getElementById("language").addEventListener("click", switchLanguage);
document.getElementById("out").addEventListener("click", signOut);
document.addEventListener("keydown", onKey);
addEventListener("hashchange", onRoute);
addEventListener("scroll", draw, {passive: true});
addEventListener("resize", draw);
onViewChange(draw);
start(draw);
draw();
