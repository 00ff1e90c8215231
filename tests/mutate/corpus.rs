//! Good inputs, and the important words in them.

use std::io::Write as _;

use gardenlet::format::brotli;
use gardenlet::pki::PrivateKey;
use gardenlet::pki::request::{self, Subject};

pub(crate) const TEMPLATES: &[&str] = &[
    "{{ .Values.name | quote }}\n{{- range $i, $x := .Values.list }}\n- {{ $i }}: {{ $x }}\n{{- end }}\n",
    "{{ define \"t\" }}{{ .a }}{{ end }}{{ include \"t\" (dict \"a\" 1) | indent 4 }}",
    "{{ $x := 1 }}{{ if and (gt $x 0) (lt $x 9) }}{{ $x = add $x 1 }}{{ else with .Values.map }}{{ .k }}{{ end }}{{ $x }}",
    "{{ printf \"%5.2f|%-8s|%+d|%x|%q|%v|%T\" 1.5 \"a\" 3 255 \"q\" .Values .Values.list }}",
    "{{ toYaml .Values | nindent 2 }}{{ toJson .Values }}{{ fromYaml \"a: 1\" }}{{ fromJson \"{}\" }}{{ toToml .Values }}",
    "{{ regexReplaceAll \"a(b+)c\" \"abbc\" \"${1}\" }}{{ splitList \",\" \"a,b\" | join \"-\" }}{{ substr 0 3 \"hello\" }}",
    "{{ semverCompare \">=1.2-0\" \"1.2.3\" }}{{ date \"2006-01-02\" now }}{{ durationRound \"2h10m5s\" }}{{ trunc 5 \"abcdefgh\" }}",
    "{{ tpl \"{{ .Values.name }}\" . }}{{ b64enc \"a\" | b64dec }}{{ sha256sum \"a\" }}{{ urlParse \"http://a/b?c#d\" }}",
    "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-{{ .Chart.Name }}\ndata:\n  a: {{ .Files.Get \"x\" | b64enc }}\n",
    "{{ wrap 5 \"a b c d\" }}{{ seq 1 2 5 }}{{ until 5 }}{{ untilStep 0 10 3 }}{{ repeat 3 \"ab\" }}{{ slice .Values.list 0 1 }}",
    "{{ mulf 1.5 2 }}{{ div 7 2 }}{{ mod 7 2 }}{{ round 1.555 2 }}{{ max 1 2 }}{{ int64 \"7\" }}{{ float64 \"1e3\" }}{{ ceil 1.2 }}",
];
pub(crate) const TEMPLATE_WORDS: &[&str] = &[
    "{{",
    "}}",
    "{{-",
    "-}}",
    "{{/*",
    "*/}}",
    "{{ end }}",
    "{{ else }}",
    "{{ range ",
    "{{ with ",
    "{{ if ",
    "define ",
    "template ",
    "block ",
    "break",
    "continue",
    "include ",
    "tpl ",
    "$",
    "$x",
    ":=",
    "|",
    ".Values",
    ".Values.list",
    "nil",
    "(",
    ")",
    "`",
    "'a'",
    "div 1 0",
    "mod 1 0",
    "index .Values.list -1",
    "slice .Values.list 2 1",
    "substr -1 -9 ",
    "trunc -9223372036854775808 ",
    "repeat -1 ",
    "repeat 9999999 ",
    "until -1",
    "untilStep 1 9 0 ",
    "seq 9 -1 ",
    "indent -1 ",
    "%9999999d",
    "%*d",
    "%[3]v",
    "%!",
    "nindent 9999999 ",
    "wrap 0 ",
    "round 1.5 400",
    "int 1e300",
    "regexFind \"(\" ",
    "\\u{110000}",
    "é",
    "abbrev 1 ",
    "initials ",
];
pub(crate) const YAML: &[&str] = &[
    "a: 1\nb: [1, 2, {c: d}]\ne:\n- f\n- g: h\n  i: j\n",
    "base: &b {x: 1, y: [2]}\nother:\n  <<: *b\n  z: *b\n---\nsecond: !!str 12\n...\n",
    "text: |-\n  one\n   two\n\n  three\nfolded: >+\n  a\n  b\n\nq: \"\\u00e9\\x41\\n\"\ns: 'it''s'\n",
    "? complex\n: value\n? [a, b]\n: c\n\"k\": ~\n0o17: 0x1f\nt: 2001-12-14t21:59:43.10-05:00\nf: 1_000.5\nn: .5e3\ny: yes\n",
    "{\"json\": [true, false, null, 1.5e10, -0, \"\\ud83d\\ude00\"]}",
    "# comment\n%YAML 1.1\n---\n- - - a\n    - b\n- !!binary aGk=\n- 0777\n- 12:30:45\n",
];
pub(crate) const YAML_WORDS: &[&str] = &[
    "---\n",
    "...\n",
    "&a ",
    "*a",
    "*b",
    "<<: ",
    "!!",
    "!!int ",
    "!!binary ",
    "!<tag:a> ",
    "%TAG ! x\n",
    "|",
    "|9\n",
    ">-\n",
    "? ",
    ": ",
    "- ",
    "\t",
    "\u{feff}",
    "\u{2028}",
    "\\U0010ffff",
    "\\x",
    "'",
    "\"",
    "#",
    "{",
    "}",
    "[",
    "]",
    "~",
    "null",
    "y",
    "\r\n",
];
pub(crate) const KUBECONFIG: &[&str] = &[
    "apiVersion: v1\nkind: Config\ncurrent-context: c\npreferences: {}\ncontexts:\n- name: c\n  context: {cluster: k, user: u, namespace: n}\nclusters:\n- name: k\n  cluster:\n    server: https://[::1]:6443/base\n    certificate-authority-data: UEVN\n    proxy-url: http://u:p@h:1\n    tls-server-name: x\nusers:\n- name: u\n  user:\n    client-certificate-data: UEVN\n    client-key-data: UEVN\n    token: abc\n",
    "{\"kind\":\"Config\",\"current-context\":\"c\",\"contexts\":[{\"name\":\"c\",\"context\":{\"cluster\":\"k\",\"user\":\"u\"}}],\"clusters\":[{\"name\":\"k\",\"cluster\":{\"server\":\"h\",\"certificate-authority\":\"ca.crt\"}}],\"users\":[{\"name\":\"u\",\"user\":{\"exec\":{\"command\":\"./x\",\"args\":[\"a\"],\"env\":[{\"name\":\"a\",\"value\":\"b\"}],\"apiVersion\":\"client.authentication.k8s.io/v1\",\"interactiveMode\":\"Never\"}}}]}",
];
pub(crate) const KUBECONFIG_WORDS: &[&str] = &[
    "https://",
    "[::1]",
    ":99999",
    "null",
    "exec: ",
    "tokenFile: ../x",
    "users: ",
    "%00",
    "==",
    "auth-provider: {}",
];
pub(crate) const CONFIG: &[&str] = &[
    "apiVersion: gardenlet.config.gardener.cloud/v1alpha1\nkind: GardenletConfiguration\ngardenClientConnection:\n  kubeconfigValidity: {validity: 24h, autoRotationJitterPercentageMin: 70}\n  bootstrapKubeconfig: {name: a, namespace: b}\n  kubeconfigSecret: {name: a, namespace: b}\n  qps: 10.5\ncontrollers:\n  seed: {syncPeriod: 1h30m, leaseResyncSeconds: 2}\n  seedCare: {conditionThresholds: [{type: A, duration: 1m}]}\nleaderElection: {leaseDuration: 15s, renewDeadline: 10s}\nresources: {capacity: {shoots: '250'}, reserved: {shoots: 1k}}\nserver: {healthProbes: {bindAddress: '::', port: 2728}}\nfeatureGates: {X: true}\nlogLevel: info\nseedConfig:\n  metadata: {name: edge-1, labels: {a: b}}\n  spec:\n    provider: {type: local, region: north, zones: [a, b]}\n    networks: {nodes: 10.50.0.0/16, pods: 10.51.0.0/16, services: 10.52.0.0/16, ipFamilies: [IPv4]}\n    dns:\n      internal: {type: local, domain: int.example.org, credentialsRef: {apiVersion: v1, kind: Secret, namespace: garden, name: dns}}\n      provider: {type: local, credentialsRef: {apiVersion: v1, kind: Secret, namespace: garden, name: dns}}\n    ingress: {domain: i.example.org, controller: {kind: nginx}}\n    settings: {excessCapacityReservation: {configs: [{resources: {cpu: 2}}]}}\n    taints: [{key: a}]\nedge:\n  workers: 2\n  registries: [{host: 'r.example.org:5000', mirrors: ['https://m/x'], insecure: true, layoutDir: /x}]\n",
    "{}",
];
pub(crate) const CONFIG_WORDS: &[&str] = &[
    "-1s",
    "1e9h",
    "99999999999h",
    "::/0",
    "10.0.0.0/33",
    "1Ei",
    "-5",
    "null",
    "[]",
    "{}",
    "seedConfig: ",
    "edge: ",
    "IPv6",
];
pub(crate) const IMAGES: &[&str] = &[
    "images:\n- {name: etcd, repository: r/etcd, tag: 'sha256:aa', architectures: [amd64, arm64]}\n- name: kube-apiserver\n  repository: r/a\n  targetVersion: '>= 1.33, < 1.35'\n- {name: kube-controller-manager, ref: 'r/kcm:x', runtimeVersion: '*'}\n",
    "images: []\n",
];

