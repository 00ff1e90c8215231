use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::base::random::hex;

fn selected(text: &str) -> Result<Connection, String> {
    parse(text, Path::new("/etc/kube")).and_then(|config| config.current()).map_err(|error| error.to_string())
}

/// A kubeconfig with these fields of cluster and user, in flow style.
fn with(cluster: &str, user: &str) -> Result<Connection, String> {
    selected(&format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         contexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
         clusters: [{{name: k, cluster: {{server: 'https://h', {cluster}}}}}]\n\
         users: [{{name: u, user: {{{user}}}}}]\n"
    ))
}

fn inline(text: &str) -> InlineOrFile {
    InlineOrFile::inline(text)
}

#[test]
fn clusters_define_the_trust() {
    let table = [
        ("", ServerTrust::System),
        ("insecure-skip-tls-verify: true", ServerTrust::Insecure),
        ("insecure-skip-tls-verify: false", ServerTrust::System),
        ("certificate-authority: ca.crt", ServerTrust::Bundle(InlineOrFile::File("/etc/kube/ca.crt".into()))),
        ("certificate-authority: /ca.crt", ServerTrust::Bundle(InlineOrFile::File("/ca.crt".into()))),
        (
            "certificate-authority: ../x/ca.crt",
            ServerTrust::Bundle(InlineOrFile::File("/etc/kube/../x/ca.crt".into())),
        ),
        ("certificate-authority-data: UEVN", ServerTrust::Bundle(inline("PEM"))),
        (
            "certificate-authority-data: UEVN, certificate-authority: ca.crt",
            ServerTrust::Bundle(inline("PEM")),
        ),
        ("certificate-authority-data: \"UE\\nVN\\n\"", ServerTrust::Bundle(inline("PEM"))),
        ("certificate-authority-data: null", ServerTrust::System),
    ];
    for (cluster, trust) in table {
        assert_eq!(with(cluster, "").unwrap().trust, trust, "{cluster}");
    }
    let all = with(
        "tls-server-name: kube, proxy-url: 'http://u:p@proxy', extensions: [{name: x, extension: {}}]",
        "",
    );
    let all = all.unwrap();
    assert_eq!((all.server.as_str(), all.tls_server_name.as_deref()), ("https://h", Some("kube")));
    assert_eq!(all.proxy_url.unwrap().expose(), "http://u:p@proxy");
}

#[test]
fn users_define_the_identity() {
    let token = |text: &str| AuthorizationSource::Token(Secret::new(text.to_owned()));
    let table = [
        ("", AuthorizationSource::None),
        ("token: t", token("t")),
        ("token: '  t\n'", token("t")),
        ("tokenFile: token", AuthorizationSource::TokenFile("/etc/kube/token".into())),
        ("token: t, tokenFile: /run/token", AuthorizationSource::TokenFile("/run/token".into())),
        (
            "username: me, password: pw",
            AuthorizationSource::Basic { username: "me".into(), password: Secret::new("pw".into()) },
        ),
    ];
    for (user, credentials) in table {
        let identity = with("", user).unwrap().identity;
        assert_eq!((identity.certificate, identity.credentials), (None, credentials), "{user}");
    }
    let both =
        with("", "client-certificate-data: Qw==, client-certificate: c, client-key: key.pem, token: t")
            .unwrap();
    let expected = Certificate { chain: inline("C"), key: InlineOrFile::File("/etc/kube/key.pem".into()) };
    assert_eq!((both.identity.certificate, both.identity.credentials), (Some(expected), token("t")));
}

#[test]
fn plugins_are_read_with_all_their_settings() {
    let exec = "exec: {apiVersion: client.authentication.k8s.io/v1, command: bin/get, args: [a, b], \
        env: [{name: NAME, value: v}], interactiveMode: IfAvailable, provideClusterInfo: true, installHint: try harder}";
    let cluster = "extensions: [{name: client.authentication.k8s.io/exec, extension: {audience: x}}]";
    let AuthorizationSource::Exec(plugin) = with(cluster, exec).unwrap().identity.credentials else {
        panic!()
    };
    let expected = ExecPlugin {
        command: "/etc/kube/bin/get".into(),
        args: vec!["a".into(), "b".into()],
        env: vec![("NAME".into(), "v".into())],
        api_version: "client.authentication.k8s.io/v1".into(),
        provide_cluster_info: true,
        cluster_config: Some(json!({"audience": "x"})),
        install_hint: "try harder".into(),
    };
    assert_eq!(plugin, Arc::new(expected));
    let bare = with("", "exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: get}").unwrap();
    let AuthorizationSource::Exec(plugin) = bare.identity.credentials else { panic!() };
    assert_eq!(plugin.command, Path::new("get"), "looked up in PATH");
}

