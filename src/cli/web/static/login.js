// SPDX-License-Identifier: Apache-2.0
// The form that asks for a token of Kubernetes.

import {el} from "./draw.js";
import {namespaceAsked, signIn} from "./session.js";
import {t} from "./texts.js";

const typed = {token: "", namespace: namespaceAsked()};     // a form that is drawn again keeps it

function field(name, text, attributes) {
    const input = (event) => typed[name] = event.target.value;
    return el("label", {}, el("span", {}, t(text)),
              el("input", {id: name, value: typed[name], autocomplete: "off", spellcheck: "false", on: {input}, ...attributes}));
}

function submit(event) {
    event.preventDefault();
    signIn(typed.token, typed.namespace);
}

// `expired`: a token was given before.
export function drawLogin(expired) {
    return [el("h1", {}, t("signIn")),
            expired ? el("p", {class: "warn", role: "alert"}, t("expiredLong")) : null,
            el("form", {class: "login", on: {submit}},
               field("token", "token", {type: "password", required: true}),
               field("namespace", "onlyIn", {type: "text", pattern: "[a-z0-9]([\\-a-z0-9]*[a-z0-9])?"}),
               el("button", {type: "submit"}, t("signIn"))),
            el("p", {class: "none"}, t("tokenHint"), " ", el("code", {}, "kubectl -n NAMESPACE create token ACCOUNT")),
            el("p", {class: "none"}, t("tokenKept"))];
}