pub(crate) const IMAGE_WORDS: &[&str] = &[
    "images:",
    "name: ",
    "etcd",
    "repository: ",
    "ref: ",
    "tag: ",
    "targetVersion: ",
    "architectures: ",
    "- ",
    "[",
    "]",
    "{",
    "}",
    "~",
    ">= 1.3",
    "'*'",
    "1.34.x",
    "sha256:",
];

pub(crate) const OCI: &[&str] = &[
    "registry.example.org:5000/charts/echo:1.2.3",
    "europe-docker.pkg.dev/a/b/c@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "oci://localhost/a:b@sha256:0000000000000000000000000000000000000000000000000000000000000000",
    "{\"auths\":{\"https://r.example.org/v1/\":{\"auth\":\"dTpw\"},\"r:5000/x\":{\"username\":\"u\",\"password\":\"p\",\"identitytoken\":\"t\"}}}",
    "{\"schemaVersion\":2,\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\",\"config\":{\"digest\":\"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\",\"size\":2},\"layers\":[{\"mediaType\":\"application/vnd.cncf.helm.chart.content.v1.tar+gzip\",\"digest\":\"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\",\"size\":0}]}",
    "{\"schemaVersion\":2,\"manifests\":[{\"digest\":\"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\",\"size\":9,\"platform\":{\"os\":\"linux\",\"architecture\":\"amd64\"},\"annotations\":{\"org.opencontainers.image.ref.name\":\"1\"}}]}",
];
pub(crate) const OCI_WORDS: &[&str] = &[
    "sha256:",
    "sha512:",
    "@",
    ":",
    "//",
    "../",
    "auths",
    "layers",
    "manifests",
    "size",
    "null",
    "[]",
    "[::1]:1/",
];
pub(crate) const FORMATS: &[&str] = &[
    "Full-00000000-00001234-1600000000.gz",
    "<R xmlns=\"x\"><IsTruncated>false</IsTruncated><Contents><Key>a&amp;b&#x2F;</Key><Size>1</Size></Contents><Contents/></R>",
    "1h2m3.5s",
    "-1.5ms",
    "100us",
    "10Gi",
    "1.5e3",
    "100m",
    "12345678901234567890n",
    "1.2.3-alpha.1+b",
    ">=1.2 <2 || ~3.x, ^0.1.*",
    "1.2 - 2.3.4",
    "10.0.0.0/8",
    "fd00::/64",
    "1.2.3.4/32",
    "2001-12-14T21:59:43.123456Z",
    "9999-12-31T23:59:59+14:00",
    "Mon Jan 2 15:04:05 MST 2006",
    "a.b[0].c=d,e={1,2},f\\.g=null",
    "https://u:p@[::1]:8443/x?y",
    "127.0.0.0/8,.example.org,*,h:80",
    "YWJj",
    "apiVersion: v1\nkind: A\n---\n# Source: x\nkind: B\n",
];
pub(crate) const FORMAT_WORDS: &[&str] = &[
    "ns",
    "h",
    "Ei",
    "e-9",
    "E99999",
    "||",
    "*",
    "x",
    "-0",
    "::",
    "/129",
    "Z",
    "+99:99",
    "[65537]",
    "[-1]",
    "{",
    ".",
    "µs",
    "T24:00:00",
];
const ANSWERS: &[(&str, &str)] = &[
    (
        "",
        "{\"kind\":\"SecretList\",\"metadata\":{\"resourceVersion\":\"7\"},\"items\":[{\"metadata\":{\"name\":\"a\",\"namespace\":\"b\",\"managedFields\":[{}]},\"data\":{\"k\":\"YQ==\"}},{\"metadata\":{\"name\":\"c\"}}]}",
    ),
    (
        "",
        "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"1\"},\"data\":{\"k\":\"YQ==\"}}}\n{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"9\"}}}\n{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410,\"reason\":\"Expired\"}}\n",
    ),
    ("", "{\"major\":\"1\",\"minor\":\"34+\",\"gitVersion\":\"v1.34.1\"}"),
    (
        " 404 Not Found",
        "{\"kind\":\"Status\",\"status\":\"Failure\",\"message\":\"m\",\"reason\":\"NotFound\",\"details\":{\"causes\":[{\"field\":\"a\"}]},\"code\":404}",
    ),
];
pub(crate) const ANSWER_WORDS: &[&str] = &[
    "\r\n",
    "\r\n\r\n",
    "0\r\n\r\n",
    "ffffffff\r\n",
    "HTTP/1.0 200\r\n",
    "Content-Length: 5\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Content-Encoding: gzip\r\n",
    "Connection: keep-alive\r\n",
    "Date: x\r\n",
    "\"items\":",
    "null",
    "[]",
    "{}",
    "\"metadata\":",
    "\"continue\":\"x\",",
];