#[test]
fn contradictions_and_gaps_are_named() {
    let v1 = "apiVersion: client.authentication.k8s.io/v1";
    let table = [
        ("certificate-authority-data: UEVN, insecure-skip-tls-verify: true", "", "contradict"),
        ("certificate-authority-data: '***'", "", "certificate-authority-data is not Base64"),
        ("", "client-certificate: c", "need each other"),
        ("", "client-key-data: Qw==", "need each other"),
        ("", "auth-provider: {name: oidc}", "auth-provider was removed"),
        ("", "as: somebody", "impersonation"),
        ("", "token: t, username: u", "contradict"),
        ("", &format!("exec: {{{v1}}}"), "exec without command"),
        (
            "",
            "exec: {apiVersion: client.authentication.k8s.io/v1alpha1, command: c}",
            "v1alpha1\" is not supported",
        ),
        (
            "",
            &format!("exec: {{{v1}, command: c, interactiveMode: Always}}"),
            "the agent cannot answer prompts",
        ),
    ];
    for (cluster, user, text) in table {
        let error = with(cluster, user).unwrap_err();
        assert!(error.contains(text), "{cluster} {user}: {error}");
    }
    let texts = [
        ("", "kubeconfig without current-context"),
        ("current-context: c", "kubeconfig has no context \"c\""),
        (
            "current-context: c\ncontexts: [{name: c, context: {cluster: k}}]",
            "kubeconfig has no cluster \"k\"",
        ),
        (
            "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\nclusters: [{name: k, cluster: {server: s}}]",
            "kubeconfig has no user \"u\"",
        ),
        (
            "current-context: c\ncontexts: [{name: c, context: {cluster: k}}]\nclusters: [{name: k}]",
            "cluster \"k\" has no server",
        ),
        ("kind: Secret", "not a kubeconfig: its kind is not Config"),
        ("[]", "not a kubeconfig: it is not a mapping"),
        ("users: [{name: a}, {name: a}]", "not a kubeconfig: duplicate name \"a\" in list"),
        ("a: [", "not a kubeconfig: line"),
    ];
    for (text, expected) in texts {
        let error = selected(text).unwrap_err();
        assert!(error.starts_with(expected), "{text}: {error}");
    }
}

#[test]
fn no_error_quotes_the_text() {
    let texts = ["hunter2", "users: hunter2", "users: [{name: u, user: hunter2}]", "a: 'hunter2"];
    for text in texts {
        let error = selected(text).unwrap_err();
        assert!(!error.contains("hunter2"), "{error}");
    }
    let config =
        parse("users: [{name: u, user: {token: hunter2, password: hunter2}}]", Path::new("/")).unwrap();
    assert!(!format!("{config:?}").contains("hunter2"));
    let long = "#".repeat((1 << 20) + 1);
    assert!(selected(&long).unwrap_err().contains("larger than 1048576 bytes"));
}

#[test]
fn the_first_of_several_files_wins_and_paths_are_relative_to_their_own() {
    let directory = std::env::temp_dir().join(format!("gardenlet-test-{}", hex(12)));
    for (name, text) in [
        ("a/config", "current-context: c\nusers: [{name: u, user: {tokenFile: t}}]"),
        (
            "b/config",
            "current-context: other\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n\
            users: [{name: u, user: {token: second}}]\nclusters: [{name: k, cluster: {server: 'https://b/', certificate-authority: ca}}]",
        ),
        ("empty", ""),
    ] {
        let path = directory.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let paths = ["empty", "missing", "a/config", "b/config"].map(|name| directory.join(name));
    let connection = load(&paths).unwrap().current().unwrap();
    let real = fs::canonicalize(&directory).unwrap();
    assert_eq!(connection.server, "https://b");
    assert_eq!(connection.trust, ServerTrust::Bundle(InlineOrFile::File(real.join("b/ca"))));
    assert_eq!(connection.identity.credentials, AuthorizationSource::TokenFile(real.join("a/t")));
    assert!(load(&paths[1..2]).unwrap_err().to_string().starts_with("read "));
    assert!(load(&[paths[1].clone(), directory.join("also-missing")]).is_err());
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn what_the_agent_writes_can_be_read_again() {
    let connection = Connection {
        tls_server_name: Some("kube".into()),
        ..Connection::new("https://garden:6443").with_ca("CA").with_certificate("CERT", "KEY")
    };
    let text = render(&connection).unwrap();
    let expected = "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: Q0E=\n    server: https://garden:6443\n    \
        tls-server-name: kube\n  name: gardenlet\ncontexts:\n- context:\n    cluster: gardenlet\n    user: gardenlet\n  name: gardenlet\n\
        current-context: gardenlet\nkind: Config\nusers:\n- name: gardenlet\n  user:\n    client-certificate-data: Q0VSVA==\n    \
        client-key-data: S0VZ\n";
    assert_eq!(text, expected);
    assert_eq!(selected(&text).unwrap(), connection);
    for odd in [
        Connection::new("https://[fd00::1]").with_trust(ServerTrust::Insecure).with_token("yes"),
        Connection {
            proxy_url: Some(Secret::new("socks5://p".into())),
            ..Connection::new("https://h").with_token("12")
        },
    ] {
        assert_eq!(selected(&render(&odd).unwrap()).unwrap(), odd);
    }
    let missing = Connection::new("https://h")
        .with_trust(ServerTrust::Bundle(InlineOrFile::File("/nonexistent/ca".into())));
    assert!(matches!(render(&missing), Err(Error::Read { .. })));
    let plugin = Identity { certificate: None, credentials: AuthorizationSource::Exec(Arc::default()) };
    assert!(render(&Connection { identity: plugin, ..Connection::new("https://h") }).is_err());
}
