# SPDX-License-Identifier: Apache-2.0
# Completion of aliquot for bash, from what `aliquot ... --help=list` prints.

_aliquot_takes_value() { # OPTION LIST
    awk -F '\t' -v option="$1" \
        '$1 == "option" && $4 != "" && ("--" $2 == option || "-" $3 == option) { found = 1 } END { exit !found }' <<<"$2"
}

_aliquot() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} list words i
    local -a path=("${COMP_WORDS[0]}")

    COMPREPLY=()
    # `--option=value` comes as three words.
    [[ $prev == = ]] && prev=${COMP_WORDS[COMP_CWORD - 2]}
    [[ $cur == = ]] && cur=
    list=$("${path[0]}" --help=list 2>/dev/null) || return
    for ((i = 1; i < COMP_CWORD; i++)); do
        if _aliquot_takes_value "${COMP_WORDS[i]}" "$list"; then
            ((i++))
            [[ ${COMP_WORDS[i]} == = ]] && ((i++))
            continue
        fi
        if [[ ${COMP_WORDS[i]} == -- ]]; then
            declare -F _command_offset >/dev/null && _command_offset $((i + 1))
            return
        fi
        if awk -F '\t' -v word="${COMP_WORDS[i]}" \
            '$1 == "command" && $2 == word { found = 1 } END { exit !found }' <<<"$list"; then
            path+=("${COMP_WORDS[i]}")
            list=$("${path[@]}" --help=list 2>/dev/null) || return
        fi
    done
    # The value of an option: a file, or nothing to offer.
    words=$(awk -F '\t' -v option="$prev" \
        '$1 == "option" && $4 != "" && ("--" $2 == option || "-" $3 == option) { print $4 }' <<<"$list")
    if [[ -n $words ]]; then
        if [[ $words == *FILE* || $words == *DIR* ]]; then
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        fi
        return
    fi
    words=$(awk -F '\t' -v dash="${cur:0:1}" \
        '$1 == "option" ? dash == "-" : dash != "-" { print ($1 == "option" ? "--" : "") $2 }' <<<"$list")
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}

complete -F _aliquot aliquot