pub(crate) fn texts(list: &[&str]) -> Vec<Vec<u8>> {
    list.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// Complete answers of an API server: with a length, in chunks, until the end of the connection.
pub(crate) fn answers() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for (status, body) in ANSWERS {
        let status = if status.is_empty() { " 200 OK" } else { status };
        let head = format!(
            "HTTP/1.1{status}\r\nContent-Type: application/json\r\nDate: Mon, 02 Jan 2006 15:04:05 GMT\r\n"
        );
        all.push(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()));
        let (first, second) = body.split_at(body.len() / 2);
        all.push(format!(
            "{head}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{first}\r\n{:X};x=y\r\n{second}\r\n0\r\n\r\n",
            first.len(),
            second.len()
        ));
        all.push(format!("{head}Connection: close\r\n\r\n{body}"));
    }
    all.into_iter().map(String::into_bytes).collect()
}

pub(crate) const STREAM_WORDS: &[&str] = &[
    "\n",
    "\r\n",
    "{\"type\":\"ADDED\",\"object\":",
    "{\"type\":\"BOOKMARK\",\"object\":",
    "{\"type\":\"ERROR\",\"object\":",
    "\"resourceVersion\":\"9\"",
    "\"metadata\":",
    "\u{e9}\u{1f331}",
    "\\u00e9\\ud83c",
    "null",
    "1e999",
    "[[[[",
    "<html>",
];

