{{- /* SPDX-License-Identifier: Apache-2.0 */}}
{{- /*
What scripts/manifests computes for the directories from the table of dialects, here from dialects.json, which it writes.
A difference is that the value dialects.servedElsewhere leaves dialects out when the chart is rendered.

Each takes a dict: root, and column, at which the text begins. Further lines are indented to it.
*/}}

{{- /* The dialects that Aliquot serves, as JSON. */}}
{{- define "aliquot.served" -}}
{{- $table := .Files.Get "dialects.json" | fromJson -}}
{{- $left := list -}}
{{- range $name := .Values.dialects.servedElsewhere -}}
  {{- if not (hasPrefix "nvidia.com/mig-" $name) -}}
    {{- $owner := dict -}}
    {{- range $table.dialects -}}
      {{- if and (not $owner) (has $name .names) -}}{{- $owner = . -}}{{- end -}}
    {{- end -}}
    {{- if not $owner -}}
      {{- fail (printf "dialects.servedElsewhere: %s is no resource that Aliquot serves (docs/dialects.md)" $name) -}}
    {{- end -}}
    {{- if $owner.offered -}}
      {{- fail (printf "dialects.servedElsewhere: %s cannot be left to others: Aliquot's agents offer it" $name) -}}
    {{- end -}}
    {{- $left = append $left (first $owner.names) -}}
  {{- end -}}
{{- end -}}
{{- $served := list -}}
{{- range $table.dialects -}}
  {{- if or (not .names) (not (has (first .names) $left)) -}}{{- $served = append $served . -}}{{- end -}}
{{- end -}}
{{- toJson (dict "dialects" $served "carrier" $table.carrier "counted" $table.counted "columns" $table.columns) -}}
{{- end -}}

{{- /* A list of strings in CEL; also takes names and columns, the length of a line. */}}
{{- define "aliquot.celList" -}}
{{- $lines := list -}}
{{- $pending := ternary "[" "[]" (gt (len .names) 0) -}}
{{- range $i, $name := .names -}}
  {{- $item := printf "'%s'%s" $name (ternary "," "]" (lt (add1 $i) (len $.names | int64))) -}}
  {{- if and (gt (len $pending) 1) (gt (add $.column (len $pending) 1 (len $item)) (int64 $.columns)) -}}
    {{- $lines = append $lines (trimSuffix " " $pending) -}}
    {{- $pending = " " -}}
  {{- end -}}
  {{- $pending = printf "%s%s%s" $pending $item (ternary " " "" (hasSuffix "," $item)) -}}
{{- end -}}
{{- join (printf "\n%s" (repeat (int .column) " ")) (append $lines $pending) -}}
{{- end -}}

{{- /* The resources of one kind; also takes list, a key of `lists` in dialects.json. */}}
{{- define "aliquot.names" -}}
{{- $served := include "aliquot.served" .root | fromJson -}}
{{- $names := list -}}
{{- range $served.dialects -}}{{- $names = concat $names (index .lists $.list) -}}{{- end -}}
{{- if eq .list "shares" -}}{{- $names = append $names $served.carrier -}}{{- end -}}
{{- include "aliquot.celList" (dict "names" $names "column" (int .column) "columns" $served.columns) -}}
{{- end -}}

{{- /* The resources of each dialect, a list of lists. */}}
{{- define "aliquot.namesOfEach" -}}
{{- $served := include "aliquot.served" .root | fromJson -}}
{{- $column := add1 .column | int -}}
{{- $lists := list -}}
{{- range $served.dialects -}}
  {{- if .quantities -}}
    {{- $lists = append $lists (include "aliquot.celList" (dict "names" .quantities "column" $column "columns" $served.columns)) -}}
  {{- end -}}
{{- end -}}
{{- printf "[%s]" (join (printf ",\n%s" (repeat $column " ")) $lists) -}}
{{- end -}}

{{- /* What each name means in the name of a template of deploy/dra-pods, a map. */}}
{{- define "aliquot.requestWords" -}}
{{- $served := include "aliquot.served" .root | fromJson -}}
{{- $entries := list -}}
{{- range $served.dialects -}}
  {{- range .words -}}{{- $entries = append $entries (printf "'%s': '%s'" (index . 0) (index . 1)) -}}{{- end -}}
{{- end -}}
{{- printf "{%s}" (join (printf ",\n%s" (repeat (add1 .column | int) " ")) $entries) -}}
{{- end -}}

{{- /* The annotations that are requests, as JSON. */}}
{{- define "aliquot.requests" -}}
{{- $served := include "aliquot.served" .root | fromJson -}}
{{- $requests := list -}}
{{- range $served.dialects -}}{{- $requests = concat $requests .requests -}}{{- end -}}
{{- toJson $requests -}}
{{- end -}}

{{- define "aliquot.requestsByAnnotation" -}}
{{- $terms := list -}}
{{- range include "aliquot.requests" . | fromJsonArray -}}
  {{- $terms = append $terms (printf "'%s' in variables.annotations" .) -}}
{{- end -}}
{{- join " || " $terms | default "false" -}}
{{- end -}}

{{- define "aliquot.isRequestOr" -}}
{{- with include "aliquot.requests" . | fromJsonArray -}}
k in ['{{ join "', '" . }}'] ||{{ " " }}
{{- end -}}
{{- end -}}

{{- define "aliquot.managedResources" -}}
{{- $served := include "aliquot.served" .root | fromJson -}}
{{- $names := list $served.carrier -}}
{{- range $served.dialects -}}{{- $names = concat $names .quantities -}}{{- end -}}
{{- $lines := list -}}
{{- range $names -}}
  {{- $lines = append $lines (printf "- name: %s" .) -}}
  {{- if ne . $served.counted -}}{{- $lines = append $lines "  ignoredByScheduler: true" -}}{{- end -}}
{{- end -}}
{{- join (printf "\n%s" (repeat (int .column) " ")) $lines -}}
{{- end -}}
