{{- /* SPDX-License-Identifier: Apache-2.0 */}}

{{- /* What the names of the DaemonSet and the Deployment begin with. */}}
{{- define "aliquot.name" -}}
{{- .Values.nameOverride | default "aliquot" -}}
{{- end -}}

{{- /* "policies" or "webhook". Without an API server, helm knows the groups of its libraries and no kinds, unless
--api-versions names them: there the version says which kinds there are. */}}
{{- define "aliquot.admission" -}}
{{- $apis := .Capabilities.APIVersions -}}
{{- $has := $apis.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" -}}
{{- if not ($apis.Has "v1/Pod") -}}
  {{- $has = or $has (semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- if eq .Values.admission.mode "auto" -}}
  {{- ternary "policies" "webhook" $has -}}
{{- else -}}
  {{- .Values.admission.mode -}}
{{- end -}}
{{- end -}}

{{- /* The reference of an image; takes root, and image with what differs from .Values.image. */}}
{{- define "aliquot.image" -}}
{{- $registry := .image.registry | default .root.Values.image.registry -}}
{{- $name := ternary (printf "%s/%s" $registry .image.repository) .image.repository (ne $registry "") -}}
{{- if .image.digest -}}
  {{- printf "%s@%s" $name .image.digest -}}
{{- else -}}
  {{- printf "%s:%s" $name (.image.tag | default .root.Values.image.tag | default .root.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- /* The labels of nodes with GPUs, one of which is enough. */}}
{{- define "aliquot.gpuLabels" -}}
{{- /* Node feature discovery: display and 3D controllers of NVIDIA, with the class of the device or without. */}}
- {key: feature.node.kubernetes.io/pci-10de.present, operator: In, values: ["true"]}
- {key: feature.node.kubernetes.io/pci-0300_10de.present, operator: In, values: ["true"]}
- {key: feature.node.kubernetes.io/pci-0302_10de.present, operator: In, values: ["true"]}
{{- /* GPU feature discovery and NVIDIA's operator. */}}
- {key: nvidia.com/gpu.present, operator: In, values: ["true"]}
{{- /* GKE, EKS, AKS. */}}
- {key: cloud.google.com/gke-accelerator, operator: Exists}
- {key: k8s.amazonaws.com/accelerator, operator: Exists}
- {key: kubernetes.azure.com/accelerator, operator: In, values: [nvidia]}
- {key: accelerator, operator: In, values: [nvidia]}
{{- end -}}

{{- /* The label nvidia-device-enable, by which gpu-manager's nodes are chosen, keeps the agent off a node. */}}
{{- define "aliquot.agent.affinity" -}}
{{- if .Values.agent.affinity -}}
{{- toYaml .Values.agent.affinity -}}
{{- else -}}
{{- $enabled := dict "key" "nvidia-device-enable" "operator" "NotIn" "values" (list "disable") -}}
{{- $terms := list -}}
{{- if .Values.agent.gpuNodesOnly -}}
  {{- range include "aliquot.gpuLabels" . | fromYamlArray -}}
    {{- $terms = append $terms (dict "matchExpressions" (list . $enabled)) -}}
  {{- end -}}
{{- else -}}
  {{- $terms = list (dict "matchExpressions" (list $enabled)) -}}
{{- end -}}
nodeAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
      {{- toYaml $terms | nindent 6 }}
{{- end -}}
{{- end -}}

{{- /* kube-scheduler's tag is the API server's version without what a provider appends, v1.33.5 of v1.33.5-eks-3025e55. */}}
{{- define "aliquot.kubeScheduler.image" -}}
{{- $given := .Values.scheduler.kubeScheduler.image -}}
{{- $tag := $given.tag | default (regexFind "^v[0-9]+[.][0-9]+[.][0-9]+" .Capabilities.KubeVersion.Version) -}}
{{- include "aliquot.image" (dict "root" . "image" (merge (dict "tag" $tag) $given)) -}}
{{- end -}}

{{- /* "true" where shares are given to ResourceClaims, else "". */}}
{{- define "aliquot.dra" -}}
{{- if or .Values.dra.enabled (eq .Values.scheduler.mode "dra") -}}true{{- end -}}
{{- end -}}

{{- /* The namespaces whose pods get claims, and those whose pods are sent to a kube-scheduler of Aliquot's own, where there are
both. Takes values, and of: "names" or "claims". */}}
{{- define "aliquot.namespaces" -}}
{{- if and .values.dra.enabled .values.dra.pods (ne .values.scheduler.mode "dra") -}}
{{- $labelled := eq .values.dra.namespaces "labelled" -}}
namespaceSelector:
  matchExpressions:
    - key: elasticgpu.io/shares-by
      operator: {{ ternary "In" "NotIn" (eq $labelled (eq .of "claims")) }}
      values: [{{ ternary "resource-claims" "resource-names" $labelled }}]
{{- end -}}
{{- end -}}

{{- /* The value of the label is "" by kubeadm, "true" by k3s and RKE2. Other modes run on any node. */}}
{{- define "aliquot.scheduler.affinity" -}}
{{- if .Values.scheduler.affinity -}}
{{- toYaml .Values.scheduler.affinity -}}
{{- else if eq .Values.scheduler.mode "extender" -}}
nodeAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
      - matchExpressions:
          - key: node-role.kubernetes.io/control-plane
            operator: Exists
{{- end -}}
{{- end -}}

{{- /* Both containers read the configuration when they start: a change of it starts new ones. */}}
{{- define "aliquot.scheduler.annotations" -}}
{{- $annotations := .Values.scheduler.podAnnotations -}}
{{- if eq .Values.scheduler.mode "own" -}}
  {{- $checksum := include (print .Template.BasePath "/kube-scheduler.yaml") . | sha256sum -}}
  {{- $annotations = merge (dict "checksum/configuration" $checksum) $annotations -}}
{{- end -}}
{{- with $annotations -}}{{- toYaml . -}}{{- end -}}
{{- end -}}

{{- /* The replica that acts notes in its Lease for 30 s that the cluster's kube-scheduler asks it (src/scheduler/cluster/lease.h).
A Lease that has not been renewed for as long is of replicas that are gone. */}}
{{- define "aliquot.refuseBothModes" -}}
{{- $lease := lookup "coordination.k8s.io/v1" "Lease" .Release.Namespace "aliquot-scheduler" -}}
{{- if dig "metadata" "annotations" "elasticgpu.io/asked-by-cluster" "" $lease -}}
  {{- $renewed := toDate "2006-01-02T15:04:05.000000Z07:00" $lease.spec.renewTime -}}
  {{- if lt (sub (now | unixEpoch | int64) ($renewed | unixEpoch | int64)) 30 -}}
    {{- fail "scheduler.mode=own: the cluster's kube-scheduler asks Aliquot: remove the extender from its configuration before, in the order of docs/operations.md (From one mode to the other), and wait 30 s" -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- /* helm takes no field away from an object that kubectl has made: the host's network of the mode `extender` would stay, or
the kube-scheduler of the mode `own`. The mode `dra` has neither. */}}
{{- define "aliquot.refuseOtherMode" -}}
{{- $made := lookup "apps/v1" "Deployment" .Release.Namespace "aliquot-scheduler" -}}
{{- if and $made (not (dig "metadata" "annotations" "meta.helm.sh/release-name" "" $made)) -}}
  {{- $mode := ternary "extender" "dra" (dig "hostNetwork" false $made.spec.template.spec) -}}
  {{- range $made.spec.template.spec.containers -}}
    {{- if eq .name "kube-scheduler" -}}{{- $mode = "own" -}}{{- end -}}
  {{- end -}}
  {{- if ne $mode .Values.scheduler.mode -}}
    {{- fail (printf "scheduler.mode=%s: the Deployment aliquot-scheduler that kubectl has applied is of the mode %s, and helm would leave parts of it: install with scheduler.mode=%s, or change the mode by kubectl before (docs/operations.md)" .Values.scheduler.mode $mode $mode) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- /* helm would create the new DaemonSet before it deletes the former one: for a while a node would have two agents. */}}
{{- define "aliquot.refuseAnotherName" -}}
{{- $name := printf "%s-agent" (include "aliquot.name" .) -}}
{{- range (lookup "apps/v1" "DaemonSet" .Release.Namespace "").items -}}
  {{- if and (eq (dig "metadata" "labels" "app.kubernetes.io/name" "" .) "aliquot-agent") (ne .metadata.name $name) -}}
    {{- fail (printf "nameOverride: the agents of this namespace are those of the DaemonSet %s, which an upgrade does not rename: leave the value as it is, or uninstall before" .metadata.name) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- /* Of one API and version a cluster has one server. Takes root, value and name. */}}
{{- define "aliquot.refuseForeignApi" -}}
{{- $service := dig "spec" "service" (dict) (lookup "apiregistration.k8s.io/v1" "APIService" "" .name) -}}
{{- if $service -}}
  {{- if or (ne $service.name "aliquot-metrics-api") (ne $service.namespace .root.Release.Namespace) -}}
    {{- fail (printf "scheduler.metricsApi.%s: APIService %s is of Service %s/%s, which would lose it: set the value to false, or remove that product" .value .name $service.namespace $service.name) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- /* What the API server is deleting would be taken away again, or is refused by helm without a remedy. */}}
{{- define "aliquot.refuseWhatIsBeingDeleted" -}}
{{- if dig "metadata" "deletionTimestamp" "" (lookup "v1" "Namespace" "" .Release.Namespace) -}}
  {{- fail (printf "namespace %s is being deleted: wait until it is gone (its status says what it waits for: kubectl get namespace %s -o yaml), or install into another one" .Release.Namespace .Release.Namespace) -}}
{{- end -}}
{{- range list "elasticgpuclaims" "elasticgpuclasses" "elasticgpuquotas" "elasticgpureservations" "elasticgpus" "gpus" -}}
  {{- $crd := printf "%s.elasticgpu.io" . -}}
  {{- if dig "metadata" "deletionTimestamp" "" (lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" $crd) -}}
    {{- fail (printf "CustomResourceDefinition %s is being deleted and waits for finalizers of its objects: complete the removal by `aliquot uninstall --crds=delete`, then install" $crd) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- /* The defaults of a rolling update are refused beside another type. */}}
{{- define "aliquot.updateStrategy" -}}
{{- if has .type (list "OnDelete" "Recreate") -}}
type: {{ .type }}
{{- else -}}
{{- toYaml . -}}
{{- end -}}
{{- end -}}

{{- /* Arguments of the agent that are not the same everywhere. */}}
{{- define "aliquot.agent.options" -}}
{{- $agent := .Values.agent -}}
{{- $rules := list -}}
{{- range $namespace, $reaction := $agent.overuseRules -}}
  {{- $rules = append $rules (printf "%s=%s" $namespace $reaction) -}}
{{- end -}}
{{- $options := list
  (list "driver-root" .Values.driver.root)
  (list "dev-root" .Values.driver.devRoot)
  (list "cdi-dir" (ternary "" .Values.cdi.dir (eq .Values.cdi.dir "/var/run/cdi")))
  (list "kubelet-dir" (ternary "" .Values.kubelet.dir (eq .Values.kubelet.dir "/var/lib/kubelet")))
  (list "on-overuse" $agent.onOveruse)
  (list "on-escape" $agent.onEscape)
  (list "overuse-rules" (join "," $rules))
  (list "driver-limits" $agent.driverLimits)
  (list "resource-claims" $agent.resourceClaims)
  (list "memory-scaling" (toString $agent.memoryScaling))
  (list "config-map" $agent.configMap)
  (list "mig-strategy" $agent.migStrategy)
  (list "mps-cards" $agent.mpsCards)
  (list "mps-dir" $agent.mpsDir)
  (list "usage-auth" (ternary "" $agent.usageAuth (eq $agent.usageAuth "token")))
  (list "metrics-auth" (ternary "" $agent.metricsAuth (eq $agent.metricsAuth "none")))
  (list "metric-names" (ternary "" (join "," $agent.metricNames) (eq (join "," $agent.metricNames) "aliquot,dcgm")))
-}}
{{- $arguments := list -}}
{{- range $options -}}
  {{- if last . -}}{{- $arguments = append $arguments (printf "--%s=%s" (first .) (last .)) -}}{{- end -}}
{{- end -}}
{{- with concat $arguments $agent.extraArgs -}}{{- toYaml . -}}{{- end -}}
{{- end -}}