/// Events of a watch, one per line, as a server sends them and as others might.
pub(crate) fn streams() -> Vec<Vec<u8>> {
    let event = |kind: &str, name: &str| {
        format!(
            "{{\"type\":\"{kind}\",\"object\":{{\"metadata\":{{\"name\":\"{name}\",\"resourceVersion\":\"7\"}}}}}}\n"
        )
    };
    let gone = "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410,\"reason\":\"Expired\"}}\n";
    let all = [
        event("ADDED", "a") + &event("MODIFIED", "\u{fc}\u{1f331}") + &event("DELETED", "a"),
        event("BOOKMARK", "") + "\r\n\n" + gone,
        event("ADDED", "a").replace('\n', "\r\n") + event("ADDED", "b").trim_end(),
        "<html>no way through</html>\n".to_owned(),
    ];
    all.into_iter().map(String::into_bytes).collect()
}

pub(crate) const CHUNK_WORDS: &[&str] = &[
    "\r\n",
    "\n",
    "0\r\n\r\n",
    "ffffffffffffffff\r\n",
    "-1\r\n",
    "+5\r\n",
    " 5 \r\n",
    ";x=y\r\n",
    "Trailer: x\r\n",
];

/// Bodies in chunks, without the head: of every size, with extensions and trailers.
pub(crate) fn chunks() -> Vec<Vec<u8>> {
    let body = ANSWERS[1].1;
    let cut = |size: usize, extension: &str| {
        let pieces = body.as_bytes().chunks(size);
        let chunk =
            |piece: &[u8]| format!("{:X}{extension}\r\n{}\r\n", piece.len(), String::from_utf8_lossy(piece));
        pieces.map(chunk).collect::<String>()
    };
    let all = [cut(1, "") + "0\r\n\r\n", cut(60, ";x=y") + "000\r\nTrailer: x\r\n\r\n", cut(4_096, "")];
    all.into_iter().map(String::into_bytes).collect()
}

