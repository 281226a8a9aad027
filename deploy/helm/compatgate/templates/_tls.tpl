{{- /*
The certificates of tls.mode selfSigned, made once a rendering and kept in .Values.made.

The first installation makes an authority (ten years) and a certificate. `helm upgrade` finds both
in their secrets and keeps them, but renews the certificate, signed by the same authority, when it
is near its end or names another host, and the authority in its last year. After that the bundle
(ca.crt, caBundle) holds the new authority and the one before, so that clients trust a replica that
still serves the previous certificate.
*/}}
{{- define "compatgate.makeCertificates" -}}
{{- if not (hasKey .Values "made") }}
{{- $name := include "compatgate.fullname" . }}
{{- $host := include "compatgate.host" . }}
{{- $names := list $host (printf "%s.%s" $host .Values.clusterDomain) }}
{{- $now := now | unixEpoch | int64 }}
{{- $day := 86400 }}
{{- $authoritySecret := lookup "v1" "Secret" .Release.Namespace (printf "%s-ca" $name) | default dict }}
{{- $leafSecret := lookup "v1" "Secret" .Release.Namespace (printf "%s-tls" $name) | default dict }}
{{- $authorityEnds := dig "metadata" "annotations" "compatgate.dev/ends" "0" $authoritySecret | int64 }}
{{- $leafEnds := dig "metadata" "annotations" "compatgate.dev/ends" "0" $leafSecret | int64 }}
{{- $leafNames := dig "metadata" "annotations" "compatgate.dev/names" "" $leafSecret }}
{{- $bundle := dig "data" "ca.crt" "" $leafSecret | b64dec }}
{{- $authority := dict }}
{{- $fresh := true }}
{{- if and (dig "data" "tls.crt" "" $authoritySecret) (gt (int64 $authorityEnds) (int64 (add $now (mul 365 $day)))) }}
{{- $authority = buildCustomCert (get $authoritySecret.data "tls.crt") (get $authoritySecret.data "tls.key") }}
{{- $fresh = false }}
{{- else }}
{{- $authority = genCA (printf "%s admission" $name) 3650 }}
{{- $authorityEnds = add $now (mul 3650 $day) }}
{{- $before := regexFind "(?s)-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n?" $bundle }}
{{- $bundle = printf "%s\n%s" (trim $authority.Cert) $before }}
{{- end }}
{{- if not (contains (trim $authority.Cert) $bundle) }}
{{- $bundle = printf "%s\n%s" (trim $authority.Cert) $bundle }}
{{- end }}
{{- $renewAt := sub $leafEnds (mul .Values.tls.selfSigned.renewBefore $day) }}
{{- $leaf := dict }}
{{- if or $fresh (not (dig "data" "tls.crt" "" $leafSecret)) (ne $leafNames (join "," $names)) (lt (int64 $renewAt) $now) }}
{{- $made := genSignedCert $host nil $names (int .Values.tls.selfSigned.days) $authority }}
{{- $leaf = dict "crt" ($made.Cert | b64enc) "key" ($made.Key | b64enc) }}
{{- $leafEnds = add $now (mul .Values.tls.selfSigned.days $day) }}
{{- else }}
{{- $leaf = dict "crt" (get $leafSecret.data "tls.crt") "key" (get $leafSecret.data "tls.key") }}
{{- end }}
{{- $_ := set .Values "made" (dict "authority" (dict "crt" ($authority.Cert | b64enc) "key" ($authority.Key | b64enc) "ends" $authorityEnds) "leaf" $leaf "ends" $leafEnds "names" (join "," $names) "bundle" ($bundle | b64enc)) }}
{{- end }}
{{- end }}