/// Charts as archives and, for changes below the compression, in uncompressed form.
pub(crate) fn charts() -> Vec<Vec<u8>> {
    let metadata = "apiVersion: v2\nname: c\nversion: 1.0.0\nkubeVersion: '>=1.20-0'\ndependencies:\n- {name: sub, version: 1.x, condition: a.b, alias: s, import-values: [x]}\n";
    let schema = "{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"pattern\":\"^a\",\"$ref\":\"#/definitions/d\"}},\"definitions\":{\"d\":{\"anyOf\":[{\"minimum\":1}]}}}";
    let object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: '{{ .Release.Name }}'}\ndata: {{ .Values | toJson }}\n";
    let files: &[(&str, &str)] = &[
        ("c/Chart.yaml", metadata),
        ("c/values.yaml", "a: 1\ns: {x: {y: 2}}\nlist: [1, 2]\n"),
        ("c/values.schema.json", schema),
        ("c/templates/a.yaml", object),
        ("c/templates/NOTES.txt", "hello"),
        ("c/crds/x.yaml", "kind: CustomResourceDefinition\n"),
        ("c/charts/sub/Chart.yaml", "apiVersion: v1\nname: sub\nversion: 1.2.3\n"),
        ("c/charts/sub/values.yaml", "exports: {x: {z: 1}}\n"),
        ("c/.helmignore", "*.bak\n!a\n"),
    ];
    let whole = archive(files);
    vec![zipped(&whole), whole, archive(&files[..2])]
}

fn archive(files: &[(&str, &str)]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, text) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(u64::try_from(text.len()).unwrap());
        header.set_mode(0o644);
        archive.append_data(&mut header, name, text.as_bytes()).unwrap();
    }
    archive.into_inner().unwrap()
}

pub(crate) fn zipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Certificates, requests and keys, each as PEM and as DER.
pub(crate) fn certificates() -> Vec<Vec<u8>> {
    let signing = rcgen::KeyPair::generate().unwrap();
    let parameters =
        rcgen::CertificateParams::new(vec!["a.example.org".to_owned(), "::1".to_owned()]).unwrap();
    let certificate = parameters.self_signed(&signing).unwrap();
    let key = PrivateKey::generate().unwrap();
    let subject =
        Subject { common_name: "c".to_owned(), organizations: vec!["o".to_owned()], ..Subject::default() };
    let request = request::build(&subject, &key).unwrap().pem;
    vec![
        certificate.pem().into_bytes(),
        certificate.der().to_vec(),
        signing.serialize_pem().into_bytes(),
        signing.serialize_der(),
        key.pkcs8().to_vec(),
        request.into_bytes(),
    ]
}

/// Short texts, and compressed data.
pub(crate) fn formats() -> Vec<Vec<u8>> {
    // Made by the reference encoder: "hello hello hello hello\n".
    let packed = [0x1b, 0x17, 0x00, 0x00, 0xa4, 0xb0, 0xb2, 0x72, 0x0a, 0xa1, 0x08, 0x00];
    let mut all = texts(FORMATS);
    all.extend([brotli::encode(b"stored"), packed.to_vec()]);
    all
}
